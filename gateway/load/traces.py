"""Recorded arrivals (loadtests/data/README.md): when, how long the prompt and the answer, and which blocks of the prompt others share."""

from __future__ import annotations

import csv
import gzip
import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

import msgspec

import gateway

TRACES: Mapping[str, str] = {
    "azure_conv": "azure2023_conv.csv.gz",
    "azure_code": "azure2023_code.csv.gz",
    "mooncake_conversation": "mooncake_conversation.jsonl.gz",
}
BLOCK_TOKENS = 512
"""Tokens that one of Mooncake's hash ids stands for."""


class Row(msgspec.Struct, frozen=True):
    """One recorded request. at: seconds from the first; blocks: ids of the prompt's blocks of 512 tokens, equal for equal prefixes."""

    at: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()


class TraceMissing(Exception):
    """The file of a trace is not there; the text says which."""


class _Mooncake(msgspec.Struct):
    timestamp: int
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]


def folder() -> Path:
    """Where the traces lie in a clone of the repository."""
    return Path(gateway.__file__).resolve().parent.parent / "loadtests" / "data"


def digest(name: str) -> str:
    """SHA-256 of a trace's file. Raises TraceMissing."""
    return hashlib.sha256(_file(name).read_bytes()).hexdigest()


def read_trace(name: str) -> list[Row]:
    """A trace by its name in TRACES, in order of time. Raises TraceMissing."""
    file = _file(name)
    rows = list(_mooncake(file) if file.name.endswith(".jsonl.gz") else _azure(file))
    return sorted(rows, key=lambda row: row.at)


def _file(name: str) -> Path:
    file = folder() / TRACES[name]
    if not file.is_file():
        raise TraceMissing(f"the trace `{name}` needs {file}, which is not part of an installed wheel: run from a clone of the repository")
    return file


def _azure(file: Path) -> Iterator[Row]:
    with gzip.open(file, "rt", newline="") as lines:
        begin: datetime | None = None
        for stamp, prompt, output in _body(csv.reader(lines)):
            at = datetime.fromisoformat(stamp[:26])  # the seventh digit is finer than a datetime
            begin = begin or at
            yield Row((at - begin).total_seconds(), int(prompt), int(output))


def _body(rows: Iterator[list[str]]) -> Iterator[list[str]]:
    next(rows)
    return rows


def _mooncake(file: Path) -> Iterator[Row]:
    decoder = msgspec.json.Decoder(_Mooncake)
    with gzip.open(file, "rb") as lines:
        for line in lines:
            one = decoder.decode(line)
            yield Row(one.timestamp / 1e3, one.input_length, one.output_length, one.hash_ids)
