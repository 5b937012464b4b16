"""`minilm-1`: all-MiniLM-L6-v2 (Wang et al. 2020; Reimers and Gurevych 2019) in numpy.

    u(text) = m / |m|,  m = mean over the tokens of the last layer, 384 numbers; the first 256 tokens of a text

A text of 100 tokens takes some 30 ms of one core, so it is asked off the loop. Texts are run one by one, also where there are many: a batch
is no faster from a hundred tokens on, and this way the numbers cannot depend on what else was asked.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from models.encoders import extra
from models.encoders.bert import Bert
from models.encoders.conversation import Conversation
from models.encoders.static import digest
from models.encoders.text import valid

HEADS: Final = 12
TOKENS: Final = 256
_WHAT: Final = "the encoder `minilm`"
# Some 2,000 tokens of a conversation.
_BUDGET: Final = 8_192
_MESSAGES: Final = 32


def encoder(folder: str = "") -> Conversation:
    """The packaged MiniLM, or another one: a folder with `model.safetensors` and `tokenizer.json`, known by its weights.

    Raises ValueError for what cannot be read.
    """
    found = Path(folder) if folder else extra.packaged_minilm()
    model = MiniLM.load(found)
    name = f"minilm-{digest(found / 'model.safetensors')}" if folder else "minilm-1"
    return Conversation(name, model.dim, model.vector, slow=True, budget=_BUDGET, most=_MESSAGES)


class MiniLM:
    """The embedding of texts. tokenizer: makes the network's indices, with its first and last token."""

    def __init__(self, bert: Bert, tokenizer: Any) -> None:
        self._bert = bert
        self._tokenizer = tokenizer
        self.dim = bert.dim

    @classmethod
    def load(cls, folder: Path) -> MiniLM:
        """Reads a folder. Raises ValueError where that cannot be done."""
        tokenizer = extra.tokenizer(folder, _WHAT)
        tokenizer.enable_truncation(TOKENS)
        return cls(Bert(extra.arrays(folder / "model.safetensors", _WHAT), HEADS), tokenizer)

    def vector(self, text: str) -> npt.NDArray[np.float32]:
        """(dim,): the mean of the outputs."""
        ids = np.array([self._tokenizer.encode(valid(text)).ids], dtype=np.intp)
        mean: npt.NDArray[np.float32] = self._bert.outputs(ids)[0].mean(axis=0)
        return mean
