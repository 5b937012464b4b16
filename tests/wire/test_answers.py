"""Relayed answers, read after the fact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.wire.answers import answer_of, text_of
from policies.values.answer import Said, ToolCall

SAMPLES = Path(__file__).parents[1] / "samples"


def body(*choices: dict[str, Any]) -> bytes:
    return json.dumps({"id": "x", "object": "chat.completion", "choices": choices, "usage": {"prompt_tokens": 1}}).encode()


def stream(*chunks: list[dict[str, Any]], end: str = "\n\n") -> bytes:
    events = [": ping", *(f"data: {json.dumps({'choices': choices})}" for choices in chunks), "data: [DONE]"]
    return "".join(event + end for event in events).encode()


def delta(index: int = 0, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"index": index, "delta": fields, "finish_reason": finish}


def test_a_chat() -> None:
    said = answer_of(body({"index": 0, "message": {"role": "assistant", "content": "Paris."}, "finish_reason": "stop", "logprobs": None}))
    assert said == (Said("Paris.", finish="stop"),)


def test_a_completion_of_several_choices_in_any_order() -> None:
    said = answer_of(body({"index": 1, "text": "b", "finish_reason": "length"}, {"index": 0, "text": "a", "finish_reason": "stop"}))
    assert said == (Said("a", finish="stop"), Said("b", finish="length"))


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n", "\r\r"])
def test_a_stream(end: str) -> None:
    data = stream(
        [delta(role="assistant")], [delta(content="Pa"), delta(1, content="x")], [delta(content="ris")], [delta(finish="stop")], [], end=end
    )
    assert answer_of(data) == (Said("Paris", finish="stop"), Said("x"))


def test_calls_of_tools_in_pieces() -> None:
    def call(index: int, **function: str) -> dict[str, Any]:
        return delta(tool_calls=[{"index": index, "function": function}])

    data = stream(
        [call(0, name="weather", arguments="")], [call(0, arguments='{"city":')], [call(1, name="now")], [call(0, arguments=' "Oslo"}')]
    )
    assert answer_of(data) == (Said("", (ToolCall("weather", '{"city": "Oslo"}'), ToolCall("now", ""))),)


def test_calls_of_tools_at_once() -> None:
    calls = [
        {"id": "1", "type": "function", "function": {"name": "a", "arguments": "{}"}},
        {"id": "2", "type": "function", "function": {"name": "b", "arguments": {"x": 1}}},
        {"id": "3", "type": "custom", "custom": {"name": "c", "input": "ls"}},
    ]
    said = answer_of(body({"message": {"content": None, "tool_calls": calls}, "finish_reason": "tool_calls"}))
    assert said is not None
    assert said[0].tool_calls == (ToolCall("a", "{}"), ToolCall("b", '{"x":1}'), ToolCall("c", "ls"))
    assert text_of(said) == 'a({})\nb({"x":1})\nc(ls)'


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thoughts_apart(name: str) -> None:
    said = answer_of(body({"message": {"content": "", name: "Hm."}, "finish_reason": "stop"}))
    assert said == (Said("", finish="stop", thought=True),)
    assert answer_of(body({"message": {"content": "a", name: None}})) == (Said("a"),)


def test_refusals_and_parts() -> None:
    said = answer_of(body({"message": {"content": [{"type": "text", "text": "a"}, {"type": "image"}, {"text": "b"}], "refusal": "No."}}))
    assert said == (Said("ab", refused=True),)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"Paris",
        b'{"choices": []}',
        b'{"choices": 3}',
        b'{"choices": [{"message": {"content": 3}}]}',
        b'{"error": {"message": "no"}}',
        b'data: {"choices": [{"delta": {"content": "a"}}]}\n\ndata: {"choi',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_what_is_no_answer(data: bytes) -> None:
    """A stream that breaks off within an event is one up to there; it was no success, and is not looked at."""
    assert answer_of(data) in (None, (Said("a"),))


def test_more_choices_than_anybody_asks_for() -> None:
    assert answer_of(stream([delta(n, content="a") for n in range(1_000)])) is None


def test_recorded_streams() -> None:
    """Of engines, as they came."""
    files = sorted(SAMPLES.rglob("*stream*.txt"))
    assert len(files) >= 4
    for file in files:
        said = answer_of(file.read_bytes())
        assert said, file
        assert all(each.finish in ("stop", "length", "tool_calls") for each in said), file
