"""Embeddings of prompts, kept on disk by a digest of the encoder and the prompts: MiniLM takes minutes for a set, reading them back none.

Prompts are encoded as requests of one message; slow encoders read only the beginning of each, some 120 tokens. What cannot be had raises
ValueError, with what to install.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from policies.bench.features import asked
from policies.bench.workers import workers
from policies.encoders import encoder

Vectors = npt.NDArray[np.float32]
Progress = Callable[[str], None]

_PART: Final = 512
_CHARS: Final = 512


@dataclass(frozen=True)
class Library:
    """folder: where vectors are kept; None: nowhere. processes: that encode at a time."""

    folder: Path | None
    progress: Progress
    processes: int = 2

    def embeddings(self, name: str, prompts: Sequence[str]) -> Vectors:
        """(n, d), rows of length 1 (zeros for an empty one), by the encoder of this name. Raises ValueError where it cannot be had."""
        made = encoder(name)
        if made.slow:
            prompts = [prompt[:_CHARS] for prompt in prompts]
        file = None if self.folder is None else self.folder / f"{made.name}-{_digest(prompts)}.npy"
        if file is not None and file.exists():
            found: Vectors = np.load(file, allow_pickle=False)
            if found.shape == (len(prompts), made.dim):
                return found
        self.progress(f"{made.name}: encoding {len(prompts):,} prompts")
        vectors = _unit(self._encoded(name, prompts) if made.slow else _encode(name, prompts))
        if file is not None:
            _write(file, vectors)
        return vectors

    def _encoded(self, name: str, prompts: Sequence[str]) -> Vectors:
        """In parts of prompts of about the same length, in processes of one thread each."""
        order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
        parts = [order[start : start + _PART] for start in range(0, len(order), _PART)]
        out: Vectors | None = None
        with workers(self.processes) as pool:
            jobs = [pool.submit(_encode, name, [prompts[index] for index in part]) for part in reversed(parts)]
            for done, (part, job) in enumerate(zip(reversed(parts), jobs, strict=True), 1):
                vectors = job.result()
                out = np.zeros((len(prompts), vectors.shape[1]), dtype=np.float32) if out is None else out
                out[part] = vectors
                if done % 5 == 0 or done == len(parts):
                    self.progress(f"{name}: {done} of {len(parts)} parts")
        if out is None:
            raise ValueError("there are no prompts to encode")
        return out


def _encode(name: str, prompts: Sequence[str]) -> Vectors:
    made = encoder(name)
    many = getattr(made, "encode_many", None)
    vectors = many([asked(prompt) for prompt in prompts]) if many is not None else [made.encode(asked(prompt)) for prompt in prompts]
    return np.asarray(vectors, dtype=np.float32)


def _unit(vectors: Vectors) -> Vectors:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(norms > 0, norms, 1)).astype(np.float32)


def _digest(prompts: Sequence[str]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for prompt in prompts:
        data = prompt.encode()
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def _write(file: Path, vectors: Vectors) -> None:
    """Whole or not at all, whoever else writes the same."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=file.parent, suffix=".part", delete=False) as part:
        np.save(part, vectors, allow_pickle=False)
    Path(part.name).replace(file)
