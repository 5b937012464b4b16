"""What a candidate votes for."""

from __future__ import annotations

import pytest

from policies.answers.ballots import Ballot, ballot
from policies.answers.equivalence import Key
from policies.values.answer import Said, ToolCall

FOUR = Key("number", "4")


@pytest.mark.parametrize(
    ("said", "vote"),
    [
        (Said("The answer is 4.", finish="stop"), Ballot(FOUR, "4", "cued")),
        (Said("reason</think>4", finish="stop"), Ballot(FOUR, "4", "whole")),
        (Said("<think>The answer is 4. Or", finish="length"), Ballot(None, "", "cut")),
        (Said("So we begin with 4 and", finish="length"), Ballot(None, "", "cut")),
        (Said("The answer is 4", finish="length"), Ballot(None, "", "cut")),
        (Said(r"\boxed{4} is what", finish="length"), Ballot(FOUR, "4", "boxed")),
        (Said("", finish="length", thought=True), Ballot(None, "", "cut")),
        (Said("", finish="stop"), Ballot(None, "", "none")),
        (Said("4", finish="content_filter"), Ballot(None, "", "refused")),
        (Said("", finish="stop", refused=True), Ballot(None, "", "refused")),
        (Said("4", (ToolCall("f", '{"a": 1}'),), "length"), Ballot(None, "", "cut")),
    ],
)
def test_ballots(said: Said, vote: Ballot) -> None:
    assert ballot(said) == vote


def test_tools_are_the_answer() -> None:
    one = ballot(Said("Let me see.", (ToolCall("f", '{"a": 1, "b": 2}'),), "tool_calls"))
    other = ballot(Said("", (ToolCall("f", '{"b":2.0,"a":1}'),), "stop"))
    assert one == other
    assert one.how == "tool_calls"
    assert one.key is not None


def test_thoughts_that_the_prompt_has_opened() -> None:
    assert ballot(Said("It may be 4.", finish="stop"), opened=True).key is None
    assert ballot(Said("It may be 3.</think>4", finish="stop"), opened=True).key == FOUR
    assert ballot(Said("4", finish="stop", thought=True), opened=True).key == FOUR
