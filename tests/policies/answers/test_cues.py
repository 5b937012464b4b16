"""Cues: where an answer says that it gives the answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.answers.cues import cued, last_sentence


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("The answer is 4.", "4"),
        ("The answer is: 4", "4"),
        ("the final answer is 4!", "4"),
        ("Answer: 4", "4"),
        ("**Answer:** 4", "4"),
        ("**Answer**: 4", "4"),
        ("**Answer: 4**", "4"),
        ("Answer = 4", "4"),
        ("Final: 4", "4"),
        ("Final Result: 4", "4"),
        ("The answers are 4 and 5.", "4 and 5"),
        ("The answer to the question is 4.", "4"),
        ("The answer should be 4.", "4"),
        ("The answer is therefore 4.", "4"),
        ("The answer is option B.", "B"),
        ("The correct option is B.", "B"),
        ("Option B is correct.", "B"),
        ("(B) is the correct answer.", "B"),
        ("**B** is the best answer", "B"),
        ("The answer is B because a car has wheels.", "B"),
        ("The answer is 4, so we are done.", "4"),
        ("The answer is 4 (four).", "4"),
        ("The answer is 4. I hope that helps.", "4"),
        ("The answer is 3.5 metres. Done.", "3.5 metres"),
        ("The answer is U.S. Virgin Islands.", "U.S. Virgin Islands"),
        ("The answer is red, blue, and green.", "red, blue, and green"),
        ("### Final Answer\n\n4", "4"),
        ("The final answer is:\n\\[\n4\n\\]", "4"),
        ("<answer> 4 </answer>", "4"),
        ("#### 4", "4"),
        ("so\n#### -1,234", "-1,234"),
        ("Antwort: 4", "4"),
        ("Die Antwort lautet 4.", "4"),
        ("La r\u00e9ponse est 4.", "4"),
        ("La respuesta es 4.", "4"),
        ("\u041e\u0442\u0432\u0435\u0442: 4", "4"),
        ("\u7b54\u6848\u662f 4\u3002", "4"),
        ("\u7b54\u6848: 4", "4"),
    ],
)
def test_what_is_given(text: str, value: str) -> None:
    assert next(cued(text, 4)).text == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Four.",
        "I answered 4.",
        "#### Step 1: add",
        "a #### 4",
        "The answer is not 4.",
        "Answer:",
        "Is B correct?",
        "Finally: 4",
        "It is correct.",
    ],
)
def test_nothing_is_given(text: str) -> None:
    assert list(cued(text, 4)) == []


def test_the_last_comes_first() -> None:
    assert [cue.text for cue in cued("Answer: 1\nFinal: 2\nThe answer is 3.\n#### 4", 4)] == ["4", "3", "2", "1"]


def test_no_more_than_the_last_of_each_word() -> None:
    assert [cue.text for cue in cued("Answer: 1\n" * 5 + "Answer: 2\n", 2)] == ["2", "1"]


@pytest.mark.parametrize(
    ("text", "ended"),
    [
        ("The answer is 12", False),
        ("The answer is 12.", False),
        ("The answer is **12**", False),
        ("The answer is 12 \n", False),
        ("The answer is 12. So", True),
        ("The answer is 12\nSo", True),
        ("<answer>12</answer>", True),
    ],
)
def test_whether_it_may_go_on(text: str, ended: bool) -> None:
    assert next(cued(text, 4)).ended == ended


def test_the_last_sentence() -> None:
    line = "It is 3.5 m. That is it!"
    assert line[last_sentence(line) :] == "That is it!"
    assert last_sentence("One. ") == 0
    assert last_sentence("") == 0


@given(
    st.lists(
        st.sampled_from(["answer", " is ", ":", "\n", "####", " 4", "B", "is correct", ". ", "\u0130", "<", ">", "</answer>", "not "]),
        max_size=12,
    )
)
def test_any_text_is_read(pieces: list[str]) -> None:
    text = "".join(pieces)
    found = list(cued(text, 4))
    assert all(0 <= cue.at <= len(text) and cue.text for cue in found)
