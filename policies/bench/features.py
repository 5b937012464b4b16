"""Features of a prompt that need no trained model: its shape, and latent semantic analysis of its words.

What is fitted here (means, scales, word weights, directions) is fitted on training prompts alone and then applied to others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from models.encoders.shape import Shape
from policies.values.prompt import Prompt, Turn

Floats = npt.NDArray[np.float64]

_WORD: Final = re.compile(r"[a-z]+|\d+")


def shape(prompts: Sequence[str]) -> Floats:
    """What can be counted in each prompt, as the product's encoder `shape` counts it: (n, d), unscaled."""
    encoder = Shape(memo=1)
    return np.array([encoder.encode(asked(prompt)) for prompt in prompts], dtype=np.float64)


def asked(prompt: str) -> Prompt:
    """A request of one message."""
    return Prompt(turns=(Turn("user", prompt),), tokens=max(1, len(prompt.encode()) // 4))


def length(prompts: Sequence[str]) -> Floats:
    """Log of the number of characters, (n,)."""
    return np.log1p(np.array([len(prompt) for prompt in prompts], dtype=np.float64))


@dataclass(frozen=True)
class Scale:
    """Mean and standard deviation of each column, (d,)."""

    mean: Floats
    deviation: Floats

    def apply(self, values: Floats) -> Floats:
        """Standardised; what is beyond 4 standard deviations is cut off there."""
        found: Floats = np.clip((values - self.mean) / self.deviation, -4.0, 4.0)
        return found


def scale(values: Floats) -> Scale:
    """Of the columns of (n, d), or of (n,). A column that never changes gets the deviation 1."""
    deviation = np.asarray(values.std(axis=0))
    return Scale(np.asarray(values.mean(axis=0)), np.where(deviation > 0, deviation, 1.0))


@dataclass(frozen=True)
class Words:
    """TF-IDF of words and pairs of words, projected on its largest directions. idf: (v,); directions: (v, d)."""

    vocabulary: dict[str, int]
    idf: Floats
    directions: Floats

    def apply(self, prompts: Sequence[str]) -> Floats:
        """(n, d), rows of length 1; zeros where no word is known."""
        found = _project(_counts(prompts, self.vocabulary), self.idf, self.directions)
        norms = np.linalg.norm(found, axis=1, keepdims=True)
        scaled: Floats = found / np.where(norms > 0, norms, 1.0)
        return scaled


def words(prompts: Sequence[str], dim: int = 160, least: int = 2, seed: int = 0) -> Words:
    """Fitted on these prompts. least: prompts that a word must stand in. Randomised subspace iteration (Halko et al. 2011)."""
    seen = Counter(term for prompt in prompts for term in set(_terms(prompt)))
    vocabulary = {term: index for index, term in enumerate(sorted(term for term, n in seen.items() if n >= least))}
    idf = np.log((1 + len(prompts)) / (1 + np.array([seen[term] for term in vocabulary], dtype=np.float64))) + 1
    counts = _counts(prompts, vocabulary)
    dim = min(dim, len(vocabulary), len(prompts))
    basis = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(vocabulary), min(dim + 10, len(vocabulary)))))[0]
    for _ in range(4):
        basis = np.linalg.qr(_back(counts, idf, _project(counts, idf, basis)))[0]
    _, _, rotation = np.linalg.svd(_project(counts, idf, basis), full_matrices=False)
    return Words(vocabulary, idf, basis @ rotation[:dim].T)


def _terms(prompt: str) -> list[str]:
    found = _WORD.findall(prompt.lower())
    return found + [f"{a} {b}" for a, b in pairwise(found)]


@dataclass(frozen=True)
class _Counts:
    """A sparse matrix by rows. starts: (n + 1,) into columns and values; values: 1 + log of the count, later normalised with idf."""

    starts: npt.NDArray[np.intp]
    columns: npt.NDArray[np.intp]
    values: Floats


def _counts(prompts: Sequence[str], vocabulary: dict[str, int]) -> _Counts:
    starts, columns, values = [0], [], []
    for prompt in prompts:
        found = Counter(vocabulary[term] for term in _terms(prompt) if term in vocabulary)
        columns += list(found)
        values += list(found.values())
        starts.append(len(columns))
    return _Counts(np.array(starts, dtype=np.intp), np.array(columns, dtype=np.intp), 1 + np.log(np.array(values, dtype=np.float64)))


def _weights(counts: _Counts, idf: Floats) -> Floats:
    """TF-IDF of each entry, rows of length 1."""
    raw = counts.values * idf[counts.columns]
    rows = np.repeat(np.arange(len(counts.starts) - 1), np.diff(counts.starts))
    norms = np.sqrt(np.bincount(rows, weights=raw**2, minlength=len(counts.starts) - 1))
    weights: Floats = raw / norms[rows]
    return weights


def _project(counts: _Counts, idf: Floats, directions: Floats) -> Floats:
    """TF-IDF times directions, (n, d)."""
    weights = _weights(counts, idf)
    out = np.zeros((len(counts.starts) - 1, directions.shape[1]))
    for row, (begin, end) in enumerate(zip(counts.starts[:-1], counts.starts[1:], strict=True)):
        if end > begin:
            out[row] = weights[begin:end] @ directions[counts.columns[begin:end]]
    return out


def _back(counts: _Counts, idf: Floats, projected: Floats) -> Floats:
    """Transposed TF-IDF times (n, d): (v, d)."""
    weights = _weights(counts, idf)
    out = np.zeros((len(idf), projected.shape[1]))
    for row, (begin, end) in enumerate(zip(counts.starts[:-1], counts.starts[1:], strict=True)):
        if end > begin:
            out[counts.columns[begin:end]] += weights[begin:end, None] * projected[row]  # a term stands once in a row
    return out
