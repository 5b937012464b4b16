"""The record of one virtual model, read from the database page by page, the newest decisions first, no more of them than was asked for.

    record = await recorded(learner.read, Asked(Stretch("auto"), last=10_000))
    reading = rows_of(record, "auto")               gateway/proof/record.py: rows for estimates, and what was left out

Each page is a question of its own, so that whoever else asks the database has his turn in between. Both databases are asked alike.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from gateway.access.link import Session
from gateway.store import history
from gateway.store import learning as store
from gateway.store.history import Stretch
from gateway.store.learning import Outcome

T = TypeVar("T")

_PAGE: Final = 1_000


class Read(Protocol):
    """A way to the database: Link.read, Learner.read. Raises StoreError."""

    def __call__(self, work: Callable[[Session], T], /) -> Awaitable[T]:
        """What `work` finds."""
        ...


class Record(NamedTuple):
    """decisions: rows of that table. outcomes: what was said of each, by its id."""

    decisions: list[Mapping[str, Any]]
    outcomes: Mapping[str, list[Outcome]]


class Asked(NamedTuple):
    """of: whose decisions, and from when. last: at most so many, the newest. features: with these."""

    of: Stretch
    last: int = 10_000
    features: bool = True


async def recorded(read: Read, asked: Asked) -> Record:
    """The decisions, in the order of time, and what was said of each. Raises StoreError."""
    found: list[Mapping[str, Any]] = []
    said: dict[str, list[Outcome]] = {}
    after: tuple[float, str] | None = None
    while len(found) < asked.last:
        limit = min(_PAGE, asked.last - len(found))
        rows, outcomes = await read(partial(_page, asked=asked, after=after, limit=limit))
        found += rows
        said |= outcomes
        if len(rows) < limit:
            break
        after = rows[-1]["created"], rows[-1]["id"]
    return Record(found[::-1], said)


def _page(
    session: Session, asked: Asked, after: tuple[float, str] | None, limit: int
) -> tuple[list[Mapping[str, Any]], dict[str, list[Outcome]]]:
    rows = history.decisions(session, asked.of, after, limit, features=asked.features)
    outcomes = store.outcomes(session, [row["id"] for row in rows])
    return rows, {id_: list(each) for id_, each in outcomes.items()}
