"""Logs as lines of JSON, and what contradicts itself in them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from policies.offpolicy.log import LogError, Option, Row, logged, read_log, write_log
from policies.values.situation import Prices


def row(**changes: object) -> Row:
    base = Row("d1", "b", 0.25, (Option("a", 0.75, 0.001, 0.5), Option("b", 0.25, 0.01, 2.0)), created=10.0, quality=0.5, labelling=0.5)
    return msgspec.structs.replace(base, **changes)


def test_columns_hold_what_the_rows_say_in_order_of_time() -> None:
    later = row(id="d0", created=20.0, plan="a", propensity=0.75, quality=None, session="s", blocks={"shape-1": [1.0, 2.0]})
    log = logged([later, row(prices=Prices(3.0, 4.0))], ["b", "a"])
    assert log.plans == ("b", "a") and log.ids == ("d1", "d0") and log.sessions == ("", "s")
    assert log.chosen.tolist() == [0, 1]
    assert log.probabilities.tolist() == [[0.25, 0.75], [0.25, 0.75]]
    assert log.expected_costs[0].tolist() == [0.01, 0.001]
    assert log.cost_prices.tolist() == [3.0, 0.0] and log.latency_prices.tolist() == [4.0, 0.0]
    assert np.isnan(log.quality).tolist() == [False, True]
    assert np.isnan(log.costs).all()
    assert np.isnan(log.blocks["shape-1"][0]).all() and log.blocks["shape-1"][1].tolist() == [1.0, 2.0]


def test_plans_of_the_past_are_kept_behind_those_of_today() -> None:
    log = logged([row()], ["b", "new"])
    assert log.plans == ("b", "new", "a")
    assert log.eligible.tolist() == [[True, False, True]]


def test_some_rows_are_a_log_too() -> None:
    log = logged([row(id=f"d{i}", created=float(i), unit=f"u{i}") for i in range(5)])
    part = log.at(np.array([1, 3]))
    assert (len(part), part.ids, part.units, part.created.tolist()) == (2, ("d1", "d3"), ("u1", "u3"), [1.0, 3.0])


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    packed = np.array([0.5, -1.0], dtype="<f4").tobytes()
    assert write_log(file, [row(blocks={"shape-1": packed}), row(id="d2", created=11.0, blocks={"shape-1": [0.25, 3.0]})]) == 2
    log = read_log(file)
    assert log.ids == ("d1", "d2")
    assert log.blocks["shape-1"].tolist() == [[0.5, -1.0], [0.25, 3.0]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"plan": "c"}, "chose `c`"),
        ({"propensity": 0.5}, "among its candidates stands 0.25"),
        ({"candidates": (Option("a", 0.5), Option("b", 0.25))}, "sum to 0.75, not 1"),
        ({"labelling": 0.0}, "labelling probability 0"),
        ({"blocks": {"shape-1": b"abc"}}, "no numbers of 4 bytes"),
    ],
)
def test_what_contradicts_itself_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(LogError, match=message):
        logged([row(**changes)])


def test_features_of_two_sizes_are_refused() -> None:
    with pytest.raises(LogError, match="has 2 features of `e`, others have 1"):
        logged([row(blocks={"e": [1.0]}), row(id="d2", created=11.0, blocks={"e": [1.0, 2.0]})])


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_bytes(msgspec.json.encode(row()) + b"\n\n{\n")
    with pytest.raises(LogError, match=r"log\.jsonl:3: "):
        read_log(file)


def test_an_empty_log_is_a_log(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_bytes(b"")
    assert len(read_log(file)) == 0
