"""`static-1`: the mean of the vectors that a text's tokens have by themselves, distilled from MiniLM (distil.py).

    u(text) = m / |m|,  m = mean over tokens t of E[t]     E: (vocabulary, 64)

Read from a folder in model2vec's format. Nothing is loaded before the encoder is made.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import models.weights
from models.encoders import extra
from models.encoders.conversation import Conversation
from models.encoders.text import valid

_WHAT: Final = "the encoder `static`"
_PACKAGED: Final = "static-1"
# Some 2,000 tokens, which take 3 ms.
_BUDGET: Final = 8_192


def encoder(folder: str = "") -> Conversation:
    """The packaged embedding, or another one in model2vec's format, known by its weights. Raises ValueError for what cannot be read."""
    found = Path(folder) if folder else Path(models.weights.__path__[0]) / _PACKAGED
    embedding = Static.load(found)
    name = f"static-{digest(found / 'model.safetensors')}" if folder else _PACKAGED
    return Conversation(name, embedding.dim, embedding.vector, budget=_BUDGET)


class Static:
    """The embedding of texts. table: (vocabulary, dim). tokenizer: makes indices into it."""

    def __init__(self, table: npt.NDArray[np.float32], tokenizer: Any) -> None:
        self._table = table
        self._tokenizer = tokenizer
        self.dim = int(table.shape[1])

    @classmethod
    def load(cls, folder: Path) -> Static:
        """Reads a folder in model2vec's format. Raises ValueError where that cannot be done."""
        tokenizer = extra.tokenizer(folder, _WHAT)
        table = extra.arrays(folder / "model.safetensors", _WHAT).get("embeddings")
        if table is None or table.ndim != 2 or table.shape[0] < tokenizer.get_vocab_size():
            raise ValueError(f"{_WHAT}: {folder} holds no embedding of its tokenizer's tokens")
        return cls(np.ascontiguousarray(table, dtype=np.float32), tokenizer)

    def vector(self, text: str) -> npt.NDArray[np.float32]:
        """(dim,): the sum of the tokens' vectors; zeros for a text without tokens."""
        ids = self._tokenizer.encode(valid(text), add_special_tokens=False).ids
        total: npt.NDArray[np.float32] = np.add.reduce(self._table[ids], axis=0) if ids else np.zeros(self.dim, dtype=np.float32)
        return total


def digest(file: Path) -> str:
    """Eight hexadecimal digits that tell a file from others."""
    return blake2b(file.read_bytes(), digest_size=4).hexdigest()
