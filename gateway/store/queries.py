"""What is asked of the record: decisions one by one and page by page, and what is said of them later.

Every function takes a connection that `Database.run` or `Database.read` hands it. Rows come as mappings, column -> value (tables.py).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from gateway.store.lazily import Lazily

if TYPE_CHECKING:
    import sqlalchemy as sa
    from sqlalchemy import ColumnElement, Connection

    from gateway.store import inserting, tables
else:
    sa, tables, inserting = Lazily("sqlalchemy"), Lazily("gateway.store.tables"), Lazily("gateway.store.inserting")

Record = Mapping[str, Any]

# What may be asked for -> its column, which has an index. Those that likely have the fewest rows come first.
_COLUMNS: Mapping[str, str] = {
    "session": "session",
    "key_name": "key_name",
    "tenant": "tenant",
    "model": "served_model",
    "policy": "policy",
    "outcome": "outcome",
}
_FEW: Final = 5_000


class Wanted(msgspec.Struct, frozen=True):
    """Which decisions; None: all. model: the one that served. session: its pseudonym. since, until: seconds since 1970, `until` not in."""

    tenant: str | None = None
    key_name: str | None = None
    model: str | None = None
    policy: str | None = None
    outcome: str | None = None
    session: str | None = None
    since: float | None = None
    until: float | None = None


class Place(NamedTuple):
    """Where a page ended: the last row's time, seconds since 1970, and id."""

    created: float
    id: str

    def __str__(self) -> str:
        return f"{self.created!r}~{self.id}"

    @staticmethod
    def read(text: str) -> Place:
        """A place from its text. Raises ValueError."""
        created, between, id_ = text.partition("~")
        if not between:
            raise ValueError("no place in a list")
        return Place(float(created), id_)


class Page(msgspec.Struct, frozen=True):
    """Rows, the newest first; next: where the next page begins, None at the end."""

    rows: Sequence[Record]
    next: Place | None


class Found(msgspec.Struct, frozen=True):
    """A decision and what belongs to it: calls in order, outcomes, and feedback in the order in which it came."""

    decision: Record
    calls: Sequence[Record]
    outcomes: Sequence[Record]
    feedback: Sequence[Record]


class Outcome(msgspec.Struct, frozen=True):
    """How good a decision was. labelling_probability: that such a decision gets a value from this source. created: seconds since 1970."""

    decision_id: str
    metric: str
    source: str
    value: float
    created: float
    labelling_probability: float = 1.0


def decision(connection: Connection, id_: str, tenant: str | None = None) -> Found | None:
    """The decision, of that tenant if one is given, with all that belongs to it but its contents."""
    table = tables.decisions
    row = connection.execute(sa.select(table).where(table.c.id == id_, *_equal(table.c.tenant, tenant))).mappings().first()
    if row is None:
        return None
    calls, outcomes, feedback = tables.calls, tables.outcomes, tables.feedback
    return Found(
        dict(row),
        _all(connection, sa.select(calls).where(calls.c.decision_id == id_).order_by(calls.c.n)),
        _all(connection, sa.select(outcomes).where(outcomes.c.decision_id == id_).order_by(outcomes.c.metric, outcomes.c.source)),
        _all(connection, sa.select(feedback).where(feedback.c.decision_id == id_).order_by(feedback.c.created, feedback.c.id)),
    )


def contents(connection: Connection, id_: str) -> Record | None:
    """Prompt and answer of a decision, if they were kept."""
    row = connection.execute(sa.select(tables.contents).where(tables.contents.c.decision_id == id_)).mappings().first()
    return None if row is None else dict(row)


def page(connection: Connection, wanted: Wanted, after: Place | None = None, limit: int = 50) -> Page:
    """The newest decisions that are wanted, those behind `after` if it is given."""
    rows = _all(connection, page_query(wanted, after, limit + 1, rarest(connection, wanted)))
    last = rows[limit - 1] if len(rows) > limit else None
    return Page(rows[:limit], None if last is None else Place(last["created"], last["id"]))


def page_query(wanted: Wanted, after: Place | None, limit: int, by: str | None = None) -> sa.Select[Any]:
    """The query of a page. Whatever one thing is asked for, an index gives its rows in this order, so that no other row is read.

    by: of several, the one whose index SQLite is to take.
    """
    c = tables.decisions.c
    query = sa.select(tables.decisions).order_by(c.created.desc(), c.id.desc()).limit(limit)
    if after is None or (wanted.until is not None and wanted.until <= after.created):
        return query.where(*_conditions(wanted, by))
    # Of two bounds at one end, an index is only searched for one: not for the wider.
    wanted = msgspec.structs.replace(wanted, until=None)
    return query.where(*_conditions(wanted, by), sa.tuple_(c.created, c.id) < sa.tuple_(*after))


def count(connection: Connection, wanted: Wanted, most: int = 10_000) -> int:
    """How many decisions are wanted; more than `most` are not counted further, and come out as most + 1."""
    return _count(connection, _conditions(wanted, rarest(connection, wanted)), most)


def rarest(connection: Connection, wanted: Wanted) -> str | None:
    """Of several things that are asked for, the one with the fewest rows; None where that need not be known.

    PostgreSQL knows it by its statistics. SQLite would have to read whole indexes for its own, and they would tell it of the average tenant
    only; but it can count a little way into each index.
    """
    asked = [name for name in _COLUMNS if getattr(wanted, name) is not None]
    if len(asked) < 2 or connection.dialect.name != "sqlite":
        return None
    alone = {name: Wanted(**{name: getattr(wanted, name)}, since=wanted.since, until=wanted.until) for name in asked}
    return min(asked, key=lambda name: _count(connection, _conditions(alone[name], None), _FEW))


def known_sessions(connection: Connection, named: Sequence[str]) -> Sequence[str]:
    """Those of these sessions (pseudonyms) that decisions belong to, in order."""
    c = tables.decisions.c
    return [each for each in named if connection.execute(sa.select(c.id).where(c.session == each).limit(1)).first() is not None]


def put_outcome(connection: Connection, outcome: Outcome) -> bool:
    """Stores it in place of an older one of the same decision, metric and source, for policies to learn; whether it is the newest."""
    if not inserting.inserted(connection, tables.outcomes, msgspec.structs.asdict(outcome), "created"):
        return False
    news = {"decision_id": outcome.decision_id, "metric": outcome.metric, "created": time.time(), "due": 0.0}
    inserting.inserted(connection, tables.to_learn, news, "created")
    return True


def _conditions(wanted: Wanted, by: str | None) -> list[ColumnElement[bool]]:
    c = tables.decisions.c
    found = []
    for name, column in _COLUMNS.items():
        # A plus keeps SQLite from the column's index.
        known = c[column] if by in (None, name) else sa.UnaryExpression(c[column], operator=sa.sql.operators.custom_op("+"))
        found += _equal(known, getattr(wanted, name))
    if wanted.since is not None:
        found.append(c.created >= wanted.since)
    if wanted.until is not None:
        found.append(c.created < wanted.until)
    return found


def _count(connection: Connection, conditions: Sequence[ColumnElement[bool]], most: int) -> int:
    some = sa.select(sa.literal(1)).select_from(tables.decisions).where(*conditions).limit(most + 1).subquery()
    return int(connection.execute(sa.select(sa.func.count()).select_from(some)).scalar_one())


def _equal(column: ColumnElement[Any], value: str | None) -> list[ColumnElement[bool]]:
    return [] if value is None else [column == value]


def _all(connection: Connection, query: sa.Select[Any]) -> list[Record]:
    return [dict(row) for row in connection.execute(query).mappings()]
