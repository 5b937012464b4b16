"""What a judge's reply comes to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.judging.verdicts import choice, grade
from policies.values.answer import Said


@pytest.mark.parametrize(
    ("reply", "chosen"),
    [
        ("Judgment: 2", 2),
        ("The first is wrong.\n\n**Judgment:** 4", 4),
        ("Judgement: 1.\n", 1),
        ("So my final Judgment: 3", 3),
        ('Judgment: "2"', 2),
        ("Judgment: \u201c2\u201d", 2),
        ("Judgment: [2]", 2),
        ("Judgment: **2**", 2),
        ("Judgment - 2", 2),
        ("Judgment: Solution 2", 2),
        ("Judgment: answer #3", 3),
        ("Judgment: $\\boxed{2}$", 2),
        ("Judgment: \\boxed{2}", 2),
        ("Judgment:\n2", 2),
        ("Judgment: 2/4", 2),
        ("Judgment: 2 of 4", 2),
        ("### Judgment: 2", 2),
        ('{"judgment": 2}', 2),
        ("Judgment: 1\nNo, the second is better.\nJudgment: 2", 2),
        ("2", 2),
        ('"2"', 2),
        ("2.", 2),
        ("Answer 3", 3),
        ("<think>Judgment: 1</think>Judgment: 3", 3),
        ("The first looks right. Judgment: 1\n</think>\n\nJudgment: 3", 3),
        ("[THINK]Judgment: 1[/THINK]Judgment: 3", 3),
        ('<think>[0.2,0.8]</think>{"best":2}', 2),
        ("Both speak of `<think>`.\nJudgment: 2", 2),
        # Nothing that can be relied on.
        ("Judgment: 7", None),
        ("Judgment: 5", None),
        ("Judgment: 0", None),
        ("Judgment: -1", None),
        ("Judgment: \u22121", None),
        ("Judgment: Solution -1", None),
        ("Judgment: 2.5", None),
        ("Judgment: .5", None),
        ("Judgment: 2 or 3", None),
        ("Judgment: 2, 3", None),
        ("Judgment: 2 and 3", None),
        ("Judgment: 2-3", None),
        ("Judgment: not 2", None),
        ("Judgment: none", None),
        ("Judgment: N", None),
        ("Judgment: 2/5", None),
        ("Judgment: 1" + "0" * 9_000, None),
        ("Judgment: 2\nThat is my last word, or not.\nJudgment: none", None),
        ("Judgment: 2\nJudgment: 7", None),
        ("7", None),
        ("0", None),
        ("-1", None),
        ("none", None),
        ("2 or 3", None),
        ("There are 2 good ones.", None),
        ("", None),
        ("  \n", None),
        ("<think>Judgment: 2", None),
        ("<think>2</think>", None),
        ("<think>The second, 2.</think>I cannot decide.", None),
    ],
)
def test_the_choice_among_four(reply: str, chosen: int | None) -> None:
    assert choice(Said(reply, finish="stop"), 4) == chosen


def test_a_reply_that_was_cut_has_no_last_word() -> None:
    """It may have been on the way to 12, or still have been thinking."""
    assert choice(Said("Judgment: 1", finish="length"), 16) is None
    assert choice(Said("Judgment: 1"), 16) == 1
    assert grade(Said("Verdict: 1", finish="length")) is None


def test_the_last_of_many() -> None:
    assert choice(Said("Judgment: 16"), 16) == 16
    assert choice(Said("Judgment: 17"), 16) is None


@pytest.mark.parametrize("reply", ["judgment:" * 20_000, "Judgment: " + "*" * 100_000, "judgment " * 20_000, "2" * 100_000, "`" * 100_000])
def test_no_reply_takes_long(reply: str) -> None:
    assert choice(Said(reply), 4) is None


@pytest.mark.parametrize(
    ("reply", "mark"),
    [
        ("It is right.\nVerdict: 5", 5),
        ("[THINK]Verdict: 1[/THINK]Verdict: 4", 4),
        ("Verdict: 6", None),
        ("Verdict: 0", None),
        ("[THINK]Verdict: 1", None),
        ("", None),
    ],
)
def test_the_grade(reply: str, mark: int | None) -> None:
    assert grade(Said(reply, finish="stop")) == mark


PIECES = [
    "Judgment",
    ":",
    " ",
    "-",
    "1",
    "2",
    "9",
    "10",
    "\n",
    "<think>",
    "</think>",
    '"',
    "**",
    "or",
    "\\boxed{",
    "}",
    "none",
    "\u0662",
    "\u00b2",
    ".",
]


@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=12).map("".join)), st.integers(1, 16))
def test_whatever_it_says_it_is_one_of_those_shown_or_nothing(reply: str, shown: int) -> None:
    found = choice(Said(reply), shown)
    assert found is None or 1 <= found <= shown
    assert choice(Said(f"{reply}\n\nJudgment: none"), shown) is None
    assert choice(Said(f"<think>{reply.replace('</think>', '')}"), shown) is None


@given(st.text(alphabet="abc 0123456789.,\n"), st.integers(1, 16))
def test_the_last_line_counts(reasons: str, number: int) -> None:
    assert choice(Said(f"{reasons}\nJudgment: {number}"), 16) == number
