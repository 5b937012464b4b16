"""An encoder that is asked elsewhere."""

from __future__ import annotations

import pytest

from models.encoders.endpoint import Endpoint, encoder
from policies.values.prompt import Prompt, Turn


def prompt(*texts: str) -> Prompt:
    return Prompt(turns=tuple(Turn("user", text) for text in texts))


def test_each_text_is_asked_for_once() -> None:
    asked: list[str] = []

    def ask(text: str) -> list[float]:
        asked.append(text)
        return [3.0, 4.0, 0.0]

    made = encoder(Endpoint("embedder-2", 3, ask))

    assert (made.name, made.dim, made.slow) == ("embedder-2", 3, True)
    assert made.encode(prompt("one", "half \ud800")).tolist() == pytest.approx([0.6, 0.8, 0.0])
    assert made.encode(prompt("one", "half \ud800", "three")).tolist() == pytest.approx([0.6, 0.8, 0.0])
    assert asked == ["one", "half ?", "three"]


def test_a_failure_is_the_callers_and_is_not_remembered() -> None:
    answers = [[1.0], TimeoutError("too late")]

    def ask(_text: str) -> list[float]:
        answer = answers.pop()
        if isinstance(answer, Exception):
            raise answer
        return answer

    made = encoder(Endpoint("embedder-2", 1, ask))

    with pytest.raises(TimeoutError, match="too late"):
        made.encode(prompt("one"))
    assert made.encode(prompt("one")).tolist() == [1.0]
