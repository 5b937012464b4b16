"""What an answer says in the end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from policies.answers.equivalence import Key
from policies.answers.extraction import TAIL, extract
from policies.values.thinking import spoken

LONG = "We add one to it. " * 400


def says(text: str, **how: Any) -> str | None:
    """Kind and value."""
    found = extract(text, **how)
    return None if found is None else f"{found.key.kind} {found.key.value}"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        # boxes
        (r"So \boxed{\frac{1}{2}}.", "number 1/2"),
        (r"So \boxed{\frac{1}{3}}.", "number 1/3"),
        (r"\[ \boxed{42} \]", "number 42"),
        (r"\boxed{1}, no, \boxed{2}", "number 2"),
        (r"It is 1 and so \boxed{1} and \boxed{1}", "number 1"),
        (r"\boxed{a_{1}^{2}}", "expression a_{1}^{2}"),
        (r"\boxed{\{1, 2\}}", "list {1, 2}"),
        (r"\fbox{7}", "number 7"),
        (r"\boxed{\text{Paris}}", "text paris"),
        (r"\boxed{\text{(B)}}", "letter B"),
        (r"<think>\boxed{3}</think>\boxed{4}", "number 4"),
        (r"<think>\boxed{3}</think>The answer is 4.", "number 4"),
        (r"**Final Answer:** $\boxed{10}$", "number 10"),
        (r"Write it as \boxed{}. Answer: 5", "number 5"),
        (r"\boxed{5} The answer is what it is.", "number 5"),
        (r"Answer: 4. In short, \boxed{x + 1}", "expression x+1"),
        # cues
        ("The answer is B because a car has wheels", "letter B"),
        ("Answer: **D**", "letter D"),
        ("Antwort: C", "letter C"),
        ("Answer seems to be A.\nAnswer: A", "letter A"),
        ("(A) is wrong; final: d", "letter D"),
        (r"x \boxed{\Delta E} Answer: D", "letter D"),
        ("The answer is a car.", "text car"),
        ("The answer is I think 4", "text i think 4"),
        ("The answer is 18 apples. I hope that helps!", "number 18"),
        ("Answer: 1\nWait, no.\nAnswer: 2", "number 2"),
        ("The answer is not 3. The answer is 4. The answer is not 5.", "number 4"),
        ("So\n#### 42", "number 42"),
        ("The answer is 1,234.", "doubtful 1234"),
        ("The answer is $1,234.50.", "number 2469/2"),
        ("The answer is 25%.", "number 1/4"),
        ("The answer is 1331 and 1728.", "list 1331, 1728"),
        (LONG + "The answer is 7.", "number 7"),
        # lines
        ("We add.\n\n**B**", "letter B"),
        ("We add.\n\n**Paris**", "text paris"),
        ("We add.\n\nB", "letter B"),
        ("We add.\n\n= 12", "number 12"),
        ("We add.\n7 + 5 = 12", "number 12"),
        ("We add.\nSo Tom has 18 apples left.", "number 18"),
        ("We add.\nTherefore, the capital is Paris.", "text paris"),
        ("7 + 5 = 12.", "number 12"),
        ("The sum of 7 and 5 is 12.", "number 12"),
        ("The capital of France is Paris.", "text paris"),
        ('The capital of France is "Paris".', "text paris"),
        ("The sentiment is positive, as it says so.", "text positive"),
        ("Sentiment: Positive", "text positive"),
        ("Output: 5", "number 5"),
        ("Yes, because it is green.", "text yes"),
        ("No. It is green.\n\nThat is all.", "text no"),
        # whole replies
        ("12", "number 12"),
        ("-3/4", "number -3/4"),
        ("**12**", "number 12"),
        ("a", "letter A"),
        ("(c)", "letter C"),
        ("B) Paris", "letter B"),
        ("Paris", "text paris"),
        ("Positive.", "text positive"),
        ("Paris is the capital of France.", "text paris is the capital of france"),
        ('{"b": 1.0,\n "a": 2}', 'json {"a":2,"b":1}'),
        ('```json\n{"a": 2}\n```', 'json {"a":2}'),
    ],
)
def test_what_is_said(text: str, answer: str) -> None:
    assert says(text) == answer


@pytest.mark.parametrize(
    "text",
    [
        *("", " \n", "<think>It is 4", "<think>It is 4</think>", "...", "Answer:"),
        r"Thus \boxed{1/2",
        r"The answer is 4, so \boxed{4",
        "We add.\n\nI hope that helps!",
        "The first of them is red.\nThe second one is blue.",
        LONG,
    ],
)
def test_nothing_is_said(text: str) -> None:
    assert extract(text) is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("First we see that 5 and", None),
        ("<think>The answer is 4. But", None),
        ("The answer is 12", None),
        ("The answer is 12.", None),
        ("12", None),
        ("We add.\n**B**", None),
        ('{"a": 1}', None),
        ("The answer is 12. We see", "number 12"),
        (r"So \boxed{12} is", "number 12"),
        (r"So \boxed{12", None),
        (r"So \boxed{12}, or \boxed{13", "number 12"),
    ],
)
def test_of_an_answer_that_was_cut_only_what_is_complete(text: str, answer: str | None) -> None:
    assert says(text, cut=True) == answer


def test_thoughts_that_the_prompt_has_opened() -> None:
    assert extract("It may be that the answer is 4. Or", opened=True) is None
    assert says("The answer is 3.</think>The answer is 4.", opened=True) == "number 4"


def test_numbers_where_numbers_are_wanted() -> None:
    assert says("Tom had 12, and Ann has 18 apples left.", wanted="number") == "number 18"
    assert says("It costs $1,234.50 in all.\nThank you!", wanted="number") == "number 2469/2"
    assert says("The answer is red. It costs 5.", wanted="number") == "number 5"
    assert extract("It is red.", "number") is None


def test_letters_where_letters_are_wanted() -> None:
    assert says("B", wanted="letter", options="AB") == "letter B"
    assert extract("C", "letter", "AB") is None
    assert extract("A cat sat on the mat.", "letter", "AB") is None
    assert says("The answer is C. No: the answer is B.", wanted="letter", options="AB") == "letter B"
    assert says(r"\boxed{B} or \boxed{x}", wanted="letter", options="AB") == "letter B"


def test_texts_where_texts_are_wanted() -> None:
    assert says("We think.\nThe red one", wanted="text") == "text red one"
    assert says("The answer is A.", wanted="text") == "text a"


def test_where_it_was_found() -> None:
    texts = {"boxed": r"\boxed{4}", "cued": "The answer is 4.", "line": "So we have 4 of them.", "whole": "4"}
    assert {how: found.how for how, text in texts.items() if (found := extract(text))} == {how: how for how in texts}
    assert extract("The answer is **18 apples**.") == ("18 apples", Key("number", "18"), "cued")


PIECES = st.sampled_from(
    [
        *(
            "The answer is ",
            "Answer: ",
            "\\boxed{",
            "}",
            "{",
            "4",
            "1,234",
            "B",
            " and ",
            "\n",
            " ",
            ". ",
            "<think>",
            "</think>",
            "#### ",
            "**",
        ),
        *(
            "$",
            "\\frac{1}{2}",
            "\\{",
            "So ",
            " = ",
            "Paris",
            "`",
            "\u22123",
            "\u00bd",
            "\ufdfa",
            "\u0130",
            "because ",
            "Yes, ",
            "%",
            "(",
            ")",
        ),
    ]
)
ANSWERS = st.lists(PIECES, max_size=14).map("".join) | st.text(max_size=40)
WANTED = st.sampled_from(["any", "number", "letter", "text"])


@given(ANSWERS, WANTED, st.booleans(), st.booleans(), st.text(alphabet=" \n\t\r\u00a0\u2003", max_size=6))
def test_white_space_at_the_end_changes_nothing(text: str, wanted: Any, cut: bool, opened: bool, space: str) -> None:
    assert extract(text, wanted, cut=cut, opened=opened) == extract(text + space, wanted, cut=cut, opened=opened)


@given(ANSWERS, WANTED)
def test_thoughts_before_it_change_nothing(text: str, wanted: Any) -> None:
    assume(spoken(text) == text)
    assert extract(f"<think>Is it \\boxed{{3}}?</think>{text}", wanted) == extract(text, wanted)


@given(st.lists(PIECES, min_size=1, max_size=10).map("".join), st.text(alphabet="ab. {}", max_size=20))
def test_only_the_end_is_looked_at(end: str, before: str) -> None:
    tail = ("x " * TAIL + "z" + end.rstrip().replace("think", ""))[-TAIL:]
    assert extract(f"a{before}{tail}") == extract(f"b{tail}")


M = 1_000_000
ADVERSARIAL = [
    *(
        "{",
        "\\boxed{",
        "answer ",
        "answer is ",
        "the answer is not ",
        "1",
        "$1",
        "<think>",
        "</think>",
        "`</think>",
        "<",
        "\n<think>x</think>",
    ),
    *(
        ". ",
        "1. ",
        " is ",
        "^ ",
        "\\text{",
        "1,",
        "*",
        "#### ",
        "\\frac{",
        "1/",
        "\ufdfa",
        '{"a":',
        "(",
        "- ",
        "a-",
        "\n",
        " ",
        "[THINK]",
        "is correct ",
    ),
    *("\u0130", "<answer>", "\\", "final:", "=", "Yes,", "<|channel|>", "a" + " " * 99, "'", "I. "),
]


@pytest.mark.parametrize("piece", ADVERSARIAL)
def test_a_megabyte_of_anything_is_read(piece: str) -> None:
    """It would not come to an end if it took more than linear time."""
    for wanted in ("any", "number"):
        extract(piece * (M // len(piece)), wanted)
        extract("4" + piece * (M // len(piece)) + "x}", wanted)
        extract("The answer is " + piece * (TAIL // len(piece) - 20) + "x", wanted)
        extract("\\boxed{" + piece * (TAIL // len(piece) - 20) + "}", wanted)


def steps(act: Callable[[], object]) -> int:
    """How many lines of Python that takes."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("piece", ADVERSARIAL)
def test_twice_the_length_is_at_most_twice_the_steps(piece: str) -> None:
    one, two = (steps(partial(extract, piece * (size // len(piece)))) for size in (20_000, 40_000))
    assert two <= 2 * one + 200
