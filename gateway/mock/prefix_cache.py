"""An engine's prefix cache: blocks of prompt tokens, so many of them, the least recently used goes first.

Modelled on vLLM's: whole blocks only, found again from the beginning of a prompt on, and of a prompt that nobody uses any more the end
goes before the beginning. Unlike vLLM's, running sequences hold nothing back, and answers leave nothing behind.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

BLOCK_TOKENS: Final = 32


def block_names(prompt: Sequence[str]) -> list[int]:
    """A name for each whole block of a prompt (its tokens). A name stands for the block and all before it, and is the same everywhere."""
    names = []
    name = b""
    for end in range(BLOCK_TOKENS, len(prompt) + 1, BLOCK_TOKENS):
        name = blake2b("".join(prompt[end - BLOCK_TOKENS : end]).encode("utf-8", "surrogatepass"), digest_size=8, salt=name).digest()
        names.append(int.from_bytes(name))
    return names


def tokens_saved(held: int, tokens: int) -> int:
    """How many of a prompt's tokens need not be computed when so many of its leading blocks are held: never all, the last always is."""
    return BLOCK_TOKENS * min(held, max(0, tokens - 1) // BLOCK_TOKENS)


class PrefixCache:
    """Which blocks one engine holds: at most `blocks`, of whatever size the names stand for."""

    def __init__(self, blocks: int) -> None:
        self._blocks = blocks
        self._held: OrderedDict[int, None] = OrderedDict()

    def use(self, names: Sequence[int]) -> int:
        """How many leading blocks of a prompt were held. All of it is from now on, as far as there is room."""
        held = self._held
        hits = next((place for place, name in enumerate(names) if name not in held), len(names))
        for name in reversed(names):
            held[name] = None
            held.move_to_end(name)
        while len(held) > self._blocks:
            held.popitem(last=False)
        return hits
