"""The record of one virtual model, read from the database page by page, the newest decisions first, no more of them than was asked for.

    record = await recorded(learner.read, Asked(Stretch("auto"), last=10_000), learner.calibrations)
    reading = rows_of(record, "auto")               gateway/proof/record.py: rows for estimates, and what was left out

Each page is a question of its own, so that whoever else asks the database has his turn in between. Both databases are asked alike.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from gateway.access.link import Session
from gateway.learning.labels import METRIC, Label, Worth
from gateway.learning.scopes import scope_name
from gateway.store import history
from gateway.store import learning as store
from gateway.store.history import Stretch
from gateway.store.learning import Outcome
from policies.signals.calibration import Calibration

T = TypeVar("T")

_PAGE: Final = 1_000


class Read(Protocol):
    """A way to the database: Link.read, Learner.read. Raises StoreError."""

    def __call__(self, work: Callable[[Session], T], /) -> Awaitable[T]:
        """What `work` finds."""
        ...


class Record(NamedTuple):
    """decisions: rows of that table. labels: of those of which something was said that counts, by their ids: what a policy would learn of
    them now."""

    decisions: list[Mapping[str, Any]]
    labels: Mapping[str, Label]


class Asked(NamedTuple):
    """of: whose decisions, and from when. last: at most so many, the newest. features: with these."""

    of: Stretch
    last: int = 10_000
    features: bool = True


class _Page(NamedTuple):
    """compared: see Worth."""

    rows: Sequence[Mapping[str, Any]] = ()
    labels: Mapping[str, Label] = MappingProxyType({})
    compared: AbstractSet[tuple[str, str]] = frozenset()


async def recorded(read: Read, asked: Asked, calibrations: Mapping[str, Calibration]) -> Record:
    """The decisions, in the order of time, each with its label. calibrations: of sources' words; of others, what is believed beforehand.
    Raises StoreError."""
    found: list[Mapping[str, Any]] = []
    labels: dict[str, Label] = {}
    page = _Page()
    while len(found) < asked.last:
        limit = min(_PAGE, asked.last - len(found))
        page = await read(partial(_page, asked=asked, before=page, limit=limit, calibrations=calibrations))
        found += page.rows
        labels |= page.labels
        if len(page.rows) < limit:
            break
    return Record(found[::-1], labels)


def labelled(
    decisions: Iterable[Mapping[str, Any]], outcomes: Mapping[str, Sequence[Outcome]], worth: Worth, learnt: Collection[str] = ()
) -> dict[str, Label]:
    """The labels of decisions, by id. learnt: ids of those of which something was learnt."""
    found: dict[str, Label] = {}
    for row in decisions:
        id_ = row["id"]
        if row["plan"] is None or id_ not in outcomes:
            continue
        label = worth.label(scope_name(row["requested_model"], row["policy"]), outcomes[id_], learnt=id_ in learnt)
        if label is not None:
            found[id_] = label
    return found


def _page(session: Session, asked: Asked, before: _Page, limit: int, calibrations: Mapping[str, Calibration]) -> _Page:
    after = (before.rows[-1]["created"], before.rows[-1]["id"]) if before.rows else None
    rows = history.decisions(session, asked.of, after, limit, features=asked.features)
    ids = [row["id"] for row in rows]
    known = store.learnt(session, ids)
    own = {row["id"] for row in rows if (row["id"], scope_name(row["requested_model"], row["policy"]), METRIC) in known}
    worth = Worth(calibrations, partial(store.plans_labelled, session), before.compared)
    return _Page(rows, labelled(rows, store.outcomes(session, ids), worth, own), worth.compared)
