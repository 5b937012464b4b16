from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from gateway.load.arrivals import Ask, asks, body
from gateway.load.traces import read_trace
from gateway.mock.tokens import split
from tests.load.making import scenario


def made(load: dict[str, Any], **parts: Any) -> list[Ask]:
    return asks(scenario(load={"chat": load}, **parts))


def test_a_constant_rate_is_evenly_spaced() -> None:
    times = [ask.at for ask in made({"constant": 4, "from_s": 2, "for_s": 1.5})]

    assert times == pytest.approx([2.0, 2.25, 2.5, 2.75, 3.0, 3.25])


def test_a_load_without_an_end_lasts_as_long_as_the_scenario() -> None:
    assert len(made({"constant": 3})) == 30
    assert made({"constant": 3, "from_s": 8, "for_s": 60})[-1].at < 10


def test_poisson_gaps_have_the_mean_and_the_spread_of_an_exponential() -> None:
    times = [ask.at for ask in made({"poisson": 50}, duration_s=100)]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    mean = sum(gaps) / len(gaps)

    assert 4_700 < len(times) < 5_300  # 5,000, four standard deviations of 71
    assert mean == pytest.approx(0.02, rel=0.06)
    assert sum(gap > mean for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.03)  # 1/e


def test_a_burst_comes_at_once() -> None:
    assert [ask.at for ask in made({"burst": {"size": 2, "at": [3, 1]}})] == [1, 1, 3, 3]


def test_the_same_seed_asks_the_same_and_another_one_does_not() -> None:
    load = {"poisson": 5, "stream": 0.5, "max_tokens": [1, 100], "leave": {"share": 0.5, "after_events": [1, 9]}}

    assert made(load) == made(load)
    assert made(load) != made(load, seed=2)


def test_loads_are_merged_in_order_of_time_and_numbered() -> None:
    loads = {"slow": {"constant": 1}, "fast": {"constant": 3, "from_s": 0.1}}
    both = asks(scenario(load=loads, duration_s=2))

    assert [ask.load for ask in both] == ["slow", "fast", "fast", "fast", "slow", "fast", "fast", "fast"]
    assert [ask.number for ask in both] == list(range(8))


def test_one_load_does_not_change_what_another_asks() -> None:
    alone = asks(scenario(load={"chat": {"poisson": 5}}))
    both = asks(scenario(load={"other": {"poisson": 9}, "chat": {"poisson": 5}}))

    assert [ask.at for ask in both if ask.load == "chat"] == [ask.at for ask in alone]


def test_a_trace_is_thinned_evenly_and_squeezed_into_the_time_of_the_load() -> None:
    rows = read_trace("azure_conv")

    replayed = made({"trace": {"name": "azure_conv", "share": 0.125}, "from_s": 10}, duration_s=110)

    assert len(replayed) == 19_366 // 8
    for ask, row in zip(replayed, rows[7::8], strict=True):
        assert ask.at == pytest.approx(10 + row.at * 100 / rows[-1].at)
        assert (ask.blocks[0].tokens, ask.max_tokens) == (row.prompt_tokens, row.output_tokens)
    assert len({ask.blocks for ask in replayed}) == len(replayed)  # nobody shares a prompt


def test_a_window_of_a_trace_begins_at_its_begin() -> None:
    rows = [row for row in read_trace("azure_code") if 600 <= row.at <= 660]

    replayed = made({"trace": {"name": "azure_code", "window_s": [600, 660]}}, duration_s=60)

    assert [ask.at for ask in replayed] == pytest.approx([row.at - 600 for row in rows])


def test_prompts_of_mooncake_share_what_the_trace_shares() -> None:
    rows = read_trace("mooncake_conversation")[:3]

    replayed = made({"trace": {"name": "mooncake_conversation", "window_s": [0, 3]}}, duration_s=3)[:3]

    texts = [json.loads(body(ask, scenario().load["chat"]))["messages"][0]["content"] for ask in replayed]
    assert [len(split(text)) for text in texts] == [row.prompt_tokens for row in rows]
    assert texts[0][: 512 * 4] == texts[1][: 512 * 4] == texts[2][: 512 * 4]  # they share block 0
    assert texts[0][512 * 4 :][:100] != texts[1][512 * 4 :][:100]


def test_shares_are_kept() -> None:
    tenants = {"a": {"share": 3}, "b": {"share": 1}}
    load = {"constant": 400, "stream": 0.25, "leave": {"share": 0.5, "after_s": [1, 2]}, "slow": {"share": 0.1, "bytes_per_s": 10}}

    many = made(load, tenants=tenants)

    assert Counter(ask.tenant for ask in many)["a"] == pytest.approx(3_000, abs=150)
    assert sum(ask.stream for ask in many) == pytest.approx(1_000, abs=120)
    assert sum(ask.bytes_per_s is not None for ask in many) == pytest.approx(400, abs=80)
    leaving = [ask for ask in many if ask.leave_at is not None]
    assert len(leaving) == pytest.approx(2_000, abs=130)
    assert all(1 <= (ask.leave_at or 0) - ask.at <= 2 for ask in leaving)


def test_a_load_may_be_one_tenants() -> None:
    tenants = {"a": {"share": 3}, "b": {"share": 1}}

    assert {ask.tenant for ask in made({"constant": 5, "tenants": {"b": 1}}, tenants=tenants)} == {"b"}


def test_only_streams_are_left_after_so_many_events() -> None:
    many = made({"constant": 20, "stream": 0.5, "leave": {"share": 1, "after_events": [2, 4]}})

    assert {ask.leave_after_events is not None for ask in many if ask.stream} == {True}
    assert {ask.leave_after_events for ask in many if not ask.stream} == {None}
    assert {ask.leave_after_events for ask in many if ask.stream} == {2, 3, 4}


def test_a_body_is_what_the_load_says() -> None:
    one = scenario(load={"chat": {"constant": 1, "max_tokens": 7, "prompt_tokens": 3, "body": {"temperature": 0.5, "user": "é"}}})
    ask = asks(one)[0]

    sent = json.loads(body(ask, one.load["chat"]))

    assert sent.pop("messages")[0]["content"].count(" ") == 2
    assert sent == {"model": "mock", "max_tokens": 7, "stream": True, "temperature": 0.5, "user": "é"}


def test_streams_may_ask_for_their_usage() -> None:
    one = scenario(load={"chat": {"constant": 10, "stream": 0.5, "usage": True}, "other": {"constant": 1}})
    sent = [(ask, json.loads(body(ask, one.load[ask.load]))) for ask in asks(one)]

    assert {ask.stream for ask, _ in sent} == {True, False}
    for ask, fields in sent:
        assert fields.get("stream_options") == ({"include_usage": True} if ask.stream and ask.load == "chat" else None)


def test_a_prompt_of_so_many_bytes() -> None:
    one = scenario(load={"chat": {"burst": {"size": 1}, "prompt_bytes": 5_000_000, "stream": 0}})

    sent = body(asks(one)[0], one.load["chat"])

    assert 5_000_000 <= len(sent) < 5_000_200
    assert "stream" not in json.loads(sent)
