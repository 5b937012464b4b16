"""Whether an answer came to its end."""

from __future__ import annotations

import pytest

from policies.signals import SIGNALS, signals
from policies.signals.truncation import truncation
from policies.values.answer import Said, ToolCall, Wanted

CALL = (ToolCall("f", "{}"),)


@pytest.mark.parametrize(
    ("said", "limited", "value"),
    [
        (Said("Done.", finish="stop"), False, 1.0),
        (Said("Done.", finish="stop"), True, 1.0),
        (Said("", CALL, "tool_calls"), False, 1.0),
        (Said("", CALL, "stop"), False, 1.0),
        (Said("And then", finish="length"), False, 0.0),
        (Said("And then", finish="length"), True, None),
        (Said("<think>Hm, so</think>", finish="stop"), False, 0.0),
        (Said("<think>Hm, so", finish="stop"), True, 0.0),
        (Said("", finish="stop", thought=True), False, 0.0),
        (Said(" \n", finish="stop"), False, 0.0),
        (Said("", finish="stop", refused=True), False, 1.0),
        (Said("Done.", finish="content_filter"), False, None),
        (Said("Done."), False, None),
    ],
)
def test_by_the_reason_of_the_end(said: Said, limited: bool, value: float | None) -> None:
    assert truncation(Wanted(limited=limited), said) == value


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("<think>a</think>b", "b"),
        (" <think>a\n</think>\n\nb", "\n\nb"),
        ("a\n</think>\n\nb", "\n\nb"),
        ("<think>a", ""),
        ("Write `</think>` at its end.", "Write `</think>` at its end."),
        ("b <think>c</think>", "b <think>c</think>"),
        ("", ""),
    ],
)
def test_thoughts_are_no_part_of_what_is_said(text: str, spoken: str) -> None:
    assert Said(text).spoken == spoken


def test_several_choices_count_alike() -> None:
    """Those of which nothing can be said do not count."""
    choices = [Said("a", finish="stop"), Said("b", finish="length"), Said("c", finish="stop"), Said("d")]
    assert signals(["truncation", "schema"], Wanted(), choices) == {"truncation": pytest.approx(2 / 3)}


def test_each_signal_can_be_asked_for() -> None:
    json = Wanted({"type": "json_object"}, [{"type": "function", "function": {"name": "f"}}])
    assert signals(SIGNALS, json, [Said("{}", finish="stop")]) == {"schema": 1.0, "truncation": 1.0, "refusal": 1.0}
    assert signals(SIGNALS, json, [Said("", CALL, "stop")]) == {"tools": 1.0, "truncation": 1.0}
