from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from policies.states import arrays, packed, restored, unpacked


@dataclass(frozen=True)
class Inside:
    memory: Any
    seen: int


@dataclass(frozen=True)
class State:
    gram: Any
    landmark: float
    inner: Inside | None
    nothing: None = None


EMPTY = State(np.zeros((2, 3)), 0.0, Inside(np.zeros((0, 4), np.float32), 0))
FULL = State(np.arange(6.0).reshape(2, 3) / 7, 1.7e9 + 1 / 3, Inside(np.ones((5, 4), np.float32), 12))


def test_every_number_has_a_dotted_name() -> None:
    found = arrays(FULL)

    assert sorted(found) == ["gram", "inner.memory", "inner.seen", "landmark"]
    assert found["inner.seen"].item() == 12
    assert found["landmark"].item() == 1.7e9 + 1 / 3


def test_a_state_comes_back_from_its_bytes_bit_for_bit() -> None:
    back = restored(EMPTY, unpacked(packed(arrays(FULL))))

    assert back.gram.tobytes() == FULL.gram.tobytes()
    assert back.landmark == FULL.landmark
    assert isinstance(back.landmark, float)
    assert isinstance(back.inner.seen, int)
    assert (back.inner.seen, back.nothing) == (12, None)
    assert back.inner.memory.dtype == np.float32
    assert back.inner.memory.shape == (5, 4)


def test_nothing_learned_is_nothing_kept() -> None:
    assert arrays(None) == {}
    assert restored(None, unpacked(packed({}))) is None


@pytest.mark.parametrize(
    "name_and_array",
    [
        ("gram", np.zeros((3, 3))),  # another number of plans
        ("gram", np.zeros((2, 4))),  # of features
        ("gram", np.zeros((2, 3), np.float32)),
        ("gram", np.zeros(2)),
        ("inner.memory", np.zeros((5, 3), np.float32)),
    ],
)
def test_a_snapshot_of_other_plans_or_features_is_refused(name_and_array: tuple[str, Any]) -> None:
    name, array = name_and_array

    with pytest.raises(ValueError, match=name):
        restored(EMPTY, arrays(FULL) | {name: array})


def test_a_snapshot_of_another_algorithm_is_refused() -> None:
    with pytest.raises(ValueError, match=r"holds no `inner\.seen`"):
        restored(EMPTY, {name: array for name, array in arrays(FULL).items() if name != "inner.seen"})


@pytest.mark.parametrize("data", [b"", b"{}", b"PK\x03\x04", packed(arrays(FULL))[:100]])
def test_bytes_that_are_no_snapshot_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="no snapshot"):
        unpacked(data)


def test_objects_are_never_unpickled() -> None:
    with pytest.raises(ValueError, match="Object arrays"):
        packed({"evil": np.array([object()])})
