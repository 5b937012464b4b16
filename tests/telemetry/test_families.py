"""The names are a contract: docs/telemetry.md lists exactly what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.telemetry.families import FAMILIES, Family

PAGE = (Path(__file__).parents[2] / "docs/telemetry.md").read_text()


def shown(family: Family) -> str:
    return family.name + {"counter": "_total", "info": "_info"}.get(family.kind, "")


def test_the_page_has_every_family_with_its_labels() -> None:
    rows = re.findall(r"^\| `((?:trilemma|process)_\w+)` \| (\w+) \| (.*?) \|", PAGE, re.MULTILINE)
    assert {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows} == {
        shown(family): (family.kind, family.labels) for family in FAMILIES.values()
    }
    assert len(rows) == len(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_names_and_bounds(family: Family) -> None:
    assert re.fullmatch(r"(trilemma|process)_[a-z_]+", family.name)
    assert not family.name.endswith(("_total", "_info", "_bucket", "_count", "_sum"))
    assert list(family.bounds) == sorted(set(family.bounds))
    assert bool(family.bounds) == (family.kind == "histogram")
    assert family.help.endswith(".")
    assert family.merge == "sum" or family.kind in ("gauge", "info")
