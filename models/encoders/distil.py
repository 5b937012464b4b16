"""A static embedding out of a transformer: every token by itself, once (model2vec; Tulkens and van Dongen 2024).

    e_t = m / |m|,  m = mean over the three places of MiniLM([CLS] t [SEP])      (vocabulary, 384)
    E   = (e - mean(e)) V,  V: the `dim` first principal axes                    (vocabulary, dim)

No weighting by frequency: it did not help to route. The folder that is written is in model2vec's format: `model.safetensors` with
`embeddings` (float16), `tokenizer.json`, `config.json`. The same inputs make the same files, up to rounding of the machine's BLAS.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from models.encoders import extra
from models.encoders.bert import Bert
from models.encoders.minilm import HEADS

_WHAT: Final = "distilling"
_BATCH: Final = 256

Progress = Callable[[int, int], None]


def token_vectors(bert: Bert, first: int, last: int, progress: Progress) -> npt.NDArray[np.float32]:
    """(vocabulary, dim): the embedding of each token as a text of its own, between the tokens `first` and `last`.

    progress: tokens done, tokens in all.
    """
    found = np.empty((bert.vocabulary, bert.dim), dtype=np.float32)
    for start in range(0, bert.vocabulary, _BATCH):
        tokens = np.arange(start, min(start + _BATCH, bert.vocabulary))
        ids = np.stack((np.full_like(tokens, first), tokens, np.full_like(tokens, last)), axis=1)
        means = bert.outputs(ids).mean(axis=1)
        found[tokens] = means / np.linalg.norm(means, axis=1, keepdims=True)
        progress(int(tokens[-1]) + 1, bert.vocabulary)
    return found


def principal(vectors: npt.NDArray[np.float32], dim: int) -> npt.NDArray[np.float32]:
    """(n, dim): the vectors, less their mean, on their principal axes; an axis points to where its largest coordinate is positive."""
    centred = vectors.astype(np.float64)
    centred -= centred.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    axes = axes[:, ::-1][:, :dim]
    axes *= np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    projected: npt.NDArray[np.float32] = (centred @ axes).astype(np.float32)
    return projected


def distil(source: Path, out: Path, dim: int, progress: Progress) -> None:
    """Writes the static embedding of the MiniLM in the folder `source` into the folder `out`. Raises ValueError for what is no MiniLM."""
    tokenizer = extra.tokenizer(source, _WHAT)
    first, last = tokenizer.encode("").ids
    vectors = token_vectors(Bert(extra.arrays(source / "model.safetensors", _WHAT), HEADS), first, last, progress)
    write(out, principal(vectors, dim), tokenizer)


def write(out: Path, embeddings: npt.NDArray[np.float32], tokenizer: Any) -> None:
    """Writes a folder in model2vec's format."""
    out.mkdir(parents=True, exist_ok=True)
    config = {
        "model_type": "model2vec",
        "architectures": ["StaticModel"],
        "apply_pca": embeddings.shape[1],
        "hidden_dim": embeddings.shape[1],
        "seq_length": 1_000_000,
        "normalize": True,
        "pooling": "mean",
    }
    extra.write(out / "model.safetensors", {"embeddings": embeddings.astype(np.float16)}, {}, _WHAT)
    (out / "tokenizer.json").write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":")) + "\n")
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
