"""An encoder of texts made one of conversations."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from models.encoders.conversation import Conversation, unit
from policies.values.prompt import Prompt, Turn


class Asked:
    """Two numbers of a text: how many letters `a` and `b` are in it. texts: what was asked."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, text: str) -> list[float]:
        self.texts.append(text)
        return [float(text.count("a")), float(text.count("b"))]


def prompt(*texts: str) -> Prompt:
    return Prompt(turns=tuple(Turn("user", text) for text in texts))


def test_messages_weigh_by_the_square_root_of_their_length() -> None:
    encoder = Conversation("letters-1", 2, Asked())

    # 16 characters weigh 4, 9 weigh 3: (4, 3) / 5.
    assert encoder.encode(prompt("a" * 16, "b" * 9)).tolist() == pytest.approx([0.8, 0.6])
    assert encoder.encode(prompt("b")).tolist() == [0.0, 1.0]
    assert encoder.encode(prompt("aab")).tolist() == pytest.approx([2 / sqrt(5), 1 / sqrt(5)])


def test_no_text_and_a_text_that_says_nothing_are_zeros() -> None:
    encoder = Conversation("letters-1", 2, Asked())

    for nothing in (prompt(), prompt(""), prompt("xyz", "")):
        block = encoder.encode(nothing)
        assert block.tolist() == [0.0, 0.0]
        assert block.dtype == np.float32


def test_a_long_conversation_costs_only_its_new_turns() -> None:
    asked = Asked()
    encoder = Conversation("letters-1", 2, asked)
    turns = [f"turn {number} a" for number in range(40)]
    for length in range(1, 41):
        encoder.encode(prompt(*turns[:length]))

    assert asked.texts == turns


def test_what_is_remembered_changes_no_bit() -> None:
    rng = np.random.default_rng(7)
    texts = ["".join(rng.choice(list("ab "), size=rng.integers(1, 60))) for _ in range(30)]
    growing = [prompt(*texts[:length]) for length in range(1, 31)]

    warm = Conversation("letters-1", 2, Asked())
    turn_by_turn = [warm.encode(each).tobytes() for each in growing]
    cold = [Conversation("letters-1", 2, Asked()).encode(each).tobytes() for each in growing]
    forgetful = Conversation("letters-1", 2, Asked(), memo=1)
    forgetting = [forgetful.encode(each).tobytes() for each in reversed(growing)][::-1]
    batch = [row.tobytes() for row in Conversation("letters-1", 2, Asked()).encode_many(growing)]

    assert turn_by_turn == cold == forgetting == batch


def test_no_prompts_make_no_rows() -> None:
    assert Conversation("letters-1", 2, Asked()).encode_many([]).shape == (0, 2)


def test_a_vector_that_is_none_is_refused_and_not_remembered() -> None:
    answers = iter([[1.0], [float("nan"), 1.0], [float("inf"), 1.0], [3.0, 4.0]])
    encoder = Conversation("letters-1", 2, lambda _text: next(answers))

    with pytest.raises(ValueError, match="letters-1: a vector of 2 numbers was expected"):
        encoder.encode(prompt("a"))
    for _ in range(2):
        with pytest.raises(ValueError, match="not finite"):
            encoder.encode(prompt("a"))
    assert encoder.encode(prompt("a")).tolist() == pytest.approx([0.6, 0.8])


def test_a_unit_vector_has_length_one_at_any_scale() -> None:
    for scale in (1e-200, 1.0, 1e200):
        assert unit(np.array([3.0, 4.0]) * scale).tolist() == pytest.approx([0.6, 0.8])
