"""The features that are counted, by hand."""

from __future__ import annotations

from math import log1p

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.encoders.shape import FEATURES, Shape, counted, user_chars, user_words
from policies.values.prompt import Prompt, Turn


def features(*turns: Turn | str, **said: object) -> dict[str, float]:
    prompt = Prompt(turns=tuple(Turn("user", each) if isinstance(each, str) else each for each in turns), **said)  # type: ignore[arg-type]
    return dict(zip(FEATURES, Shape().encode(prompt).tolist(), strict=True))


QUESTION = """Which of these is not a prime?
A. 7
B. 9
C. none of them
(D) the number 2+2=4
"""


def test_a_question_with_options_is_counted() -> None:
    counts = counted(QUESTION)

    assert (counts.words, counts.distinct) == (19, 18)  # "of" is there twice
    assert (counts.digits, counts.numbers) == (5, 5)
    assert (counts.lines, counts.first_line) == (6, 30)
    assert (counts.options, counts.options_with_digits) == (4, 3)
    assert (counts.questions, counts.lines_that_ask, counts.question_words) == (1, 1, 1)
    assert counts.negations == 2  # "not" and "none"
    assert counts.maths == 2
    assert counts.capitals == 5


@pytest.mark.parametrize(
    ("text", "name", "number"),
    [
        ("one two  three\nfour", "words", 4),
        ("One one TWO two two", "distinct", 2),
        ("12 and 3.5 or 7th", "numbers", 4),
        ("x = a*b + c/d", "maths", 4),
        ("∑ x ≤ 3 √ 4", "maths", 3),
        ("```py\nf()\n```", "fences", 2),
        ("def f():\n    return 1\n\treturn 2", "indented", 2),
        ("- one\n* two\n3. three\n4) four\nfive - six", "items", 4),
        ("(a) one (b) two", "options", 2),
        ("which? (a) one (b) two", "options", 2),
        ("A) one\nB) two", "options", 2),
        ("I saw A. He left", "options", 0),
        ("don't do it, it is not so, no never ", "negations", 4),
        ("see https://a.example and http://b.example", "urls", 2),
        ("你好吗\uff1f", "questions", 1),
        ("你好吗\uff1f", "above_ascii", 4),
        ("Why? How? ", "questions", 2),
        ("what is it\nand why is it\nwhy?", "question_words", 2),
        ("f(x) = (a)", "parentheses", 2),
        ("", "words", 0),
        ("", "lines", 1),
    ],
)
def test_what_is_counted(text: str, name: str, number: int) -> None:
    assert getattr(counted(text), name) == number


def test_lengths_and_shares() -> None:
    found = features(Turn("system", "abcd" * 25), "Hello 42 World!!")

    assert found["user_chars"] == pytest.approx(log1p(16) / 10)
    assert found["user_words"] == pytest.approx(log1p(3) / 8)
    assert found["all_chars"] == pytest.approx(log1p(116) / 10)
    assert found["system_share"] == pytest.approx(100 / 116)
    # 14 visible characters of the user and 100 of the system, in 4 words, all of them different.
    assert found["digits"] == pytest.approx(2 / 114)
    assert found["symbols"] == pytest.approx(2 / 114)
    assert found["capitals"] == pytest.approx(2 / 110)
    assert found["word_length"] == pytest.approx(2.0)  # 28.5 characters a word are as good as 20
    assert found["distinct_words"] == 1.0


def test_flags_and_numbers_of_the_request() -> None:
    plain = features("x")
    assert [plain[name] for name in ("tools", "json_schema", "images", "max_tokens_given", "max_tokens")] == [0.0] * 5

    full = features("x", tools=True, json_schema=True, images=True, max_tokens=255, user_turns=3)
    assert [full[name] for name in ("tools", "json_schema", "images", "max_tokens_given")] == [1.0] * 4
    assert full["max_tokens"] == pytest.approx(log1p(255) / 10)
    assert full["user_turns"] == pytest.approx(log1p(3) / 4)


def test_a_conversation_does_not_hang_on_its_last_word() -> None:
    task = "Write a function that sorts 10 numbers:\n```py\ndef f(x):\n    return x\n```"
    first, later = features(task), features(task, Turn("assistant", "Like this?"), "ok do it")

    assert later["code_fences"] == first["code_fences"]
    assert later["numbers"] == first["numbers"]
    assert later["user_chars"] > first["user_chars"]
    assert later["last_user_chars"] == pytest.approx(log1p(8) / 10)


def test_without_text_there_are_numbers_too() -> None:
    found = features(images=True)

    assert found["images"] == 1.0
    assert sum(found.values()) == pytest.approx(1.0 + log1p(1) / 4)


@pytest.mark.parametrize("length", [0, 1, 5, 1_000, 30_000])
def test_the_users_length_can_be_read_back(length: int) -> None:
    block = Shape().encode(Prompt(turns=(Turn("system", "s" * 99), Turn("user", "x" * length), Turn("user", "a b"))))

    assert user_chars(block) == pytest.approx(length + 3, rel=1e-5)
    assert user_words(block) == pytest.approx(2 + (length > 0), rel=1e-5)


@given(st.lists(st.tuples(st.sampled_from(["user", "system", "tool", "robot"]), st.text(st.characters(exclude_categories=[]))), max_size=6))
def test_any_request_has_finite_features(messages: list[tuple[str, str]]) -> None:
    block = Shape().encode(Prompt(turns=tuple(Turn(role, text) for role, text in messages), max_tokens=-5))

    assert block.dtype == np.float32
    assert block.shape == (len(FEATURES),)
    assert bool(np.isfinite(block).all())
    assert 0 <= block.min() <= block.max() <= 4
