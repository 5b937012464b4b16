"""A finished completion as a stream."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.replay import events

USAGE = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}


def completion(*choices: dict[str, Any]) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 7, "model": "m", "choices": list(choices), "usage": USAGE}


def chunks(answer: dict[str, Any], usage: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    *found, end = events(answer, usage)
    assert end == b"data: [DONE]\n\n"
    assert all(each.startswith(b"data: {") and each.endswith(b"}\n\n") for each in found)
    return [orjson.loads(each[6:]) for each in found]


def gathered(found: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """By choice, as clients gather it: texts one after another, calls by their index, anything else as it came last."""
    made: dict[int, dict[str, Any]] = {}
    for chunk in found:
        for choice in chunk["choices"]:
            message = made.setdefault(choice["index"], {"content": None, "tool_calls": {}, "roles": [], "finish": []})
            delta = choice["delta"]
            if "role" in delta:
                message["roles"].append(delta["role"])
            if delta.get("content") is not None:
                message["content"] = (message["content"] or "") + delta["content"]
            for call in delta.get("tool_calls", ()):
                assert call["index"] not in message["tool_calls"], "whole, in one piece"
                message["tool_calls"][call["index"]] = {name: value for name, value in call.items() if name != "index"}
            if choice["finish_reason"] is not None:
                message["finish"].append(choice["finish_reason"])
    return made


@given(text=st.text(max_size=2_000))
def test_the_text_is_the_same_to_the_letter(text: str) -> None:
    found = chunks(completion({"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}))
    assert gathered(found)[0] == {"content": text, "tool_calls": {}, "roles": ["assistant"], "finish": ["stop"]}
    assert {(each["id"], each["created"], each["model"], each["object"]) for each in found} == {
        ("chatcmpl-1", 7, "m", "chat.completion.chunk")
    }
    assert not any("usage" in each for each in found)


def test_a_long_text_comes_in_pieces_that_end_with_words() -> None:
    text = "word " * 200 + "x" * 450
    found = chunks(completion({"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}))
    pieces = [each["choices"][0]["delta"]["content"] for each in found if each["choices"][0]["delta"].get("content")]
    assert [len(piece) for piece in pieces] == [200] * 7 + [50]


def test_calls_keep_their_ids_and_are_counted_in_their_message() -> None:
    calls = [{"id": f"call_{n}", "type": "function", "function": {"name": "f", "arguments": f'{{"n":{n}}}'}} for n in range(2)]
    answer = completion(
        {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "length"},
        {"index": 1, "message": {"role": "assistant", "content": None, "tool_calls": calls}, "finish_reason": "tool_calls"},
    )
    assert gathered(chunks(answer)) == {
        0: {"content": "x", "tool_calls": {}, "roles": ["assistant"], "finish": ["length"]},
        1: {"content": None, "tool_calls": {0: calls[0], 1: calls[1]}, "roles": ["assistant"], "finish": ["tool_calls"]},
    }


@pytest.mark.parametrize("message", [{"role": "assistant", "content": ""}, {"role": "assistant", "content": None}, {"content": ""}])
def test_an_answer_of_nothing_has_a_role_and_an_end(message: dict[str, Any]) -> None:
    found = chunks(completion({"index": 0, "message": message, "finish_reason": "stop"}))
    assert (gathered(found)[0]["roles"], gathered(found)[0]["finish"]) == (["assistant"], ["stop"])


def test_thinking_refusal_and_what_else_there_is_go_on() -> None:
    message = {"role": "assistant", "content": "4", "reasoning_content": "two and two", "refusal": None, "annotations": [{"a": 1}]}
    logprobs = {"content": [{"token": "4", "logprob": -0.1, "top_logprobs": []}]}
    answer = completion({"index": 0, "message": message, "logprobs": logprobs, "finish_reason": "stop", "stop_reason": 7})
    first, content, last = chunks(answer)
    assert first["choices"][0]["delta"] == {
        "role": "assistant",
        "content": "",
        "reasoning_content": "two and two",
        "annotations": [{"a": 1}],
    }
    assert content["choices"][0] == {"index": 0, "delta": {"content": "4"}, "logprobs": logprobs, "finish_reason": None}
    assert last["choices"][0] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop", "stop_reason": 7}


def test_what_an_engine_tells_of_the_whole_answer_stands_in_the_last_chunk() -> None:
    answer = completion({"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}) | {"timings": {"n": 1}}
    assert [each.get("timings") for each in chunks(answer)] == [None, None, {"n": 1}]


def test_usage_stands_in_a_chunk_of_its_own_before_the_end() -> None:
    found = chunks(completion({"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}), USAGE)
    assert [(each["choices"], each.get("usage")) for each in found][-1] == ([], USAGE)
    assert sum("usage" in each for each in found) == 1
