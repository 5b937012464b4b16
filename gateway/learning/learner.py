"""What a process learns, and learns from others: one task, which looks each 200 ms, folds what waits, and takes up newer versions.

learner = Learner(location, publish)
learner.configure(scopes)             at the start, and with each new configuration
await learner.run()                   until it is cancelled
await learner.close()

All that is asked of the database runs in one thread, through the driver alone. While the database is away, what is known stays.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from gateway.access.link import Link, NoSchema, Session
from gateway.learning import rebuilding, snapshots
from gateway.learning.fold import Folded, Known, fold_some
from gateway.learning.observations import Reason
from gateway.learning.scopes import Scope, scopes_of
from gateway.learning.snapshots import Version
from gateway.serving.state import State
from gateway.store import learning as store
from gateway.store.urls import Location
from gateway.store.writer import StoreError
from policies.signals.calibration import Calibration

log = logging.getLogger("trilemma.learning")

T = TypeVar("T")

Snapshots = Mapping[str, Version]
Publish = Callable[[Snapshots], None]

_FOLDING: Final = "another process is folding now; try again"
_WITHIN_S: Final = 10.0
_LONGEST_PAUSE_S: Final = 5.0
# A fold may take a quarter of the time, so that whoever else writes has the rest.
_REST: Final = 3.0


def _nobody(_snapshots: Snapshots) -> None:
    """Nobody needs to be told."""


class Learner:
    """publish: is told of every change, on the loop. every_s: how often it looks. batch: rows in one fold.

    folded: changes that this process has folded; skipped: what it took out without learning from it, by reason; waiting: rows left after
    its last fold, counted up to 10,000; last_fold: when that was, seconds since 1970, None: never; failures: looks that failed.
    calibrations: what sources' words are worth; may be replaced at any time, and counts for what is folded from then on.
    """

    def __init__(
        self,
        location: Location,
        publish: Publish = _nobody,
        *,
        every_s: float = 0.2,
        batch: int = 500,
        calibrations: Mapping[str, Calibration] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._link = Link(location, _WITHIN_S, "trilemma-learning")
        self._publish = publish
        self._every_s = every_s
        self._batch = batch
        self._compared: AbstractSet[tuple[str, str]] = frozenset()
        self.calibrations = calibrations or {}
        self._clock = clock
        self._hash: str | None = None
        self._scopes: Mapping[str, Scope] = {}
        self._fresh: frozenset[str] = frozenset()
        self._left: frozenset[str] = frozenset()
        self._reason: str | None = None
        self._pause_s = every_s
        self._looking = asyncio.Lock()
        self.snapshots: Snapshots = MappingProxyType({})
        self.folded = 0
        self.skipped: Counter[Reason] = Counter()
        self.waiting = 0
        self.last_fold: float | None = None
        self.failures = 0

    @property
    def trouble(self) -> str | None:
        """Why nothing can be learnt now; None when it can."""
        return self._reason

    def configure(self, scopes: Iterable[Scope]) -> None:
        """Takes up the scopes of a configuration, also those whose policies learn nothing. What still fits is kept, and known at once."""
        given = {scope.name: scope for scope in scopes}
        self._scopes = given
        self._fresh = frozenset(name for name, scope in given.items() if scope.learns)
        self._left = frozenset()
        found = {}
        for name in sorted(self._fresh):
            old = self.snapshots.get(name)
            kept = None if old is None else snapshots.carried(given[name], old)
            found[name] = snapshots.nothing(given[name]) if kept is None else kept
        self._swap(found)

    def follow(self, state: State) -> None:
        """Takes up the policies of a state, unless it has them already."""
        if state.hash != self._hash:
            self._hash = state.hash
            self.configure(scopes_of(state))

    async def run(self) -> None:
        """Looks until it is cancelled."""
        pause_s = 0.0
        while True:
            await asyncio.sleep(pause_s)
            pause_s = await self.step()

    async def step(self) -> float:
        """Looks once; for how long to rest, seconds. Nothing that goes wrong is raised."""
        started = time.monotonic()
        try:
            async with self._looking:
                more = await self._look()
        except StoreError as error:
            return self._failed(error)
        except Exception:
            log.exception("learning failed")
            return self._failed(StoreError("a fault of the gateway, see its log"))
        if self._reason is not None:
            log.warning("policies learn again")
        self._reason, self._pause_s = None, self._every_s
        took_s = time.monotonic() - started
        return _REST * took_s if more else max(self._every_s, _REST * took_s)

    async def rebuild(self, name: str) -> Version:
        """Makes the scope's state anew from what was learnt, in every process. Raises LookupError, StoreError."""
        async with self._looking:
            return await self._turned(name, functools.partial(_rebuild, scope=self._scopes[name], why="as was asked for"))

    async def roll_back(self, name: str, to: int) -> Version:
        """Makes the scope's state what it was at version `to`, in every process. Raises LookupError, ValueError, StoreError."""
        async with self._looking:
            return await self._turned(name, functools.partial(_roll_back, scope=self._scopes[name], to=to))

    async def prepare(self, scope: Scope, of: str) -> Version:
        """Makes a state for a scope that is to take another one's place, from what both have learnt. Raises StoreError."""
        version = await self._link.run(functools.partial(_rebuild, scope=scope, why=f"it takes the place of `{of}`", also=of))
        if version is None:
            raise StoreError(_FOLDING)
        return version

    async def read(self, work: Callable[[Session], T], /) -> T:
        """What `work` finds in the database. Raises StoreError."""
        return await self._link.read(work)

    async def recomputed(self, name: str, version: int) -> Version:
        """The scope's state as it was at that version, to the bit. Raises LookupError, ValueError and StoreError."""
        if version == 0:
            return snapshots.nothing(self._scopes[name])
        known = self.snapshots.get(name)
        if known is not None and known.version == version:
            return known
        scope = self._scopes[name]
        return await self._link.read(lambda session: rebuilding.recomputed(session, scope, version))

    async def close(self) -> None:
        """Ends the thread."""
        await self._link.close()

    async def _turned(self, name: str, work: Callable[[Session], Version | None]) -> Version:
        """A new version of a scope. Raises StoreError where it is somebody else's turn."""
        scopes = self._scopes
        version = await self._link.run(work)
        if version is None:
            raise StoreError(_FOLDING)
        self._take_up({name: version}, scopes)
        return version

    async def _look(self) -> bool:
        """Whether there is more to fold at once."""
        scopes, fresh = self._scopes, self._fresh
        seen = await self._link.read(functools.partial(look, scopes=scopes, known=self.snapshots))
        self._take_up(seen.versions, scopes)
        if self._scopes is scopes:
            self._tell_of(seen.misfits - fresh)
            self._fresh = fresh & seen.misfits
        if not seen.due and not self._fresh:
            return False
        known = Known(scopes, self.snapshots, self._fresh, self.calibrations, self._compared)
        folded = await self._link.run(functools.partial(fold_some, known=known, most=self._batch))
        if folded is None:
            return False  # somebody else's turn
        self._take_up(folded.versions, scopes)
        if self._scopes is scopes:
            self._fresh = frozenset()
        self._count(folded)
        return folded.more

    def _take_up(self, versions: Mapping[str, Version], scopes: Mapping[str, Scope]) -> None:
        """Those that are of the scopes as they are now; a configuration may have come meanwhile."""
        current = {name: version for name, version in versions.items() if self._scopes.get(name) is scopes[name]}
        if current:
            self._swap({**self.snapshots, **current})

    def _swap(self, found: Mapping[str, Version]) -> None:
        self.snapshots = MappingProxyType(dict(found))
        self._publish(self.snapshots)

    def _tell_of(self, misfits: AbstractSet[str]) -> None:
        for name in sorted(misfits - self._left):
            log.warning("`%s` learns under another configuration than this process has; it serves with what it knows", name)
        self._left = frozenset(misfits)

    def _count(self, folded: Folded) -> None:
        self.folded += folded.count
        self.skipped.update(folded.skipped)
        self.waiting = folded.waiting
        self._compared |= folded.compared
        self.last_fold = self._clock()

    def _failed(self, error: StoreError) -> float:
        """For how long to rest."""
        if isinstance(error, NoSchema):
            return self._every_s  # a new database: whoever writes makes it
        self.failures += 1
        if str(error) != self._reason:
            log.warning("policies cannot learn now: %s", f"{error} ({error.detail})" if error.detail else error)
        self._reason = str(error)
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
        return self._pause_s


class Seen(NamedTuple):
    """due: something can be folded. versions: those that are newer than what is known. misfits: scopes whose newest state is of other
    plans, features or another algorithm, or is not there though something was learnt."""

    due: bool
    versions: Mapping[str, Version]
    misfits: AbstractSet[str]


def look(session: Session, scopes: Mapping[str, Scope], known: Mapping[str, Version]) -> Seen:
    """What is new."""
    newest = store.newest(session)
    versions: dict[str, Version] = {}
    misfits: set[str] = set()
    for name, scope in scopes.items():
        if not scope.learns:
            continue
        number = newest.get(name)
        if number is None:
            if store.last_noted(session, name):
                misfits.add(name)
            continue
        if name in known and known[name].version == number:
            continue
        row = store.state(session, name, number)
        assert row is not None, "it was there before in the same transaction"
        try:
            versions[name] = snapshots.opened(scope, row)
        except ValueError:
            misfits.add(name)
    return Seen(store.is_due(session), versions, misfits)


def _rebuild(session: Session, scope: Scope, why: str, also: str | None = None) -> Version | None:
    if not session.mine(store.TURN):
        return None
    version = max(store.newest(session).get(scope.name, 0), store.last_noted(session, scope.name)) + 1
    return rebuilding.rebuilt(session, scope, version, session.now(), why, also)


def _roll_back(session: Session, scope: Scope, to: int) -> Version | None:
    if not session.mine(store.TURN):
        return None
    newest = store.newest(session).get(scope.name, 0)
    if not 0 < to <= newest:
        raise LookupError(f"`{scope.name}` has no version {to}")
    return rebuilding.rolled_back(session, scope, to, newest + 1, session.now())
