from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.serving.options import Options, Preference, options
from gateway.wire.errors import ApiError


def asked(body: Any = None, **headers: str) -> Options:
    pairs = [(b"x-trilemma-" + name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return options(b"" if body is None else json.dumps(body).encode(), [(b"host", b"x"), *pairs])


def refused(body: Any = None, **headers: str) -> ApiError:
    with pytest.raises(ApiError) as caught:
        asked(body, **headers)
    assert caught.value.status == 400
    return caught.value


def test_nothing_asked() -> None:
    assert asked() == Options()
    assert options(b"null", ()) == Options()
    assert asked({}) == Options()


def test_the_body_is_read() -> None:
    body = {"policy": "split", "strategy": "single", "deadline_ms": 1500, "session_id": "s", "tags": {"team": "a"}}

    assert asked(body) == Options(policy="split", strategy="single", deadline_ms=1500, session_id="s", tags={"team": "a"})


def test_what_becomes_of_the_request_is_read() -> None:
    found = asked({"learn": False, "dry_run": True, "include": ["decision", "candidates"]})
    assert (found.learn, found.dry_run, found.include) == (False, True, ["decision", "candidates"])
    assert asked({"learn": None, "dry_run": None, "include": None}) == Options()


def test_a_header_wins_over_the_body_and_leaves_the_rest() -> None:
    body = {"policy": "split", "strategy": "vote", "deadline_ms": 1500}

    assert asked(body, strategy=" single ", deadline_ms=" 20 ") == Options(policy="split", strategy="single", deadline_ms=20)
    assert asked(body, strategy="") == Options(policy="split", strategy="vote", deadline_ms=1500)


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"nope": 1}, "trilemma.nope", "caller_unknown_parameter"),
        ({"deadline": 1}, "trilemma.deadline", "caller_unknown_parameter"),
        ({"k" * 5_000: 1}, "trilemma." + "k" * 100 + "...", "caller_unknown_parameter"),
        ({"k\x1b[31m": 1}, "trilemma.k\ufffd[31m", "caller_unknown_parameter"),
        ([], "trilemma", "caller_invalid_value"),
        ("x", "trilemma", "caller_invalid_value"),
        (True, "trilemma", "caller_invalid_value"),
        ({"policy": 1}, "trilemma.policy", "caller_invalid_value"),
        ({"deadline_ms": "5"}, "trilemma.deadline_ms", "caller_invalid_value"),
        ({"deadline_ms": 0}, "trilemma.deadline_ms", "caller_invalid_value"),
        ({"deadline_ms": -1}, "trilemma.deadline_ms", "caller_invalid_value"),
        ({"deadline_ms": 86_400_001}, "trilemma.deadline_ms", "caller_invalid_value"),
        ({"deadline_ms": 10**40}, "trilemma.deadline_ms", "caller_invalid_value"),
        ({"deadline_ms": 1.5}, "trilemma.deadline_ms", "caller_invalid_value"),
        ({"max_cost": 0}, "trilemma.max_cost", "caller_invalid_value"),
        ({"max_cost": -1.5}, "trilemma.max_cost", "caller_invalid_value"),
        ({"max_cost": "1"}, "trilemma.max_cost", "caller_invalid_value"),
        ({"budget_tokens": 0}, "trilemma.budget_tokens", "caller_invalid_value"),
        ({"budget_tokens": 1.5}, "trilemma.budget_tokens", "caller_invalid_value"),
        ({"preference": {}}, "trilemma.preference", "caller_invalid_value"),
        ({"preference": {"quality": -1, "cost": 2}}, "trilemma.preference", "caller_invalid_value"),
        ({"preference": {"quality": 1, "speed": 2}}, "trilemma.speed", "caller_unknown_parameter"),
        ({"preference": [1, 2, 3]}, "trilemma.preference", "caller_invalid_value"),
        ({"reasoning": "much"}, "trilemma.reasoning", "caller_invalid_value"),
        ({"tags": ["a"]}, "trilemma.tags", "caller_invalid_value"),
        ({"tags": {"a": 1}}, "trilemma.tags[...]", "caller_invalid_value"),
        ({"tags": {str(i): "x" for i in range(17)}}, "trilemma.tags", "caller_invalid_value"),
        ({"learn": 0}, "trilemma.learn", "caller_invalid_value"),
        ({"dry_run": "true"}, "trilemma.dry_run", "caller_invalid_value"),
        ({"include": "decision"}, "trilemma.include", "caller_invalid_value"),
        ({"include": ["everything"]}, "trilemma.include[0]", "caller_invalid_value"),
    ],
)
def test_what_is_wrong_is_named(body: Any, param: str, code: str) -> None:
    error = refused(body)

    assert (error.param, error.code) == (param, code)
    assert len(error.body()) < 600


@pytest.mark.parametrize("value", ["", "abc", "-1", "1.5", "1e3", "٣", "0", "9" * 12, "86400001"])
def test_a_deadline_in_a_header_is_whole_milliseconds(value: str) -> None:
    refused(deadline_ms=value)


@pytest.mark.parametrize("value", ["", "abc", "-1", "1e3", "nan", "inf", "0", "1.", "9" * 13])
def test_a_cost_in_a_header_is_a_plain_number(value: str) -> None:
    refused(max_cost=value)


@pytest.mark.parametrize(
    "value", ["quality", "quality=", "quality=-1", "quality=1,quality=1", "speed=1", "quality=0,cost=0", "quality=1;cost=2"]
)
def test_a_preference_in_a_header_names_each_once(value: str) -> None:
    refused(preference=value)


def test_what_a_request_may_cost_and_what_counts_is_read_in_both_places() -> None:
    body = {"max_cost": 0.5, "budget_tokens": 9, "preference": {"quality": 3, "cost": 1}, "reasoning": "off"}
    both = Options(max_cost=0.5, budget_tokens=9, preference=Preference(3.0, 1.0, 0.0), reasoning="off")

    assert asked(body) == both
    assert asked(body, max_cost=".25", preference="latency=1, quality=0.5", budget_tokens="4") == Options(
        max_cost=0.25, budget_tokens=4, preference=Preference(0.5, 0.0, 1.0), reasoning="off"
    )


def test_an_unknown_header_of_ours_is_named() -> None:
    error = refused(deadlin="5")

    assert (error.code, error.param) == ("caller_unknown_parameter", "x-trilemma-deadlin")


@settings(deadline=None)
@given(
    body=st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=5,
    )
)
def test_any_body_object_is_read_or_refused(body: Any) -> None:
    try:
        asked(body)
    except ApiError as error:
        assert error.status == 400
        json.loads(error.body())
