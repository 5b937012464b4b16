"""Any model of sentence-transformers that lies in a folder; the library (and torch) is loaded with the encoder."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from models.encoders.conversation import Conversation
from models.encoders.text import valid

_BUDGET: Final = 8_192
_MESSAGES: Final = 32


def encoder(folder: str) -> Conversation:
    """The encoder of a model's folder; known by the folder's name and the digest of its configuration. Raises ValueError for what cannot be
    loaded: models are never fetched."""
    found = Path(folder)
    if not folder or not found.is_dir():
        raise ValueError(f"the encoder `sentence_transformers` needs the folder of a model; `{folder}` is none")
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise ValueError("the encoder `sentence_transformers` needs sentence_transformers: pip install sentence-transformers") from None
    try:
        model: Any = SentenceTransformer(str(found), local_files_only=True)
    except (OSError, ValueError) as error:
        raise ValueError(f"the encoder `sentence_transformers` cannot load {folder}: {error}") from None

    def vector(text: str) -> npt.NDArray[np.float32]:
        made: npt.NDArray[np.float32] = model.encode(valid(text), convert_to_numpy=True, show_progress_bar=False)
        return made

    name = f"{found.resolve().name}-{_digest(found)}"
    return Conversation(name, int(vector("").shape[0]), vector, slow=True, budget=_BUDGET, most=_MESSAGES)


def _digest(folder: Path) -> str:
    """Of the names and sizes of the model's files, and of what its configurations say."""
    seen = blake2b(digest_size=4)
    for file in sorted(each for each in folder.rglob("*") if each.is_file()):
        seen.update(f"{file.relative_to(folder)} {file.stat().st_size}\n".encode())
        if file.suffix == ".json" and file.stat().st_size < 1_000_000:
            seen.update(file.read_bytes())
    return seen.hexdigest()
