"""A policy's state as named arrays, and back: for snapshots, for merging, for size. No pickle.

arrays(state)                 {"gram": ..., "inner.moment": ..., "landmark": ...}
restored(empty, arrays)       a state of the same shape as `empty`, the policy's own `empty()`
packed(arrays), unpacked(b)   bytes of one array after the other (numpy's npz, without pickle)
"""

from __future__ import annotations

import dataclasses
import io
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = Mapping[str, npt.NDArray[Any]]


def arrays(state: Any, prefix: str = "") -> dict[str, npt.NDArray[Any]]:
    """Every number of a state by its dotted name. A state is None, or a frozen dataclass of arrays, numbers and further states."""
    found: dict[str, npt.NDArray[Any]] = {}
    if state is None:
        return found
    for field in dataclasses.fields(state):
        value = getattr(state, field.name)
        name = prefix + field.name
        if value is None or dataclasses.is_dataclass(value):
            found |= arrays(value, f"{name}.")
        else:
            found[name] = np.asarray(value)
    return found


def restored(empty: Any, found: Arrays, prefix: str = "") -> Any:
    """The state that these arrays are of. Raises ValueError where they do not fit: another algorithm, other plans or features."""
    if empty is None:
        return None
    values: dict[str, Any] = {}
    for field in dataclasses.fields(empty):
        value = getattr(empty, field.name)
        name = prefix + field.name
        if value is None or dataclasses.is_dataclass(value):
            values[field.name] = restored(value, found, f"{name}.")
            continue
        if name not in found:
            raise ValueError(f"the snapshot holds no `{name}`")
        array = found[name]
        if isinstance(value, np.ndarray):
            # What is empty at first is a memory, and grows; all else is fixed by the plans and the features.
            grows = value.ndim > 0 and len(value) == 0
            fits = array.shape[1:] == value.shape[1:] if grows else array.shape == value.shape
            if array.dtype != value.dtype or array.ndim != value.ndim or not fits:
                raise ValueError(f"`{name}` of the snapshot has another shape")
            values[field.name] = array
        else:
            values[field.name] = type(value)(array.item())
    return type(empty)(**values)


def packed(found: Arrays) -> bytes:
    """The arrays as bytes."""
    out = io.BytesIO()
    np.savez_compressed(out, allow_pickle=False, **dict(found))
    return out.getvalue()


def unpacked(data: bytes) -> dict[str, npt.NDArray[Any]]:
    """The arrays of these bytes. Raises ValueError for anything else."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, KeyError, EOFError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError("this is no snapshot") from error
