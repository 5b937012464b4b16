"""Prompts of a wanted length, made up from numbers: the same number always gives the same text, so shared blocks are shared prefixes.

A token is a word of three letters and the space before the next: what a tokeniser makes of it is about as many.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

_WORDS: Sequence[bytes] = [bytes(letters) + b" " for letters in product(b"bdfgklmnprstvwxz", b"aeiu", b"nlrt")]
_CHUNK = 2_048  # longer blocks repeat themselves
BYTES_PER_TOKEN = 4


class Block(NamedTuple):
    """A piece of a prompt: which text, and how many tokens of it."""

    seed: str
    tokens: int


def prompt(blocks: Sequence[Block]) -> bytes:
    """The text of the blocks in turn: ASCII, without anything that JSON would escape."""
    return b"".join(map(_text, blocks))[:-1]


def _text(block: Block) -> bytes:
    digest = hashlib.shake_128(block.seed.encode()).digest(min(block.tokens, _CHUNK))
    text = b"".join([_WORDS[byte] for byte in digest])
    if block.tokens <= _CHUNK:
        return text
    whole, rest = divmod(block.tokens, _CHUNK)
    return text * whole + text[: rest * BYTES_PER_TOKEN]
