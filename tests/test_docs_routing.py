"""docs/routing.md names every policy and wrapper with each parameter and its default; its examples load, and its figures add up."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import yaml

from gateway.config.check import check
from gateway.config.load import parse
from gateway.learning.observations import Reason
from gateway.serving.feedback import VERDICTS
from policies.conditions.signal import KINDS, Signal
from policies.registry import ALGORITHMS, WRAPPERS
from policies.routing.rules import Rule

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "routing.md").read_text()
BENCH = (DOCS / "benchmarks.md").read_text()
NAMES = [*ALGORITHMS.items(), *WRAPPERS.items()]
WHOLE, *PIECES = [yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)]


def section(name: str) -> str:
    """What stands under the heading of a policy or a wrapper."""
    return PAGE.split(f"### `{name}`\n", 1)[1].split("\n##", 1)[0]


def table(text: str, header: str) -> list[list[str]]:
    """The cells of the table under a header, row by row."""
    below = text.partition(f"\n| {header} |")[2].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in below]


def agree(rows: list[list[str]], struct: type[msgspec.Struct]) -> None:
    """Each parameter has its row, with its default."""
    fields = {field.name: field for field in msgspec.structs.fields(struct)}
    written = {row[0].strip("`"): row[1] for row in rows}
    assert len(written) == len(rows)
    assert set(written) == set(fields)
    for name, cell in written.items():
        field = fields[name]
        if cell == "required":
            assert field.required, name
        elif cell == "none":
            assert field.default is None, name
        else:
            default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
            assert yaml.safe_load(cell.strip("`")) == json.loads(msgspec.json.encode(default)), name


@pytest.mark.parametrize(("name", "path"), NAMES)
def test_every_parameter_stands_there_with_its_default(name: str, path: str) -> None:
    agree(table(section(name), "parameter"), importlib.import_module(path).Params)


def test_no_section_is_left_of_what_is_no_more() -> None:
    assert set(re.findall(r"^### `(\w+)`$", PAGE, re.MULTILINE)) == {*ALGORITHMS, *WRAPPERS}


def test_rules_are_told_as_they_are_read() -> None:
    agree(table(section("rules"), "key of a rule"), Rule)
    asked = [name for row in table(section("rules"), "question") for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted(asked) == sorted(KINDS)
    named = {*re.findall(r"`(\w+)", section("rules")), *re.findall(r"(\w+):", section("rules"))}
    assert set(Signal.__struct_fields__) <= named


def configured() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each example as a whole file, with each of its policies in use."""
    yield "the whole", WHOLE
    for number, piece in enumerate(PIECES):
        merged = {**WHOLE, **piece, "policies": {**WHOLE["policies"], **piece.get("policies", {})}}
        if "virtual_models" in piece:
            yield f"{number}", merged
        for name in piece.get("policies", {}):
            auto = {**WHOLE["virtual_models"]["auto"], "policy": name}
            yield f"{number}-{name}", {**merged, "virtual_models": {"auto": auto}}


@pytest.mark.parametrize("example", [pytest.param(file, id=name) for name, file in configured()])
def test_an_example_can_be_served(example: Mapping[str, Any], tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a secret of thirty-two characters")
    loaded = parse(json.dumps(example), {"KEY_SHA256": "ab" * 32}, folder=tmp_path)
    assert [each.message for each in check(loaded.config) if each.severity == "error"] == []


@pytest.mark.parametrize("name", [name for name, _ in NAMES])
def test_each_has_an_example_of_itself(name: str) -> None:
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", section(name), re.MULTILINE | re.DOTALL)
    found = yaml.safe_load(text)["policies"].values()
    kinds = {each["type"] for each in found} | {wrapper["type"] for each in found for wrapper in each.get("wrappers", [])}
    assert name in kinds


def test_the_example_of_a_decision_adds_up() -> None:
    told = PAGE.split("```text\n", 1)[1].split("```", 1)[0]
    rows = [line.split() for line in told.splitlines() if line.startswith(("small ", "large"))]
    cost_price, second = map(float, re.findall(r"prices: ([\d.]+) of quality for a USD, ([\d.]+) for a second", told)[0])
    numbers = {name: [float(cell) for cell in cells] for name, *cells in rows}
    for quality, low, high, cost, latency, score, probability in numbers.values():
        assert low < quality < high
        assert quality - cost_price * cost - second * latency == pytest.approx(score, abs=2e-4)
        assert probability >= 0.02 / len(numbers)
    quality, cost, latency = 0.9, 0.08, 0.02  # the default preference
    assert cost / quality / max(each[3] for each in numbers.values()) == pytest.approx(cost_price, rel=1e-3)
    assert latency / quality / max(each[4] for each in numbers.values()) == pytest.approx(second, rel=1e-3)

    u = float(re.findall(r"draw: u = ([\d.]+)", told)[0])
    reached = list(accumulate(each[6] for each in numbers.values()))
    assert reached[-1] == pytest.approx(1.0, abs=2e-4)
    drawn = next(name for name, edge in zip(numbers, reached, strict=True) if u < edge)
    assert f": {drawn} (probability " in told


def test_verdicts_are_told_as_they_count() -> None:
    good = re.findall(r"which is 1 for (.*?), 0 for (.*?) \(", PAGE.replace("\n", " "))
    told = {name: value for names, value in zip(good[0], (1.0, 0.0), strict=True) for name in re.findall(r"`(\w+)`", names)}
    assert told == VERDICTS
    assert "told_not_to" in get_args(Reason)


def test_its_links_lead_somewhere() -> None:
    for file, anchor in re.findall(r"\]\(([\w./-]*?)(?:#([\w-]+))?\)", PAGE):
        text = (DOCS / file).read_text() if file else PAGE
        headings = {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
        assert not anchor or anchor in headings, f"{file}#{anchor}"


def test_what_curves_save_is_what_the_bench_says() -> None:
    """Regret over all requests is the fifth column of the bench, the share of the best plan the last."""
    measured = {row[0]: [float(cell) for cell in row[1:]] for row in bench_rows()}
    rows = table(PAGE, PAGE.partition("<!-- joint-choice -->")[2].split("\n\n| ")[1].split(" |\n")[0])
    assert len(rows) == 4
    for case, *cells in rows:
        apart, level, curves = (measured[f"{case.replace('`', '')}, {way}"] for way in ("apart", "level", "curves"))
        assert [float(cell) for cell in cells] == [apart[4], level[4], curves[4], apart[7], curves[7]]


def bench_rows() -> list[list[str]]:
    lines = BENCH.partition("\n| joint plans: regret of a request |")[2].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
