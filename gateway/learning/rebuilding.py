"""States made from the log: anew where they no longer fit, or as they were at some version."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from gateway.access.link import Session
from gateway.learning import snapshots
from gateway.learning.observations import observations, unfit
from gateway.learning.scopes import Scope
from gateway.learning.snapshots import Version
from gateway.store import history
from gateway.store import learning as store
from gateway.store.lazily import Lazily
from gateway.store.learning import Facts, Stored, Taught
from policies.values.outcome import Observation

if TYPE_CHECKING:
    from policies import states
else:
    states = Lazily("policies.states")

log = logging.getLogger("trilemma.learning")

MOST: Final = 20_000
"""Decisions that a state is made from anew, the newest; what is older is forgotten."""

_AT_ONCE: Final = 1_000


def adapted(session: Session, scope: Scope, row: Stored, version: int, now: float, why: str) -> Version:
    """Stores as `version` what becomes of a state that does not fit the scope.

    Where only the plans changed, an algorithm may have a function for that: `adapted(arrays, old plans, new plans)`, which raises
    ValueError for what it cannot do. Else the state is made anew.
    """
    change = getattr(scope.algorithm, "adapted", None)
    if change is not None and row.plans != scope.plans and row.feature_version == scope.feature_version:
        try:
            fitting = snapshots.as_version(scope, row, change(states.unpacked(row.state), row.plans, scope.plans))
        except ValueError as error:
            log.warning("what `%s` had learnt cannot be taken over: %s", scope.name, error)
        else:
            made = msgspec.structs.replace(fitting, version=version, created=now, config_hash=scope.config_hash, note=f"taken over: {why}")
            store.put_state(session, snapshots.row_of(scope, made))
            return made
    return rebuilt(session, scope, version, now, why)


def rebuilt(session: Session, scope: Scope, version: int, now: float, why: str, also: str | None = None) -> Version:
    """Stores as `version` a state made anew from the newest decisions that were learnt from and still fit. What went in is noted, and that
    the rest is not known any more; the notes from before stay, so that versions from then can be made again.

    also: another scope of the same virtual model; what that has learnt from goes in, too.
    """
    state = scope.algorithm.empty()
    learned: list[Taught] = []
    times: list[float] = []
    found = _newest(session, scope.name, also)
    for start in range(0, len(found), _AT_ONCE):
        rows, those = _fitting(scope, found[start : start + _AT_ONCE])
        try:
            state = scope.algorithm.fold(state, those)
        except Exception:
            log.exception("`%s` cannot learn again from %d decisions", scope.name, len(rows))
            continue
        learned += rows
        times += [each.at for each in those]
    store.put_learned(session, scope.name, version, learned)
    store.forget_before(session, scope.name, version)
    made = Version(
        version=version,
        state=state,
        plans=scope.plans,
        feature_version=scope.feature_version,
        config_hash=scope.config_hash,
        created=now,
        observations=len(learned),
        data_from=min(times, default=None),
        data_to=max(times, default=None),
        note=f"made anew from {len(learned)} decisions: {why}",
    )
    store.put_state(session, snapshots.row_of(scope, made))
    log.warning("`%s` %s", scope.name, made.note)
    return made


def recomputed(session: Session, scope: Scope, version: int) -> Version:
    """The scope's state as it was at that version, to the bit. Raises LookupError where there is none of that number, or none that old any
    more, and ValueError where what it was made from is not all there, or where it is of other plans, features or another algorithm."""
    row = store.state(session, scope.name, version)
    if row is None:
        raise LookupError(f"no version of `{scope.name}` is as old as {version}")
    if version > store.newest(session)[scope.name]:
        raise LookupError(f"`{scope.name}` has no version {version} yet")
    made = snapshots.opened(scope, row)
    for number in range(row.version + 1, version + 1):
        entries = store.log(session, scope.name, number)
        if not entries or any(facts is None for _, facts in entries):
            raise ValueError(f"decisions that version {number} of `{scope.name}` learnt from are gone")
        those = [each for taught, facts in entries if facts is not None for each in observations(scope, taught, facts)]
        made = msgspec.structs.replace(
            made,
            version=number,
            state=scope.algorithm.fold(made.state, those),
            observations=made.observations + sum(each.count for each in those),
            note=None,
        )
    return made


def _newest(session: Session, name: str, also: str | None) -> list[tuple[Taught, Facts]]:
    found = store.newest_log(session, name, MOST)
    if also is None:
        return found
    of_both = {row.decision_id: (row, facts) for row, facts in (*store.newest_log(session, also, MOST), *found)}
    return [of_both[id_] for id_ in sorted(of_both)][-MOST:]


def rolled_back(session: Session, scope: Scope, to: int, version: int, now: float) -> Version:
    """Stores as `version` the state as it was at version `to`, and notes that what was learnt since is not known any more, so that what is
    said of those decisions later counts as new. Raises as `recomputed`."""
    then = recomputed(session, scope, to)
    made = msgspec.structs.replace(then, version=version, created=now, config_hash=scope.config_hash, note=f"back to version {to}")
    store.put_state(session, snapshots.row_of(scope, made))
    store.put_learned(session, scope.name, version, history.learnt_since(session, scope.name, to))
    log.warning("`%s` %s", scope.name, made.note)
    return made


def _fitting(scope: Scope, found: Sequence[tuple[Taught, Facts]]) -> tuple[list[Taught], list[Observation]]:
    rows: list[Taught] = []
    those: list[Observation] = []
    for row, facts in found:
        if unfit(scope, facts) is not None:
            continue
        try:
            those += observations(scope, row, facts)
        except (ValueError, msgspec.MsgspecError):
            continue
        rows.append(row)
    return rows, those
