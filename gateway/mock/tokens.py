"""A small reversible tokeniser, and log-probabilities that depend on nothing but the token and its place."""

from __future__ import annotations

import re
from collections.abc import Iterable
from zlib import crc32

_PIECE = re.compile(r"<\|\w+\|>| ?\w+| ?[^\s\w<]+|<|\s")


def split(text: str) -> list[str]:
    """Words with the space before them, runs of punctuation, blanks, <|marks|>; joined they are the text again."""
    return _PIECE.findall(text)


class Vocabulary:
    """Token ids: a checksum of the piece, remembered so that it can be turned back."""

    def __init__(self) -> None:
        self._pieces: dict[int, str] = {}

    def id(self, piece: str) -> int:
        number = crc32(piece.encode()) & 0x7FFFFFFF
        while self._pieces.setdefault(number, piece) != piece:
            number += 1  # Two pieces with one checksum: the later one moves on.
        return number

    def ids(self, pieces: Iterable[str]) -> list[int]:
        return [self.id(piece) for piece in pieces]

    def piece(self, number: int) -> str:
        """The piece of an id; an id never given out reads as a mark with its number."""
        return self._pieces.get(number, f"<|{number}|>")


def logprob(piece: str, position: int) -> float:
    """Natural logarithm of the piece's probability at a position: in [-4, -0.001], the same for ever."""
    return -(crc32(f"{position}:{piece}".encode()) % 4000 + 1) / 1000


def rank(piece: str, position: int) -> int:
    """Rank (from 1) of a prompt's piece among all that could stand there."""
    return 1 + crc32(f"{piece}:{position}".encode()) % 3


def alternatives(piece: str, position: int, count: int) -> list[tuple[str, float]]:
    """The piece and less likely ones, `count` in all, likeliest first."""
    own = logprob(piece, position)
    return [(piece, own)] * (count > 0) + [(f" alt{k}", own - k / 2) for k in range(1, count)]
