from __future__ import annotations

import struct

import numpy as np
import pytest

from gateway.learning.blocks import unpacked


def test_blocks_stand_one_after_the_other() -> None:
    """As the serving writes them."""
    found = unpacked(struct.pack("<5f", 1.5, -2.0, 0.25, 8.0, 9.0), "shape-1:2,static-1:3")
    assert {name: block.tolist() for name, block in found.items()} == {"shape-1": [1.5, -2.0], "static-1": [0.25, 8.0, 9.0]}
    assert {block.dtype for block in found.values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize(("features", "version"), [(None, None), (b"", "shape-1:2"), (b"1234", None), (b"1234", "")])
def test_nothing_was_seen(features: bytes | None, version: str | None) -> None:
    assert unpacked(features, version) == {}


@pytest.mark.parametrize("version", ["shape-1:1", "shape-1:3", "shape-1:2,static-1:1", "shape-1", "shape-1:x", "a:-1,b:3"])
def test_what_does_not_fit_is_told(version: str) -> None:
    with pytest.raises(ValueError, match=r"features|invalid literal"):
        unpacked(struct.pack("<2f", 1.0, 2.0), version)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_is_no_number_is_told(number: float) -> None:
    with pytest.raises(ValueError, match="not a number"):
        unpacked(struct.pack("<2f", 1.0, number), "shape-1:2")
