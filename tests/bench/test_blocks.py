"""Blocks over a real mock: which count, and what is said of the others."""

from __future__ import annotations

import msgspec
import pytest

from gateway.bench.blocks import Block, MissingFigureError, Series, evaluate, in_turns, least, ratio, troubles
from gateway.bench.ctools import Load, Tools
from gateway.bench.servers import Server


def block(series: str, cpu_us: float, *, events: int = 0, reads: int = 0, problem: str = "") -> Block:
    return Block(series, 0, 100, 0, events, reads, 2.0, cpu_us, 1.0, 2.0, 0.0, 0.0, problem)


def cost(one: Block) -> float:
    return one.cpu_us_per_request


def test_a_block_survives_json() -> None:
    one = block("a/b", 1.5, problem="why")
    assert msgspec.json.decode(msgspec.json.encode(one), type=Block) == one


def test_costs_are_per_request_and_per_event() -> None:
    one = block("nginx/streams", 5_000.0, events=200, reads=200)
    assert (one.cpu_us_per_request, one.cpu_us_per_event, one.s_per_request) == (50.0, 25.0, 0.02)


def test_the_least_counts_of_those_that_are_whole() -> None:
    blocks = [block("a", 400.0), block("a", 300.0), block("a", 100.0, problem="1 failed"), block("b", 50.0)]
    assert least(blocks, "a", cost) == 3.0


def test_bunched_events_count_only_in_need() -> None:
    steady = block("a", 400.0, events=200, reads=199)
    bunched = block("a", 100.0, events=200, reads=197)
    assert least([bunched, steady], "a", cost) == 4.0
    assert troubles([bunched, steady]) == []
    assert least([bunched], "a", cost) == 1.0
    assert [note for note in troubles([bunched]) if "too busy" in note and note.endswith(" a.")]


def test_a_ratio_is_the_median_of_those_within_one_turn() -> None:
    """2, 4 and 6 times; the fourth turn has no other that counts. The least of each, 100 and 20, would make it 5."""
    costs = {0: (200.0, 100.0), 1: (160.0, 40.0), 2: (120.0, 20.0)}
    blocks = [
        msgspec.structs.replace(block(name, cost), block=turn)
        for turn, pair in costs.items()
        for name, cost in zip("ab", pair, strict=True)
    ]
    alone = [msgspec.structs.replace(each, block=3) for each in (block("a", 100.0), block("b", 1.0, problem="1 failed"))]
    assert ratio([*blocks, *alone], "a", "b", cost) == 4.0
    with pytest.raises(MissingFigureError, match="never measured in the same turn"):
        ratio([*alone[:1], *blocks[1::2]], "a", "b", cost)


def test_what_cannot_be_had_has_a_reason() -> None:
    blocks = [block("a", 1.0, problem="3 of 100 requests failed")]
    with pytest.raises(MissingFigureError, match="c was not measured"):
        least(blocks, "c", cost)
    values, reasons = evaluate({"x": lambda: least(blocks, "a", cost), "y": lambda: 2.0})
    assert values == {"x": None, "y": 2.0}
    assert reasons == {"x": "3 of 100 requests failed"}
    assert [note for note in troubles(blocks) if "left out" in note and note.endswith(" a.")]


def test_series_are_measured_in_their_order(tools: Tools, mock: Server) -> None:
    said: list[str] = []
    series = [Series("direct/single", mock, Load("mock", 1, 20)), Series("mock/streams", mock, Load("mock-slow", 2, 2, stream=True))]
    found = [one for index in range(2) for one in in_turns(series, index, tools.lg, 0.0, said.append)]
    assert len(said) == len(found)
    whole = [one for one in found if one.steady]  # on a busy machine others come before it
    assert [(one.series, one.block) for one in whole if one.series == "direct/single"] == [("direct/single", 0), ("direct/single", 1)]
    assert all(one.requests == 20 and one.cpu_us is None and not one.problem for one in found if one.series == "direct/single")
    assert all(one.events == 264 and one.cpu_us and not one.problem for one in found if one.series == "mock/streams")


def test_wrong_counts_of_events_are_noticed(tools: Tools, mock: Server) -> None:
    series = Series("mock/streams", mock, Load("mock", 2, 2, stream=True), events=133)
    problems = {one.problem for one in in_turns([series], 0, tools.lg, 0.0, lambda _: None)}
    assert problems == {"264 stream events arrived where 266 were expected"}
