"""A file of the user's own samples: `set,question,sample,answer,correct,tokens`, as CSV or as JSONL, also .gz.

set: a name for questions of a kind, each set has figures of its own; where it is absent or empty, `own`. question, sample: names, any
text; a question's samples are taken in the order of the file. answer: what votes, two answers are the same when their text is; empty: none
could be read. correct: 0 or 1, true or false. tokens: a number, what the sample cost; where all of a set are 0, each costs the same.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from policies.bench.answers import Answers

OWN: Final = "own"
COLUMNS: Final = ("question", "sample", "answer", "correct", "tokens")
_TRUE: Final = frozenset({"1", "true", "1.0"})
_FALSE: Final = frozenset({"0", "false", "0.0"})


class SamplesError(ValueError):
    """The file holds no samples that can be read; says where and why."""


@dataclass(frozen=True)
class Own:
    """questions: their names, in the order of the answers' rows."""

    questions: tuple[str, ...]
    answers: Answers


@dataclass(frozen=True)
class _Sample:
    answer: str
    right: bool
    tokens: float


def read(file: Path) -> dict[str, Own]:
    """The sets by name. Raises SamplesError; OSError where the file cannot be read."""
    found: dict[str, dict[str, list[_Sample]]] = {}
    seen: set[tuple[str, str, str]] = set()
    for line, row in _rows(file):
        where = f"{file}:{line}"
        missing = [column for column in COLUMNS if row.get(column) is None]
        if missing:
            raise SamplesError(f"{where}: `{missing[0]}` is missing")
        name, question, sample = _set(row.get("set")), str(row["question"]), str(row["sample"])
        if (name, question, sample) in seen:
            raise SamplesError(f"{where}: question `{question}` of set `{name}` has two samples `{sample}`")
        seen.add((name, question, sample))
        read = _Sample(str(row["answer"]).strip(), _flag(row["correct"], where), _number(row["tokens"], where))
        found.setdefault(name, {}).setdefault(question, []).append(read)
    if not found:
        raise SamplesError(f"{file}: there are no samples")
    return {name: Own(tuple(questions), _answers(list(questions.values()))) for name, questions in found.items()}


def _answers(questions: list[list[_Sample]]) -> Answers:
    most = max(len(samples) for samples in questions)
    keys = np.full((len(questions), most), -1, dtype=np.int64)
    right, tokens = np.zeros(keys.shape, dtype=bool), np.zeros(keys.shape)
    for row, samples in enumerate(questions):
        numbers: dict[str, int] = {}
        for column, sample in enumerate(samples):
            if sample.answer:
                keys[row, column] = numbers.setdefault(sample.answer, len(numbers))
            right[row, column], tokens[row, column] = sample.right, sample.tokens
    sizes = np.array([len(samples) for samples in questions], dtype=np.int64)
    if not tokens.any():
        tokens = (np.arange(most) < sizes[:, None]).astype(np.float64)
    return Answers(keys, right, tokens, sizes)


def _rows(file: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    content = file.read_bytes()
    try:
        text = (gzip.decompress(content) if file.suffix == ".gz" else content).decode("utf-8-sig")
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError) as error:
        raise SamplesError(f"{file}: {error}") from None
    if ".jsonl" in file.suffixes or text.startswith("{"):
        yield from _json(file, text)
        return
    reader = csv.DictReader(io.StringIO(text, newline=""))
    if not set(COLUMNS) <= set(reader.fieldnames or ()):
        raise SamplesError(f"{file}: the first line must name {', '.join(COLUMNS)}")
    for row in reader:
        yield reader.line_num, row


def _json(file: Path, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise SamplesError(f"{file}:{number}: {error.msg}") from None
        if not isinstance(row, dict):
            raise SamplesError(f"{file}:{number}: must be an object")
        yield number, row


def _set(value: Any) -> str:
    return ("" if value is None else str(value).strip()) or OWN


def _flag(value: Any, where: str) -> bool:
    text = str(value).strip().lower()
    if text not in _TRUE | _FALSE:
        raise SamplesError(f"{where}: `correct` is {value!r}, must be 0 or 1")
    return text in _TRUE


def _number(value: Any, where: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0.0 <= number < math.inf:
        raise SamplesError(f"{where}: `tokens` is {value!r}, must be a number of at least 0")
    return number
