"""An encoder of texts made one of conversations.

    x = v / |v|,  v = sum over messages of sqrt(c) * u(text)     c: characters that are read of the message; |u| = 1, or 0

All messages count. A long one counts more, but not by its length: a system prompt of three pages does not drown the question. The vectors
of messages are remembered, so a turn costs what is new in it; they are added in the messages' order, so what is remembered changes no bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import hypot, sqrt

import numpy as np
import numpy.typing as npt

from models.encoders.text import CHARACTERS, MESSAGES, Memo, Request, cut, read_of

Vector = npt.NDArray[np.float32]


class Conversation:
    """The encoder. vector: of a text, (dim,), any length; pure. vectors: of several, where one question for all of them takes less time.
    budget: characters that are read of a conversation; most: messages; memo: messages that are remembered."""

    def __init__(
        self,
        name: str,
        dim: int,
        vector: Callable[[str], npt.ArrayLike],
        *,
        vectors: Callable[[Sequence[str]], Sequence[npt.ArrayLike]] | None = None,
        slow: bool = False,
        budget: int = CHARACTERS,
        most: int = MESSAGES,
        memo: int = 8_192,
    ) -> None:
        self.name = name
        self.dim = dim
        self.slow = slow
        self._vector = vector
        self._vectors = vectors
        self._budget = budget
        self._most = most
        self._memo: Memo[Vector] = Memo(memo)

    def encode(self, prompt: Request) -> Vector:
        """float32, (dim,), of length 1; zeros where there is no text."""
        messages, share = read_of(prompt.turns, self._budget, self._most)
        if not messages:
            return np.zeros(self.dim, dtype=np.float32)
        texts = [text if len(text := each.text) <= share else cut(text, share) for each in messages]
        weights = np.array([sqrt(len(text)) for text in texts])
        return unit(weights.dot(np.concatenate(self._units(texts), dtype=np.float64).reshape(-1, self.dim)))

    def encode_many(self, prompts: Sequence[Request]) -> Vector:
        """float32, (prompts, dim): the same numbers as one by one."""
        return np.array([self.encode(prompt) for prompt in prompts], dtype=np.float32).reshape(len(prompts), self.dim)

    def _units(self, texts: Sequence[str]) -> list[Vector]:
        """Of each text its vector at length 1."""
        if self._vectors is None:
            return [self._memo.value(text, self._unit) for text in texts]
        known = {text: self._memo.get(self._memo.key(text)) for text in texts}
        missing = [text for text, vector in known.items() if vector is None and text]
        if missing:
            for text, found in zip(missing, self._vectors(missing), strict=True):
                known[text] = made = self._of_length_1(found)
                self._memo.put(self._memo.key(text), made)
        nothing = np.zeros(self.dim, dtype=np.float32)
        return [nothing if vector is None else vector for vector in (known[text] for text in texts)]

    def _unit(self, text: str) -> Vector:
        return self._of_length_1(self._vector(text))

    def _of_length_1(self, vector: npt.ArrayLike) -> Vector:
        found = np.asarray(vector, dtype=np.float64)
        if found.shape != (self.dim,):
            raise ValueError(f"{self.name}: a vector of {self.dim} numbers was expected, this has the shape {found.shape}")
        return unit(found)


def unit(vector: npt.NDArray[np.float64]) -> Vector:
    """The vector at length 1; zeros stay zeros. Raises ValueError for what is not finite."""
    length = hypot(*vector.tolist())
    if not length < float("inf"):
        raise ValueError("a vector of features is not finite")
    return (vector / length if length else vector).astype(np.float32)
