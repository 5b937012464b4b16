"""Reading /metrics as Prometheus does."""

from __future__ import annotations

from collections.abc import Mapping

import httpx
from prometheus_client.parser import text_string_to_metric_families

Series = tuple[str, frozenset[tuple[str, str]]]


class Scrape(Mapping[Series, float]):
    """All samples of one answer, by name and labels."""

    def __init__(self, text: str) -> None:
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        self._values = {(sample.name, frozenset(sample.labels.items())): float(sample.value) for sample in samples}
        assert len(self._values) == len(samples), "a series stands there twice"

    def __getitem__(self, series: Series) -> float:
        return self._values[series]

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def of(self, name: str, **labels: str) -> float:
        """The sum of the series of that name that have these labels, `_` after a word of Python's; 0 when there is none."""
        wanted = {(label.rstrip("_"), value) for label, value in labels.items()}
        return sum(value for (each, has), value in self._values.items() if each == name and wanted <= has)

    def has(self, name: str, **labels: str) -> bool:
        """Whether there is such a series."""
        return any(each == name and set(labels.items()) <= has for each, has in self._values)

    def labels(self, name: str, label: str) -> set[str]:
        """The values that a label has."""
        return {dict(has)[label] for each, has in self._values if each == name}

    def since(self, before: Scrape) -> Scrape:
        """What has been added since; series that did not change are left out."""
        found = Scrape("")
        found._values = {series: value - before.get(series, 0.0) for series, value in self.items() if value != before.get(series, 0.0)}
        return found


async def scrape(client: httpx.AsyncClient) -> Scrape:
    """What the gateway exposes now."""
    answer = await client.get("/metrics")
    assert answer.status_code == 200, answer.text
    return Scrape(answer.text)
