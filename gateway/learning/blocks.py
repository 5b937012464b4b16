"""Blocks of features as they stand in a row of `decisions`.

feature_version = "shape-1:24,static-1:64"        features = 24 numbers, then 64; float32, little-endian
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gateway.store.lazily import Lazily

if TYPE_CHECKING:
    import numpy as np

    from policies.values.situation import Vector
else:
    np = Lazily("numpy")


def unpacked(features: bytes | None, feature_version: str | None) -> Mapping[str, Vector]:
    """The blocks by name, in order. Raises ValueError where the two do not fit, or where a number is none."""
    if not features or not feature_version:
        return {}
    sizes = [(name, int(size)) for name, _, size in (part.rpartition(":") for part in feature_version.split(","))]
    if any(size < 0 for _, size in sizes) or 4 * sum(size for _, size in sizes) != len(features):
        raise ValueError("the features are not as long as their version says")
    numbers = np.frombuffer(features, "<f4").astype(np.float32, copy=False)
    if not np.isfinite(numbers).all():
        raise ValueError("a feature is not a number")
    blocks: dict[str, Vector] = {}
    start = 0
    for name, size in sizes:
        blocks[name] = numbers[start : start + size]
        start += size
    return blocks
