"""Votes on tool calls."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.answers.tool_calls import calls_key, message_key


def called(*calls: tuple[Any, Any]) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": f"call_{at}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for at, (name, arguments) in enumerate(calls)
        ],
    }


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a": 1, "b": "x"}', '{"b":"x","a":1.0}'),
        ('{"a": [1, 2]}', '{ "a" : [1,2.0] }'),
        ("", "{}"),
        (None, "{}"),
        ({"a": 1}, '{"a": 1}'),
        ('{"a": "\u00e9"}', '{"a": "\\u00e9"}'),
        ("{'a': 1}", "{'a': 1}"),
    ],
)
def test_the_same_arguments(one: Any, other: Any) -> None:
    assert message_key(called(("f", one))) == message_key(called(("f", other))) is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (called(("f", "{}")), called(("g", "{}"))),
        (called(("f", '{"a": 1}')), called(("f", '{"a": "1"}'))),
        (called(("f", '{"a": 1}')), called(("f", '{"a": true}'))),
        (called(("f", '{"a": 1}')), called(("f", '{"a": 1, "b": null}'))),
        (called(("f", '{"a": [1, 2]}')), called(("f", '{"a": [2, 1]}'))),
        (called(("f", "{}"), ("g", "{}")), called(("g", "{}"), ("f", "{}"))),
        (called(("f", "{}")), called(("f", "{}"), ("f", "{}"))),
        (called(("f", "{'a': 1}")), called(("f", "{'a':1}"))),
        (called(("f", "{'a': 1}")), called(("f", '{"a": 1}'))),
        (called(("f", '"no JSON"')), called(("f", "no JSON"))),
    ],
)
def test_other_calls(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert message_key(one) != message_key(other)


def test_the_older_form_is_the_same_call() -> None:
    older = {"role": "assistant", "content": "", "function_call": {"name": "f", "arguments": '{"a": 1}'}}
    assert message_key(older) == message_key(called(("f", '{"a":1}'))) == calls_key([("f", '{"a": 1.0}')])


def test_custom_tools_take_text() -> None:
    def custom(text: str) -> dict[str, Any]:
        return {"tool_calls": [{"type": "custom", "custom": {"name": "sql", "input": text}}]}

    assert message_key(custom("SELECT 1")) == message_key(custom("SELECT 1"))
    assert message_key(custom("1")) != message_key(custom("1.0"))


@pytest.mark.parametrize("message", [{}, {"tool_calls": None}, {"tool_calls": []}, {"function_call": None}, {"content": "4"}])
def test_no_calls(message: dict[str, Any]) -> None:
    assert message_key(message) is None
    assert calls_key([]) is None


@pytest.mark.parametrize("call", [None, 1, "f", {}, {"function": None}, {"function": {"name": 3, "arguments": 4}}, {"custom": {}}])
def test_what_is_no_call_is_a_vote_of_its_own(call: Any) -> None:
    key = message_key({"tool_calls": [call]})
    assert key is not None
    assert key != message_key(called(("f", "{}")))


def test_long_arguments_are_told_apart() -> None:
    texts = [f'{{"a": "{"x" * 100_000}{end}"}}' for end in "yz"]
    keys = [calls_key([("f", text)]) for text in texts]
    assert keys[0] != keys[1]
    assert all(key is not None and len(key.value) <= 200 for key in keys)


@given(st.lists(st.tuples(st.text(), st.text()), min_size=1, max_size=3))
def test_any_names_and_arguments(calls: list[tuple[str, str]]) -> None:
    assert calls_key(calls) == calls_key(list(calls)) is not None
    assert calls_key([*calls, ("f", "{}")]) != calls_key(calls)
