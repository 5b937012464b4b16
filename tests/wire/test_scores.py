"""What a model that scores answers is asked, and says: the shapes of vLLM's pooling runner."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.wire.scores import PATHS, Scoring, score_body, score_of

TURNS = [("system", "Be brief."), ("user", "2 + 2?")]


def test_what_is_asked() -> None:
    asked = json.loads(score_body("score", "rm", "2 + 2?", TURNS, "4"))
    assert asked == {"model": "rm", "text_1": "2 + 2?", "text_2": "4"}
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
    for scoring in ("classify", "pooling"):
        assert json.loads(score_body(scoring, "rm", "2 + 2?", TURNS, "4")) == {"model": "rm", "messages": chat}
    assert PATHS == {"score": "/v1/score", "classify": "/classify", "pooling": "/pooling"}


@pytest.mark.parametrize(
    ("scoring", "first", "score"),
    [
        ("score", {"index": 0, "object": "score", "score": 0.75}, 0.75),
        ("score", {"score": -3}, -3.0),
        ("score", {"score": None}, None),
        ("score", {"score": True}, None),
        ("score", {"score": 1e999}, None),
        ("score", {}, None),
        ("classify", {"index": 0, "label": "LABEL_0", "probs": [0.9], "num_classes": 1}, 0.9),
        ("classify", {"index": 0, "label": "bad", "probs": [0.7, 0.3], "num_classes": 2}, 0.3),
        ("classify", {"probs": []}, None),
        ("classify", {"probs": [[0.5]]}, None),
        ("pooling", {"index": 0, "object": "pooling", "data": [1.5]}, 1.5),
        ("pooling", {"data": [[0.1], [0.2], [2.5]]}, 2.5),
        ("pooling", {"data": [[0.9, 0.1], [0.4, 0.6]]}, 0.6),
        ("pooling", {"data": "AAAA"}, None),
        ("pooling", {"data": [[]]}, None),
    ],
)
def test_what_it_says(scoring: Scoring, first: dict[str, Any], score: float | None) -> None:
    assert score_of(scoring, {"object": "list", "data": [first]}) == score


@pytest.mark.parametrize("data", [None, [], [1], {"score": 1}, [{"score": 1}, {"score": 2}]])
def test_what_is_no_answer_about_one(data: Any) -> None:
    assert score_of("score", {"data": data}) is None
