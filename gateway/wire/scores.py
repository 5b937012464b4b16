"""What is asked of a model that scores answers, and what it says: three endpoints of vLLM's pooling runner.

    score       POST /v1/score   the request as text_1, the answer as text_2      data[0].score
    classify    POST /classify   the conversation with the answer as its end      data[0].probs: the only class, or the last of several
    pooling     POST /pooling    the same                                         data[0].data: of each token or of all, the last number

Which of them a model answers on depends on what kind it is: a pair scorer or reranker, a classifier with one class (most reward models) or
with "right" as its last, a model that scores each token or step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import orjson

Scoring = Literal["score", "classify", "pooling"]

PATHS: Mapping[Scoring, str] = MappingProxyType({"score": "/v1/score", "classify": "/classify", "pooling": "/pooling"})


def score_body(scoring: Scoring, model: str, question: str, turns: Sequence[tuple[str, str]], answer: str) -> bytes:
    """The request. question: all that was said before, as one text; turns: the same, as (role, text)."""
    if scoring == "score":
        return orjson.dumps({"model": model, "text_1": question, "text_2": answer})
    messages = [{"role": role, "content": text} for role, text in [*turns, ("assistant", answer)]]
    return orjson.dumps({"model": model, "messages": messages})


def score_of(scoring: Scoring, body: Mapping[str, Any]) -> float | None:
    """The score of the one answer that was asked about; None: there is none in it that can be read."""
    data = body.get("data")
    first = data[0] if isinstance(data, list) and len(data) == 1 else None
    if not isinstance(first, dict):
        return None
    if scoring == "score":
        return _number(first.get("score"))
    found = first.get("probs" if scoring == "classify" else "data")
    for _ in range(1 if scoring == "classify" else 2):  # of tokens, then of classes
        if isinstance(found, list):
            found = found[-1] if found else None
    return _number(found)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
