"""Cutting bytes into reads, as a network does."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

cuts = st.lists(st.integers(0, 400), max_size=12)
"""Places to cut at; `reads` brings them into the range of a stream."""


def reads(stream: bytes, cuts: Sequence[int]) -> list[bytes]:
    """The stream in pieces, some of them empty."""
    places = sorted(cut % (len(stream) + 1) for cut in cuts)
    return [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]
