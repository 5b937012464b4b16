"""Versions of what a policy knows: from rows of `policy_states` and back, and which of them are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gateway.learning.scopes import Scope
from gateway.serving.choice import Snapshot
from gateway.store.lazily import Lazily
from gateway.store.learning import Kept, Stored

if TYPE_CHECKING:
    from policies import rewrapping, states
else:
    rewrapping, states = Lazily("policies.rewrapping"), Lazily("policies.states")

KEEP: Final = 20
_HOUR_S: Final = 3_600.0
_DAY_S: Final = 86_400.0
_WEEK_S: Final = 7 * _DAY_S


class Version(Snapshot, frozen=True):
    """A snapshot, and what it is of. version 0: nothing was learnt yet. observations: decisions that are in it; data_from, data_to: when
    the first and the last of them were decided, seconds since 1970, as is `created`. note: why it is not the one before and what came
    since."""

    plans: tuple[str, ...] = ()
    feature_version: str = ""
    config_hash: str = ""
    created: float = 0.0
    observations: int = 0
    data_from: float | None = None
    data_to: float | None = None
    note: str | None = None


def nothing(scope: Scope) -> Version:
    """What is known before anything is."""
    return Version(0, scope.algorithm.empty(), scope.plans, scope.feature_version, scope.config_hash)


def opened(scope: Scope, row: Stored) -> Version:
    """What stands in the row. Raises ValueError where it is of another algorithm, other plans or other features."""
    if row.plans != scope.plans:
        raise ValueError("it is of other plans")
    if not _reads(scope, row.feature_version):
        raise ValueError("it is of other features")
    return as_version(scope, row, states.unpacked(row.state))


def as_version(scope: Scope, row: Stored, arrays: Any) -> Version:
    """The row's version with the state that these arrays are of. Raises ValueError where they do not fit."""
    state = _fitted(scope, arrays)
    return Version(
        row.version,
        state,
        scope.plans,
        scope.feature_version,
        row.config_hash,
        row.created,
        row.observations,
        row.data_from,
        row.data_to,
        row.note,
    )


def carried(scope: Scope, version: Version) -> Version | None:
    """The version under a new configuration of the same scope; None where it does not fit."""
    if version.plans != scope.plans or not _reads(scope, version.feature_version):
        return None
    try:
        state = _fitted(scope, states.arrays(version.state))
    except ValueError:
        return None
    return msgspec.structs.replace(version, state=state, feature_version=scope.feature_version)


def _fitted(scope: Scope, arrays: Any) -> Any:
    """The state that these arrays are of, also where wrappers have come or gone since. Raises ValueError where they do not fit."""
    empty = scope.algorithm.empty()
    try:
        return states.restored(empty, arrays)
    except ValueError:
        return rewrapping.rewrapped(empty, arrays)


def _reads(scope: Scope, features: str) -> bool:
    """Whether a state of these features may be the scope's: they are its own, or its algorithm's and then those of other wrappers."""
    if features == scope.feature_version:
        return True
    own = ",".join(f"{each.name}:{each.dim}" for each in rewrapping.innermost(scope.algorithm).encoders)
    return f"{features},".startswith(f"{own}," if own else "")


def row_of(scope: Scope, version: Version) -> Stored:
    """The version as a row."""
    return Stored(
        scope.name,
        version.version,
        version.created,
        "full",
        version.config_hash,
        version.plans,
        version.feature_version,
        states.packed(states.arrays(version.state)),
        version.observations,
        version.data_from,
        version.data_to,
        version.note,
    )


def to_drop(kept: Sequence[Kept], now: float, most: int = 50) -> list[int]:
    """Which versions may go, the oldest first, at most so many.

    There stay the newest KEEP, one of each hour of the last week, one of each day before, and those with a note: what stands between two
    that stay can be made again from what was learnt in between, but not across a note.
    """
    seen: set[tuple[float, int]] = set()
    spare = []
    for each in kept[: max(0, len(kept) - KEEP)]:
        span = _HOUR_S if now - each.created < _WEEK_S else _DAY_S
        place = span, int(each.created // span)
        if place in seen and each.note is None:
            spare.append(each.version)
        seen.add(place)
    return spare[:most]
