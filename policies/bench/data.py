"""Outcomes to measure routing on: two published pairs and a published matrix (data/routing/README.md), or a matrix of the user's own.

A pair is one weak and one strong model on the same prompts; a matrix has any number of models. Outcomes are 0 to 1.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from policies.offpolicy.matrix import Matrix, read_matrix

Array = npt.NDArray[np.float64]

FOLDER: Final = Path(__file__).parent / "data" / "routing"
ONLINE_ARMS: Final = (
    "gemini-1.5-pro-002",
    "gemini-1.5-flash-002",
    "Meta-Llama-3_1-70B-Instruct",
    "Meta-Llama-3_1-8B-Instruct",
    "Mixtral-8x7B-Instruct-v0.1",
    "Phi-3-mini-4k-instruct",
    "Mistral-7B-Instruct-v0.2",
    "Qwen1.5-72B-Chat",
    "c4ai-command-r-v01",
    "mathstral-7B",
    "jamba-1.5-large",
)
"""The models of MMLU-Pro that are routed between."""

_OPTIONS: Final = re.compile(r"\n\s*A\. .*\Z", re.DOTALL)
_ANSWER: Final = re.compile(r"\s*Answer:\s*\Z")
_WORDS: Final = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Pair:
    """ids, prompts, categories: n each; weak, strong: outcomes of the two models, (n,)."""

    ids: tuple[str, ...]
    prompts: tuple[str, ...]
    categories: tuple[str, ...]
    weak: Array
    strong: Array

    def take(self, rows: npt.NDArray[np.intp]) -> Pair:
        """These rows of it."""
        return Pair(_at(self.ids, rows), _at(self.prompts, rows), _at(self.categories, rows), self.weak[rows], self.strong[rows])


def mmlu() -> Pair:
    """MMLU by Mixtral 8x7B and GPT-4, from RouteLLM; what RouteLLM found to stand in its training data is left out."""
    return pair(FOLDER / "routellm_mmlu.csv.gz")


def gsm8k() -> Pair:
    """GSM8K by the same pair, likewise."""
    return pair(FOLDER / "routellm_gsm8k.csv.gz")


def mmlu_pro() -> Matrix:
    """MMLU-Pro by 29 models."""
    return read_matrix(FOLDER / "mmlu_pro.csv.gz")


def complete(matrix: Matrix, plans: Sequence[str] | None = None) -> Matrix:
    """These plans, in this order (by default all), and the prompts of which every one of them has an outcome."""
    names = tuple(matrix.plans if plans is None else plans)
    columns = [matrix.plans.index(name) for name in names]
    kept = replace(
        matrix,
        plans=names,
        rewards=matrix.rewards[:, columns],
        costs=matrix.costs[:, columns],
        latencies=matrix.latencies[:, columns],
    )
    return rows_of(kept, np.flatnonzero(~np.isnan(kept.rewards).any(axis=1)))


def rows_of(matrix: Matrix, rows: npt.NDArray[np.intp]) -> Matrix:
    """These prompts of it."""
    return Matrix(
        _at(matrix.ids, rows),
        _at(matrix.prompts, rows),
        _at(matrix.categories, rows),
        matrix.plans,
        matrix.rewards[rows],
        matrix.costs[rows],
        matrix.latencies[rows],
    )


def pair(path: Path) -> Pair:
    """Reads `id,prompt,category,weak,strong[,contaminated]`, without the contaminated rows."""
    rows = [row for row in _rows(path) if row.get("contaminated", "0") == "0"]
    return Pair(
        tuple(row["id"] for row in rows),
        tuple(row["prompt"] for row in rows),
        tuple(row["category"] for row in rows),
        np.array([float(row["weak"]) for row in rows]),
        np.array([float(row["strong"]) for row in rows]),
    )


def _rows(path: Path) -> list[dict[str, str]]:
    text = gzip.decompress(path.read_bytes()).decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def _at(values: Sequence[str], rows: npt.NDArray[np.intp]) -> tuple[str, ...]:
    return tuple(values[row] for row in rows)


def digests() -> dict[str, str]:
    """SHA-256 of each data file."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(FOLDER.glob("*.csv.gz"))}


def question(prompt: str) -> str:
    """A multiple-choice prompt without its options: `...\\nA. ...\\nAnswer:` is cut."""
    return _ANSWER.sub("", _OPTIONS.sub("", prompt)).strip()


def key(prompt: str) -> str:
    """What two prompts have in common that are the same but for options, case, punctuation and white space: a hash of the rest."""
    text = "".join(_WORDS.findall(question(prompt).lower())) or prompt
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def keys(prompts: Iterable[str]) -> frozenset[str]:
    """The keys of all of them."""
    return frozenset(key(prompt) for prompt in prompts)


def count(training: Iterable[str], evaluated: Iterable[str]) -> int:
    """Training prompts that are evaluated, too."""
    scored = keys(evaluated)
    return sum(key(prompt) in scored for prompt in training)


def disjoint(training: Sequence[str], evaluated: Iterable[str]) -> npt.NDArray[np.intp]:
    """Indices of the training prompts that are not evaluated."""
    scored = keys(evaluated)
    return np.array([index for index, prompt in enumerate(training) if key(prompt) not in scored], dtype=np.intp)
