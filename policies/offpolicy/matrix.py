"""An outcome matrix: what every plan answered to every prompt, from a file of the operator's own or a published one.

A CSV, also .gz:  id,prompt,category,<one column for each model>      values in 0..1; an empty one is not known

Costs and latencies are another CSV:  model,cost,latency  (a line for each model: USD and seconds a request)
or, where they depend on the prompt:  id,<one column for each model>  (USD)
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_FIRST = ("id", "prompt", "category")


class MatrixError(ValueError):
    """The file is no outcome matrix, or no costs of one; says where and why."""


@dataclass(frozen=True)
class Matrix:
    """n prompts by p plans. ids, prompts, categories: n of each; a category may be empty. plans: their names. rewards: (n, p), 0 to 1, nan
    where it is not known. costs: (n, p), USD. latencies: (n, p), seconds."""

    ids: tuple[str, ...]
    prompts: tuple[str, ...]
    categories: tuple[str, ...]
    plans: tuple[str, ...]
    rewards: Floats
    costs: Floats
    latencies: Floats


def read_matrix(file: Path, costs: Path | None = None) -> Matrix:
    """Raises MatrixError; OSError where a file cannot be read."""
    rows = _rows(file)
    header = next(rows, (1, []))[1]
    if tuple(header[:3]) != _FIRST or len(header) < 4:
        raise MatrixError(f"{file}: the first line must be `id,prompt,category,` and then a column for each model")
    plans = tuple(header[3:])
    if len(set(plans)) != len(plans):
        raise MatrixError(f"{file}: two columns have the same name")
    ids, prompts, categories, values = [], [], [], []
    for line, row in rows:
        if len(row) != len(header):
            raise MatrixError(f"{file}:{line}: {len(row)} values, but the first line has {len(header)}")
        ids.append(row[0])
        prompts.append(row[1])
        categories.append(row[2])
        values.append([_number(cell, f"{file}:{line}: `{plan}`", 1.0) for plan, cell in zip(plans, row[3:], strict=True)])
    if not ids:
        raise MatrixError(f"{file}: there are no prompts")
    if len(set(ids)) != len(ids):
        raise MatrixError(f"{file}: two lines have the same id")
    rewards = np.array(values, dtype=np.float64)
    none = np.zeros_like(rewards)
    matrix = Matrix(tuple(ids), tuple(prompts), tuple(categories), plans, rewards, none, none)
    return matrix if costs is None else _with_costs(matrix, costs)


def _with_costs(matrix: Matrix, file: Path) -> Matrix:
    rows = _rows(file)
    header = next(rows, (1, []))[1]
    if header in (["model", "cost"], ["model", "cost", "latency"]):
        found = _by_first(file, header, rows, range(1, len(header)))
        _complete(found, matrix.plans, f"{file}: there is no line for")
        per_plan = np.array([[*found[plan], 0.0][:2] for plan in matrix.plans])
        if np.isnan(per_plan).any():
            raise MatrixError(f"{file}: a cost is missing")
        shape = matrix.rewards.shape
        return replace(matrix, costs=np.broadcast_to(per_plan[:, 0], shape), latencies=np.broadcast_to(per_plan[:, 1], shape))
    if header[:1] != ["id"]:
        raise MatrixError(f"{file}: the first line must be `model,cost,latency`, or `id,` and then a column for each model")
    _complete(header, matrix.plans, f"{file}: there is no column for")
    by_id = _by_first(file, header, rows, [header.index(plan) for plan in matrix.plans])
    _complete(by_id, matrix.ids, f"{file}: there is no line for")
    costs = np.array([by_id[each] for each in matrix.ids])
    if np.isnan(costs).any():
        raise MatrixError(f"{file}: a cost is missing")
    return replace(matrix, costs=costs)


def _by_first(file: Path, header: Sequence[str], rows: Iterator[tuple[int, list[str]]], columns: Sequence[int]) -> dict[str, list[float]]:
    """The numbers in these columns, by what stands in the first."""
    found = {}
    for line, row in rows:
        if len(row) != len(header):
            raise MatrixError(f"{file}:{line}: {len(row)} values, but the first line has {len(header)}")
        found[row[0]] = [_number(row[column], f"{file}:{line}: `{header[column]}`") for column in columns]
    return found


def _complete(found: Sequence[str] | dict[str, list[float]], wanted: Sequence[str], sentence: str) -> None:
    missing = [each for each in wanted if each not in found]
    if missing:
        raise MatrixError(f"{sentence} `{missing[0]}`")


def _rows(file: Path) -> Iterator[tuple[int, list[str]]]:
    data = file.read_bytes()
    try:
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8-sig")
        csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        for row in reader:
            yield reader.line_num, row
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError, csv.Error) as error:
        raise MatrixError(f"{file}: {error}") from None


def _number(cell: str, where: str, top: float = float("inf")) -> float:
    if not cell.strip():
        return float("nan")
    try:
        value = float(cell)
    except ValueError:
        value = float("nan")
    if not 0.0 <= value <= top or value == float("inf"):
        raise MatrixError(f"{where} is `{cell}`, but must be a number {'from 0 to 1' if top == 1.0 else 'of at least 0'}, or empty")
    return value
