from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.wire.usage import Rates, Usage, estimated, parse_usage, read_answer

FUZZ = settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
RATES = Rates(input=1.0, cached_input=0.1, output=2.0)


def usage(**fields: Any) -> Usage | None:
    return parse_usage(json.dumps(fields).encode())


def test_cached_tokens_are_paid_once() -> None:
    read = usage(prompt_tokens=1000, completion_tokens=10, prompt_tokens_details={"cached_tokens": 900, "audio_tokens": 3})

    assert read == Usage(prompt=1000, cached=900, completion=10)
    # 100 * 1.0 + 900 * 0.1 + 10 * 2.0 = 210 per million
    assert RATES.cost(read) == pytest.approx(210e-6, rel=1e-12)


@pytest.mark.parametrize(
    ("tokens", "usd"),
    [
        (Usage(), 0.0),
        (Usage(prompt=1_000_000), 1.0),
        (Usage(prompt=1_000_000, cached=1_000_000), 0.1),
        (Usage(completion=500_000), 1.0),
        (Usage(prompt=20, completion=996), 2012e-6),  # 20 * 1 + 996 * 2
        (Usage(prompt=5, cached=9), 0.5e-6),  # never more cached than there are
    ],
)
def test_costs_by_hand(tokens: Usage, usd: float) -> None:
    assert RATES.cost(tokens) == pytest.approx(usd, rel=1e-12)


def test_no_price_no_cost() -> None:
    assert Rates().cost(Usage(prompt=10, cached=5, completion=10)) == 0.0


@FUZZ
@given(prompt=st.integers(0, 10**9), cached=st.integers(0, 10**9), completion=st.integers(0, 10**9))
def test_a_cost_lies_between_all_cached_and_none(prompt: int, cached: int, completion: int) -> None:
    cost = RATES.cost(Usage(prompt=prompt, cached=cached, completion=completion))

    assert RATES.cost(Usage(prompt=prompt, cached=prompt, completion=completion)) <= cost * (1 + 1e-12)
    assert cost <= RATES.cost(Usage(prompt=prompt, completion=completion)) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"prompt_tokens": 20, "completion_tokens": 424, "total_tokens": 1016}, Usage(prompt=20, completion=996)),
        ({"prompt_tokens": 20, "completion_tokens": 424, "total_tokens": 444}, Usage(prompt=20, completion=424)),
        ({"prompt_tokens": 20, "completion_tokens": 424, "total_tokens": 1}, Usage(prompt=20, completion=424)),
        ({"prompt_tokens": 8, "total_tokens": 8}, Usage(prompt=8)),  # embeddings
        ({"prompt_tokens": 8, "completion_tokens": None}, Usage(prompt=8)),
        ({"completion_tokens": 7}, Usage(completion=7)),
        ({"completion_tokens": 7, "total_tokens": 19}, Usage(prompt=12, completion=7)),
        ({"prompt_tokens": "20", "completion_tokens": "7"}, Usage(prompt=20, completion=7)),
        ({"prompt_tokens": 20.0, "completion_tokens": 7.0}, Usage(prompt=20, completion=7)),
        ({"input_tokens": 20, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 4}}, Usage(prompt=20, cached=4, completion=7)),
        (
            {"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 9}},
            Usage(prompt=5, cached=5, completion=1),
        ),
        ({"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": None}, Usage(prompt=5, completion=1)),
        ({"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": [9]}, Usage(prompt=5, completion=1)),
        ({"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": "x"}}, Usage(prompt=5, completion=1)),
        # Messages counts what was in the cache beside its prompt.
        ({"input_tokens": 20, "output_tokens": 7, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 3}, Usage(123, 100, 7)),
        ({"input_tokens": 20, "output_tokens": 7, "cache_read_input_tokens": 0}, Usage(20, 0, 7)),
        ({"input_tokens": 20, "output_tokens": 7, "cache_read_input_tokens": None}, Usage(20, 0, 7)),
        ({"prompt_tokens": 5, "completion_tokens": -1}, Usage(prompt=5)),
        ({"prompt_tokens": True, "completion_tokens": 2}, Usage(completion=2)),
        ({"prompt_tokens": 1e15, "completion_tokens": 2}, Usage(completion=2)),
        ({}, None),
        ({"total_tokens": 5}, None),
        ({"prompt_tokens": "many", "completion_tokens": "٣"}, None),
        ({"prompt_tokens": [1], "completion_tokens": {"x": 1}}, None),
    ],
)
def test_usage_as_backends_report_it(fields: dict[str, Any], expected: Usage | None) -> None:
    assert usage(**fields) == expected


@pytest.mark.parametrize("raw", [b"", b"null", b"[]", b'"5"', b"5", b"{", b'{"prompt_tokens":', b"\xff"])
def test_what_is_no_usage_is_unknown(raw: bytes) -> None:
    assert parse_usage(raw) is None


@FUZZ
@given(
    raw=st.one_of(
        st.binary(max_size=40),
        st.dictionaries(
            st.sampled_from(["prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "prompt_tokens_details"]),
            st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4), st.just({"cached_tokens": 3})),
        ).map(lambda fields: json.dumps(fields).encode()),
    )
)
def test_no_usage_is_an_error_or_makes_money(raw: bytes) -> None:
    read = parse_usage(raw)

    assert read is None or (0 <= read.cached <= read.prompt and read.completion >= 0)
    assert read is None or RATES.cost(read) >= 0
    answer = read_answer(b'{"usage":' + raw + b"}")
    assert answer is None or answer.usage == read


@pytest.mark.parametrize(
    ("data", "is_error", "is_summary"),
    [
        (b'{"choices":[],"usage":{"prompt_tokens":1}}', False, True),
        (b'{"choices": [ ] ,"usage": {}}', False, True),
        (b'{"usage":{"prompt_tokens":1}}', False, True),
        (b'{"choices":null,"usage":{"prompt_tokens":1}}', False, True),
        (b'{"choices":[{"index":0}],"usage":{"prompt_tokens":1}}', False, False),
        (b'{"choices":[],"usage":null}', False, False),
        (b'{"choices":[]}', False, False),
        (b'{"error":{"message":"x"}}', True, False),
        (b'{"error":"x"}', True, False),
        (b'{"error":{"message":"x"},"usage":{"prompt_tokens":1}}', True, False),
        (b'{"error":null,"choices":[{}]}', False, False),
        (b'{"error":{"message":"x"},"choices":[{}]}', False, False),
        (b"{}", False, False),
    ],
)
def test_what_an_answer_says(data: bytes, is_error: bool, is_summary: bool) -> None:
    answer = read_answer(data)

    assert answer is not None
    assert (answer.is_error, answer.is_summary) == (is_error, is_summary)


@pytest.mark.parametrize(
    ("data", "usage", "begun"),
    [
        (b'{"type":"response.completed","response":{"id":"r","usage":{"input_tokens":9,"output_tokens":4}}}', Usage(9, 0, 4), None),
        (b'{"type":"response.created","response":{"usage":null}}', None, None),
        (b'{"type":"response.created","response":{}}', None, None),
        (b'{"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":1}}}', None, Usage(9, 0, 1)),
        (b'{"type":"message_delta","delta":{},"usage":{"output_tokens":4}}', Usage(0, 0, 4), None),
        (b'{"message":"usage","usage":{"prompt_tokens":1}}', Usage(1), None),
        (b'{"message":"usage"}', None, None),
        (b'{"message":{"usage":{"prompt_tokens":1}},"choices":[]}', None, None),
        (b'{"response":{"usage":"much"},"message":[{"usage":{"prompt_tokens":1}}]}', None, None),
        (b'{"response":{"usage":' + b"[" * 10_000 + b"]" * 10_000 + b"}}", None, None),
    ],
)
def test_where_other_formats_tell(data: bytes, usage: Usage | None, begun: Usage | None) -> None:
    """Responses in the response that an event holds, Messages of the prompt when the answer begins and of the answer when it ends."""
    answer = read_answer(data)

    assert (usage, begun) == (None, None) if answer is None else (answer.usage, answer.begun) == (usage, begun)


@pytest.mark.parametrize(
    ("prompt_bytes", "events", "begun", "guess"),
    [
        (0, 1, None, Usage(0, 0, 1)),
        (1, 3, None, Usage(1, 0, 3)),
        (400, 20, None, Usage(100, 0, 20)),
        (401, 20, None, Usage(101, 0, 20)),
        (400, 20, Usage(7, 5, 1), Usage(7, 5, 20)),
    ],
)
def test_a_guess(prompt_bytes: int, events: int, begun: Usage | None, guess: Usage) -> None:
    """An event is a token, and four bytes of prompt are one, unless the backend told of the prompt."""
    assert estimated(prompt_bytes, events, begun) == guess


@pytest.mark.parametrize("data", [b"", b"[DONE]", b"[]", b"null", b'{"usage":', b"<html>", b'{"x":' + b"[" * 10_000 + b"]" * 10_000 + b"}"])
def test_what_is_no_answer(data: bytes) -> None:
    assert read_answer(data) is None


_COUNTS = st.none() | st.integers(0, 10**16)


@given(
    prompt=_COUNTS,
    completion=_COUNTS,
    total=_COUNTS,
    cached=_COUNTS,
    read=_COUNTS,
    details=st.sampled_from(["prompt", "input", None]),
    null=st.booleans(),
)
def test_a_count_is_the_same_as_a_number_and_as_a_string(
    prompt: int | None, completion: int | None, total: int | None, cached: int | None, read: int | None, details: str | None, null: bool
) -> None:
    """Numbers alone are read in one step; a string among them has all of them read one by one."""
    told: dict[str, object] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": total,
        "cache_read_input_tokens": read,
    }
    told = {name: value for name, value in told.items() if value is not None or null}
    inner = {} if cached is None else {"cached_tokens": cached}
    if details is not None:
        told[f"{details}_tokens_details"] = inner or None
    strings = {name: str(value) if isinstance(value, int) else value for name, value in told.items()}
    assert parse_usage(json.dumps(told).encode()) == parse_usage(json.dumps(strings).encode())
