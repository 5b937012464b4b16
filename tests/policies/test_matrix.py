"""Outcome matrices of an operator's own."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from policies.offpolicy.matrix import MatrixError, read_matrix

LINES = 'id,prompt,category,small,large\n1,"What, now?",maths,1,0.5\n2,two\u00e9,,,1\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "m.csv"
    path.write_text(LINES)
    return path


def test_a_matrix_is_read_plain_or_packed(file: Path, tmp_path: Path) -> None:
    packed = tmp_path / "m.csv.gz"
    packed.write_bytes(gzip.compress(LINES.encode()))
    for each in (file, packed):
        matrix = read_matrix(each)
        assert (matrix.ids, matrix.prompts, matrix.categories) == (("1", "2"), ("What, now?", "two\u00e9"), ("maths", ""))
        assert matrix.plans == ("small", "large")
        assert np.array_equal(matrix.rewards, [[1.0, 0.5], [np.nan, 1.0]], equal_nan=True)
        assert matrix.costs.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_costs_are_by_model_or_by_prompt(file: Path, tmp_path: Path) -> None:
    costs = tmp_path / "c.csv"
    costs.write_text("model,cost,latency\nlarge,0.01,2\nsmall,0.001,0.5\nother,1,1\n")
    matrix = read_matrix(file, costs)
    assert matrix.costs.tolist() == [[0.001, 0.01]] * 2 and matrix.latencies.tolist() == [[0.5, 2.0]] * 2
    costs.write_text("id,large,small\n2,0.4,0.3\n1,0.2,0.1\n")
    assert read_matrix(file, costs).costs.tolist() == [[0.1, 0.2], [0.3, 0.4]]
    costs.write_text("model,cost\nsmall,1\nlarge,2\n")
    assert read_matrix(file, costs).latencies.tolist() == [[0.0, 0.0]] * 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prompt,small\n", "first line must be"),
        ("id,prompt,category,a,a\n1,p,c,0,1\n", "same name"),
        ("id,prompt,category,a\n1,p,c\n", ":2: 3 values"),
        ("id,prompt,category,a\n1,p,c,1.5\n", ":2: `a` is `1.5`, but must be a number from 0 to 1"),
        ("id,prompt,category,a\n1,p,c,nan\n", "is `nan`"),
        ("id,prompt,category,a\n1,p,c,0\n1,q,c,0\n", "same id"),
        ("id,prompt,category,a\n", "no prompts"),
        ("", "first line must be"),
    ],
)
def test_what_is_no_matrix_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "m.csv"
    path.write_text(text)
    with pytest.raises(MatrixError, match=message):
        read_matrix(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model,cost,latency\nsmall,1,1\n", "no line for `large`"),
        ("id,small\n1,1\n2,1\n", "no column for `large`"),
        ("id,small,large\n1,1,1\n", "no line for `2`"),
        ("id,small,large\n1,1,1\n2,,1\n", "a cost is missing"),
        ("model,cost\nsmall,-1\nlarge,1\n", "of at least 0"),
        ("model,cost\nsmall,\nlarge,1\n", "a cost is missing"),
        ("model,cost,latency\nsmall\nlarge,1,1\n", ":2: 1 values"),
        ("what\n", "first line must be"),
    ],
)
def test_what_are_no_costs_is_refused(file: Path, tmp_path: Path, text: str, message: str) -> None:
    costs = tmp_path / "c.csv"
    costs.write_text(text)
    with pytest.raises(MatrixError, match=message):
        read_matrix(file, costs)


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.csv.gz"
    path.write_bytes(gzip.compress(LINES.encode())[:-9])
    with pytest.raises(MatrixError):
        read_matrix(path)
