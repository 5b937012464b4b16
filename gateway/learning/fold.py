"""One fold: what waits in `to_learn` goes into the policies' states, exactly once, in one transaction.

    to_learn ──▶ decisions + outcomes ──▶ labels ──▶ observations ──▶ policy.fold ──▶ policy_states, learned

Who has the turn does it for all processes. What was taken is deleted in the same transaction, so whatever breaks, nothing is lost and
nothing counts twice. Within a version decisions are in the order of their ids, and a version is one call of `fold`: it can be made again.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal

import msgspec

from gateway.access.link import Session
from gateway.learning import rebuilding, snapshots
from gateway.learning.labels import METRIC, Label, Worth, label
from gateway.learning.observations import Reason, observations, taught, unfit
from gateway.learning.scopes import Scope
from gateway.learning.snapshots import Version
from gateway.store import learning as store
from gateway.store.columns import first_id
from gateway.store.joining import GRACE_S
from gateway.store.learning import Facts, Outcome, Taught, ToLearn
from policies.signals.calibration import Calibration
from policies.values.outcome import Observation

log = logging.getLogger("trilemma.learning")

Look = Reason | Literal["learnt"]
"""What becomes of what was said of a decision."""

PATIENCE_S: Final = 600.0
"""How long somebody may take to learn what this process cannot, from decisions of a configuration that it does not have: that may be new,
and on its way to all."""

_BY_CONFIGURATION: Final[frozenset[Look]] = frozenset(("stateless", "unknown_plan", "other_features"))

_SOONEST_S: Final = 0.1
_LATEST_S: Final = 60.0


@dataclass(frozen=True)
class Folded:
    """versions: new ones, by scope. count: observations in them. waiting: rows that are left. more: some of them can be folded at once.
    compared: scopes and sources, as `Known` has them."""

    versions: Mapping[str, Version]
    count: int
    skipped: Mapping[Reason, int]
    waiting: int
    more: bool
    compared: AbstractSet[tuple[str, str]] = frozenset()


@dataclass(frozen=True)
class Known:
    """What the process that folds brings along. versions: what it serves with. fresh: scopes whose configuration it has just taken up: it
    may make their states anew where they do not fit, while who comes from an older configuration must leave them alone. compared: scopes
    and sources that are known to have labelled two plans of that scope."""

    scopes: Mapping[str, Scope]
    versions: Mapping[str, Version] = field(default_factory=dict)
    fresh: AbstractSet[str] = frozenset()
    calibrations: Mapping[str, Calibration] = field(default_factory=dict)
    compared: AbstractSet[tuple[str, str]] = frozenset()


def fold_some(session: Session, known: Known, most: int = 500) -> Folded | None:
    """Folds up to so many rows; None: it is somebody else's turn."""
    return _Fold(session, known).done(most) if session.mine(store.TURN) else None


Learnt = Mapping[tuple[str, str, str], tuple[float, float]]
Change = tuple[Taught, Sequence[Observation]]


class _Head:
    """The newest version of a scope, with what is to come into the next one. made: it is one that this transaction has stored."""

    def __init__(self, version: Version, *, made: bool = False) -> None:
        self.version = version
        self.made = made
        self.learned: list[Change] = []
        self.taken_back: list[Change] = []

    @property
    def changes(self) -> list[Observation]:
        """In their order."""
        return [each for _, found in (*self.taken_back, *self.learned) for each in found]


class _Fold:
    def __init__(self, session: Session, known: Known) -> None:
        self._session = session
        self._known = known
        self._now = session.now()
        self._newest = dict(store.newest(session))
        self._heads: dict[str, _Head | None] = {}
        self._erased: set[str] = set()
        self._skipped: Counter[Reason] = Counter()
        self._worth = Worth(known.calibrations, partial(store.plans_labelled, session), known.compared)

    def done(self, most: int) -> Folded:
        for name in sorted(self._known.fresh & self._known.scopes.keys()):
            if self._known.scopes[name].learns:
                self._head(name)
        rows = store.due(self._session, self._now, most)
        taken = self._take(rows)
        back = self._take_back(most)
        versions: dict[str, Version] = {}
        count = 0
        for name, head in sorted(self._heads.items()):
            if head is not None and (version := self._written(name, head)) is not None:
                versions[name] = version
                count += len(head.learned) + len(head.taken_back)
        store.done(self._session, taken)
        more = (len(rows) == most and bool(taken)) or back == most
        return Folded(versions, count, self._skipped, store.waiting(self._session), more, self._worth.compared)

    def _take(self, rows: Sequence[ToLearn]) -> list[ToLearn]:
        """Looks at each decision; the rows that need no further look."""
        by_id: dict[str, list[ToLearn]] = defaultdict(list)
        for row in rows:
            by_id[row.decision_id].append(row)
        ids = sorted(by_id)
        facts = store.facts(self._session, ids)
        outcomes = store.outcomes(self._session, ids)
        learnt = store.learnt(self._session, ids)
        taken: list[ToLearn] = []
        for id_ in ids:
            found = self._look(id_, facts.get(id_), outcomes.get(id_, ()), learnt, max(row.created for row in by_id[id_]))
            if found is None:
                continue
            if isinstance(found, float):
                for row in by_id[id_]:
                    store.postpone(self._session, row, found)
                continue
            if found != "learnt":
                self._skipped[found] += 1
            taken += by_id[id_]
        return taken

    def _look(self, id_: str, facts: Facts | None, outcomes: Sequence[Outcome], learnt: Learnt, said: float) -> Look | float | None:
        """What becomes of it, when to look again, or None: it is left to others. said: when it was last said."""
        if facts is None:
            return "never_came" if id_ < first_id(self._now - GRACE_S) else self._later(said)
        if facts.plan is None:
            return "relayed"
        scope = self._known.scopes.get(facts.policy)
        if scope is None:
            return "unknown_policy" if self._now - said > PATIENCE_S else self._later(said)
        head = self._head(scope.name) if scope.learns else None
        if head is None and scope.learns:
            return None
        before = learnt.get((id_, scope.name, METRIC))
        found = self._learn(scope, head, facts, self._worth.label(scope.name, outcomes, learnt=before is not None), before)
        if found == "unlabelled" and label(outcomes) is not None:
            found = "one_plan"
        if found in _BY_CONFIGURATION and facts.config_hash != scope.config_hash and self._now - said <= PATIENCE_S:
            return self._later(said)
        return found

    def _learn(self, scope: Scope, head: _Head | None, facts: Facts, said: Label | None, before: tuple[float, float] | None) -> Look:
        reason = unfit(scope, facts)
        if reason is not None or head is None:
            return reason or "stateless"
        new = taught(facts, said, before)
        return self._add(head.learned, scope, new, facts) if isinstance(new, Taught) else new

    def _take_back(self, most: int) -> int:
        """What was erased; how many rows are done with."""
        forgotten: set[str] = set()
        done = 0
        for row, facts, asked in store.retractions(self._session, most):
            scope = self._known.scopes.get(facts.policy)
            if scope is None or not scope.learns:
                if self._now - asked <= PATIENCE_S:
                    continue
                # Nobody can take it back, so what holds it must go.
                forgotten.add(facts.policy)
            else:
                head = self._head(scope.name)
                if head is None:
                    continue
                reason = unfit(scope, facts) or self._add(head.taken_back, scope, row, facts)
                if reason != "learnt":
                    self._skipped[reason] += 1
                self._erased.add(scope.name)
            store.retracted(self._session, facts.policy, row)
            done += 1
        for policy in sorted(forgotten):
            store.drop_all_versions(self._session, policy)
        return done

    def _add(self, to: list[Change], scope: Scope, row: Taught, facts: Facts) -> Look:
        try:
            to.append((row, observations(scope, row, facts)))
        except (ValueError, msgspec.MsgspecError):
            return "other_features"
        return "learnt"

    def _later(self, said: float) -> float:
        return self._now + min(_LATEST_S, max(_SOONEST_S, (self._now - said) / 2))

    def _head(self, name: str) -> _Head | None:
        """The scope's newest version; None: it is of another configuration than this process has."""
        if name not in self._heads:
            self._heads[name] = self._found(self._known.scopes[name])
        return self._heads[name]

    def _found(self, scope: Scope) -> _Head | None:
        newest = self._newest.get(scope.name)
        mine = self._known.versions.get(scope.name)
        if newest is None:
            if scope.name in self._known.fresh and store.last_noted(self._session, scope.name):
                return self._rebuilt(scope, "there was no state")
            return _Head(snapshots.nothing(scope))
        if mine is not None and mine.version == newest and store.created(self._session, scope.name, newest) == mine.created:
            return _Head(mine)
        row = store.state(self._session, scope.name, newest)
        assert row is not None, "it was there before in the same transaction"
        try:
            return _Head(snapshots.opened(scope, row))
        except ValueError as error:
            if scope.name not in self._known.fresh:
                return None
            log.warning("what `%s` had learnt does not fit: %s", scope.name, error)
            number = self._next(scope.name)
            return _Head(rebuilding.adapted(self._session, scope, row, number, self._now, str(error)), made=True)

    def _rebuilt(self, scope: Scope, why: str) -> _Head:
        return _Head(rebuilding.rebuilt(self._session, scope, self._next(scope.name), self._now, why), made=True)

    def _next(self, name: str) -> int:
        if name not in self._newest:
            self._newest[name] = store.last_noted(self._session, name)
        self._newest[name] += 1
        return self._newest[name]

    def _written(self, name: str, head: _Head) -> Version | None:
        """Stores the scope's next version, if there is anything new; the newest one then, None: nothing is new."""
        scope = self._known.scopes[name]
        state = self._folded(scope, head)
        if head.learned or head.taken_back:
            head.version = self._version(scope, head, state)
            head.made = True
            store.put_state(self._session, snapshots.row_of(scope, head.version))
            store.put_learned(self._session, name, head.version.version, [row for row, _ in head.learned])
        if not head.made:
            return None
        kept = store.versions(self._session, name)
        # Older versions still hold what was erased.
        spare = [each.version for each in kept[:-1]] if name in self._erased else snapshots.to_drop(kept, self._now)
        store.drop_versions(self._session, name, spare)
        return head.version

    def _version(self, scope: Scope, head: _Head, state: Any) -> Version:
        old, changes = head.version, head.changes
        times = [at for at in (old.data_from, old.data_to, *(each.at for each in changes)) if at is not None]
        return Version(
            version=self._next(scope.name),
            state=state,
            plans=scope.plans,
            feature_version=scope.feature_version,
            config_hash=scope.config_hash,
            created=self._now,
            observations=old.observations + sum(each.count for each in changes),
            data_from=min(times, default=None),
            data_to=max(times, default=None),
            note=f"{len(head.taken_back)} decisions were erased" if head.taken_back else None,
        )

    def _folded(self, scope: Scope, head: _Head) -> Any:
        """The state with what is to come into it. What the policy cannot take is left out, for it must not keep the rest."""
        if not head.changes:
            return head.version.state
        try:
            return scope.algorithm.fold(head.version.state, head.changes)
        except Exception:
            log.exception("`%s` cannot learn from %d decisions; each is tried by itself", scope.name, len(head.learned))
        if not _bears(scope, head, head.taken_back):
            # The log does not have what was erased.
            head.version = self._rebuilt(scope, "what was erased could not be taken back").version
            head.made, head.taken_back = True, []
        count = len(head.learned)
        head.learned = [each for each in head.learned if _bears(scope, head, [each])]
        if not _bears(scope, head, [*head.taken_back, *head.learned]):
            head.learned = []
        self._skipped["refused"] += count - len(head.learned)
        return scope.algorithm.fold(head.version.state, head.changes) if head.changes else head.version.state


def _bears(scope: Scope, head: _Head, those: Sequence[Change]) -> bool:
    """Whether the policy can take these changes."""
    try:
        scope.algorithm.fold(head.version.state, [each for _, found in those for each in found])
    except Exception:
        log.exception("`%s` cannot learn from %d decisions", scope.name, len(those))
        return False
    return True
