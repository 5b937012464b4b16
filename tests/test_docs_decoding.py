"""docs/decoding.md names every strategy with each parameter, its default and bounds; its examples load, its figures are the bench's."""

from __future__ import annotations

import ast
import importlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from gateway.config.check import check
from gateway.config.load import parse
from policies.decoding.registry import STRATEGIES, strategy
from policies.judging.asking import FAILED

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "decoding.md").read_text()
BENCH = (DOCS / "benchmarks.md").read_text()
WHOLE, *PIECES = [yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)]
BOUNDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "minLength", "maxLength", "maxItems")


def section(name: str) -> str:
    """What stands under the heading of a strategy."""
    return PAGE.split(f"### `{name}`\n", 1)[1].split("\n##", 1)[0]


def table(text: str, header: str) -> list[list[str]]:
    """The cells of the table whose header begins so, row by row."""
    below = text.partition(f"\n| {header} |")[2].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.removeprefix("|").removesuffix("|").split(" | ")] for line in below]


def params(name: str) -> type[msgspec.Struct]:
    found: type[msgspec.Struct] = importlib.import_module(STRATEGIES[name]).Params
    return found


def test_the_strategies_are_those_that_there_are() -> None:
    assert set(re.findall(r"^### `(\w+)`$", PAGE, re.MULTILINE)) == set(STRATEGIES)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_parameter_stands_there_with_its_default(name: str) -> None:
    rows = table(section(name), "parameter | default | bounds | what")
    fields = {field.name: field for field in msgspec.structs.fields(params(name))}
    assert [row[0].strip("`") for row in rows] == list(fields)
    for row, field in zip(rows, fields.values(), strict=True):
        assert not field.required, field.name
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        written = None if row[1] == "none" else yaml.safe_load(row[1].strip("`"))
        assert written == json.loads(msgspec.json.encode(default)), field.name


def kinds(told: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A schema, and those within it."""
    yield told
    within = [*told.get("anyOf", ()), *told.get("prefixItems", ()), *([told["items"]] if isinstance(told.get("items"), dict) else ())]
    for each in within:
        yield from kinds(each)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_bound_stands_there(name: str) -> None:
    (schema,) = msgspec.json.schema(params(name))["$defs"].values()
    for row in table(section(name), "parameter | default | bounds | what"):
        parameter, cell = row[0].strip("`"), row[2]
        found = list(kinds(schema["properties"][parameter]))
        numbers = dict.fromkeys(float(kind[key]) for kind in found for key in BOUNDS if key in kind)
        words = [word for kind in found for word in kind.get("enum", ())]
        assert sorted(re.findall(r"`(\w+)`", cell)) == sorted(words), parameter
        assert [float(each) for each in re.findall(r"-?\d+(?:\.\d+)?(?:e\d+)?", cell)] == list(numbers), parameter
        for word, key in (("above", "exclusiveMinimum"), ("below", "exclusiveMaximum")):
            assert (word in cell) == any(key in kind for kind in found), parameter


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_words_for_why_are_its_own(name: str) -> None:
    source = Path(importlib.import_module(STRATEGIES[name]).__file__ or "").read_text()
    said = {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)} | {
        FAILED,
        "reward_failed",
        "verifier_failed",
    }
    told = {word for row in table(section(name), "why | what it says") for word in re.findall(r"`(\w+)`", row[0])}
    assert told
    assert {word.removesuffix("_unchecked") for word in told} <= said


def test_the_worst_case_is_told() -> None:
    told = {row[0].strip("`"): (int(row[1]), int(row[2])) for row in table(PAGE, "strategy | candidates | questions to roles")}
    made = {name: strategy(name, {}) for name in STRATEGIES}
    assert told == {name: (each.most, each.asks) for name, each in made.items()}
    judge, *scorers = (strategy("best_of_n", {"select": each}).asks for each in ("judge", "reward", "verifier"))
    assert f"`best_of_n` asks up to {judge} questions, with `reward` or `verifier` {scorers[0]}." in PAGE and len(set(scorers)) == 1


def configured() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each example as a whole file, in which a plan has its strategy."""
    yield "the whole", WHOLE
    for piece in PIECES:
        for name, spec in piece["strategies"].items():
            auto = WHOLE["virtual_models"]["auto"]
            plans = {**auto["plans"], "voted": {"model": "small", "strategy": name}}
            yield f"{spec['type']}-{name}", {**WHOLE, "strategies": {name: spec}, "virtual_models": {"auto": {**auto, "plans": plans}}}


EXAMPLES = list(configured())


@pytest.mark.parametrize("example", [pytest.param(file, id=name) for name, file in EXAMPLES])
def test_an_example_can_be_served(example: Mapping[str, Any], tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a secret of thirty-two characters")
    loaded = parse(json.dumps(example), {"KEY_SHA256": "ab" * 32}, folder=tmp_path)
    assert [each.message for each in check(loaded.config) if each.severity == "error" or each.loc[0] == "strategies"] == []


@pytest.mark.parametrize("name", STRATEGIES)
def test_each_has_an_example_of_itself(name: str) -> None:
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", section(name), re.MULTILINE | re.DOTALL)
    assert {each["type"] for each in yaml.safe_load(text)["strategies"].values()} == {name}


def benched(profile: str) -> Mapping[str, list[float]]:
    """What the bench says of a profile's rules: right, loss, from, to, uniform, tokens, samples, rounds, p95, tokens per right."""
    text = BENCH.partition(f"\n| voting, {profile}: rule |")[2].split("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]
    return {rule: [float(cell.replace(",", "")) for cell in cells] for rule, *cells in rows}


def test_its_figures_are_the_bench_s() -> None:
    rows = table(PAGE, "simulated profile")
    dearer, gains = [], []
    for profile, *cells in rows:
        found = benched(profile)
        one, default, twenty = found["fixed 1"], found["Beta 0.88, 4 then 2"], found["fixed 20"]
        figures = [float(cell.replace(",", "")) for cell in cells]
        assert figures == [one[0], default[0], twenty[0], default[6], one[9], default[9]], profile
        dearer.append(default[9] / one[9])
        gains.append(one[1])
    assert len(rows) == 5
    text = " ".join(PAGE.split())
    assert f"by {min(gains):.0f} to {max(gains):.0f} points" in text
    assert f"{min(dearer):.0f} to {max(dearer):.0f} times the tokens" in text
    stops = [benched(row[0])["Beta 0.88, 4 then 2"] for row in rows]
    assert f"{sum(each[1] for each in stops) / 5:.2f} points on average" in text
    assert f"{min(each[5] for each in stops):.0%}".rstrip("%") + f" to {max(each[5] for each in stops) * 100:.0f} % of its tokens" in text
    assert f"in {min(each[7] for each in stops):.1f} to {max(each[7] for each in stops):.1f} rounds" in text


def test_the_example_of_a_usage_adds_up() -> None:
    usage = json.loads(PAGE.split("```json\n", 1)[1].split("```", 1)[0])
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    candidates = usage["trilemma"]["candidate"]
    assert usage["completion_tokens"] == candidates["completion_tokens"]
    assert candidates["prompt_tokens"] == candidates["calls"] * usage["prompt_tokens"]


def test_its_links_lead_somewhere() -> None:
    for file, anchor in re.findall(r"\]\(([\w./-]*?)(?:#([\w-]+))?\)", PAGE):
        text = (DOCS / file).read_text() if file else PAGE
        headings = {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
        assert not anchor or anchor in headings, f"{file}#{anchor}"
