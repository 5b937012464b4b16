"""`hashed-1`: signed hashed n-grams of words and of characters (Weinberger et al. 2009).

    h_b = sum over n-grams g of s(g) [bucket(g) = b],  s(g) = +-1

The n-grams: words, pairs of words, and five bytes in a row, which is what languages without spaces have. Half of the dimensions are of
words, the other half of bytes. The hash is the same on every machine.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

from models.encoders.conversation import Conversation
from models.encoders.text import utf8

DIM: Final = 32
_HALF: Final = DIM // 2
_SHIFT: Final = np.uint64(64 - 5)  # 16 buckets and a sign
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_NEXT: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_FIVE_BYTES: Final = np.uint64(0xFFFFFFFFFF)
# Small letters; whatever parts words is a space.
_FOLD: Final = bytes(each + 32 if 65 <= each <= 90 else each if each >= 0x80 or chr(each).isalnum() else 32 for each in range(256))

Counts = npt.NDArray[np.int64]


def encoder() -> Conversation:
    """The encoder, with a memory of its own."""
    return Conversation("hashed-1", DIM, hashed)


def hashed(text: str) -> Counts:
    """(32,): the signed counts of a text's n-grams."""
    folded = utf8(text).translate(_FOLD)
    words = folded.split()
    ids = np.fromiter(map(crc32, words), np.uint64, len(words))
    return np.concatenate((_signed(np.concatenate((ids, ids[:-1] * _NEXT + ids[1:]))), _signed(_fives(folded))))


def _fives(folded: bytes) -> npt.NDArray[np.uint64]:
    """Every five bytes in a row, as numbers; none of a shorter text."""
    # Eight bytes are read at each place, so three more follow the last five.
    padded = folded + b"   "
    overlapping: npt.NDArray[np.uint64] = np.ndarray((max(0, len(padded) - 7),), "<u8", padded.ljust(8), strides=(1,))
    return overlapping & _FIVE_BYTES


def _signed(ids: npt.NDArray[np.uint64]) -> Counts:
    """(16,): for each id, +1 or -1 in its bucket."""
    mixed = ids * _MIX
    mixed ^= mixed >> np.uint64(29)
    mixed *= _NEXT
    counts = np.bincount((mixed >> _SHIFT).astype(np.int64), minlength=2 * _HALF)
    return counts[:_HALF] - counts[_HALF:]
