"""An encoder that is asked elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from models.encoders.endpoint import Endpoint, encoder
from policies.values.prompt import Prompt, Turn


def prompt(*texts: str) -> Prompt:
    return Prompt(turns=tuple(Turn("user", text) for text in texts))


def test_each_text_is_asked_for_once_and_all_new_ones_together() -> None:
    asked: list[list[str]] = []

    def ask(texts: Sequence[str]) -> list[list[float]]:
        asked.append(list(texts))
        return [[3.0, 4.0, 0.0]] * len(texts)

    made = encoder(Endpoint("embedder-2", 3, ask))

    assert (made.name, made.dim, made.slow) == ("embedder-2", 3, True)
    assert made.encode(prompt("one", "half \ud800")).tolist() == pytest.approx([0.6, 0.8, 0.0])
    assert made.encode(prompt("one", "half \ud800", "three")).tolist() == pytest.approx([0.6, 0.8, 0.0])
    assert made.encode(prompt("three", "", "one", "three")).tolist() == pytest.approx([0.6, 0.8, 0.0])
    assert asked == [["one", "half ?"], ["three"]]


def test_each_text_gets_its_own_vector_and_weighs_by_its_length() -> None:
    vectors = {"abcd": [2.0, 0.0], "e": [0.0, 5.0]}

    made = encoder(Endpoint("embedder-2", 2, lambda texts: [vectors[text] for text in texts]))

    # sqrt(4) * (1, 0) + sqrt(1) * (0, 1), at length 1
    assert made.encode(prompt("abcd", "e")).tolist() == pytest.approx([2 / 5**0.5, 1 / 5**0.5])


def test_no_text_is_longer_than_the_budget() -> None:
    asked: list[str] = []

    def ask(texts: Sequence[str]) -> list[list[float]]:
        asked.extend(texts)
        return [[1.0]] * len(texts)

    encoder(Endpoint("embedder-2", 1, ask, 100)).encode(prompt("a" * 200 + "b" * 200))

    assert asked == ["a" * 50 + "b" * 50]


def test_a_failure_is_the_callers_and_is_not_remembered() -> None:
    answers = [[1.0], TimeoutError("too late")]

    def ask(_texts: Sequence[str]) -> list[list[float]]:
        answer = answers.pop()
        if isinstance(answer, Exception):
            raise answer
        return [answer]

    made = encoder(Endpoint("embedder-2", 1, ask))

    with pytest.raises(TimeoutError, match="too late"):
        made.encode(prompt("one"))
    assert made.encode(prompt("one")).tolist() == [1.0]
