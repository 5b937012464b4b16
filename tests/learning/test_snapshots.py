"""A version as a row and back, and which versions are kept."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from gateway.learning import snapshots
from gateway.learning.snapshots import KEEP, Version, to_drop
from gateway.store.learning import Kept
from tests.learning.making import PLANS, scope, sums
from tests.support.means import Means, Sums

DAY = 86_400.0
NOW = 1_000 * DAY


def version(number: int = 3) -> Version:
    """With a number that needs every bit."""
    state = Sums(np.array([1.0, 2.0]), np.array([1 / 3, 0.1]), np.array([[0.1, 2.0, np.pi], [0.0, -1e-300, 7.0]]))
    return msgspec.structs.replace(snapshots.nothing(scope()), version=number, state=state, created=5.0, observations=3, data_from=1.0)


def test_a_row_is_the_version_to_the_bit() -> None:
    back = snapshots.opened(scope(), snapshots.row_of(scope(), version()))
    assert sums(back) == sums(version())
    assert msgspec.structs.replace(back, state=None) == msgspec.structs.replace(version(), state=None)


@pytest.mark.parametrize(
    ("other", "why"),
    [(scope(("large", "small")), "other plans"), (scope((*PLANS, "third")), "plans"), (scope(dim=2), "features")],
)
def test_what_does_not_fit_is_told(other: object, why: str) -> None:
    """Plans in another order are other plans, though all has the same shape."""
    with pytest.raises(ValueError, match=why):
        snapshots.opened(other, snapshots.row_of(scope(), version()))  # type: ignore[arg-type]


@pytest.mark.parametrize("state", [b"something else", b"", b"PK\x03\x04 and no more"])
def test_what_is_no_snapshot_is_told(state: bytes) -> None:
    row = snapshots.row_of(scope(), version())
    with pytest.raises(ValueError, match="no snapshot"):
        snapshots.opened(scope(), row._replace(state=state))


def test_a_new_configuration_keeps_what_still_fits() -> None:
    same, other = snapshots.carried(scope(), version()), snapshots.carried(scope(("small", "third")), version())
    assert same is not None
    assert same.version == 3
    assert sums(same) == sums(version())
    assert other is None


def test_nothing_is_a_version_too() -> None:
    assert snapshots.nothing(scope()).version == 0
    assert sums(snapshots.nothing(scope())) == ([0.0, 0.0], [0.0, 0.0], [[0.0] * 3] * 2)
    assert scope().feature_version == "size-1:3"
    assert isinstance(scope().algorithm, Means)


def kept_after(count: int, every_s: float, noted: tuple[int, ...] = ()) -> list[Kept]:
    """Which are left of so many versions, the last of which is new, once all that may go is gone."""
    kept = [Kept(n, NOW - (count - n) * every_s, "made anew" if n in noted else None) for n in range(1, count + 1)]
    while gone := to_drop(kept, NOW, 7):
        kept = [each for each in kept if each.version not in gone]
    return kept


def test_the_newest_are_kept_and_one_of_each_hour() -> None:
    kept = kept_after(500, 60.0)
    assert [each.version for each in kept[-KEEP:]] == list(range(481, 501))
    older = [each.created for each in kept[:-KEEP]]
    assert len(older) == len({at // 3600 for at in older}) == 9, "480 minutes are of nine hours"


def test_of_last_month_one_of_each_day_is_kept() -> None:
    kept = kept_after(24 * 30, 3600.0)
    older = [each for each in kept if NOW - each.created >= 7 * DAY]
    assert len(older) == len({each.created // DAY for each in older}) == 24
    assert len(kept) == 24 + 7 * 24


def test_those_with_a_note_stay() -> None:
    assert {7, 8, 9} <= {each.version for each in kept_after(200, 1.0, (7, 8, 9))}


def test_a_little_at_a_time() -> None:
    assert to_drop([Kept(n, NOW - 1000 + n, None) for n in range(1, 101)], NOW, 5) == [2, 3, 4, 5, 6]
