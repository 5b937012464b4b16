"""Taking away what belongs to a tenant or a session, in every table, in small batches so that nobody waits for it.

Keys, and the audit of what they changed, are no part of it: a key is revoked, not erased. What policies learnt of the decisions is taken
back with the next fold (gateway/learning), and versions of it from before are deleted then.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from gateway.store.database import Database
from gateway.store.lazily import Lazily
from gateway.store.learning import TURN

if TYPE_CHECKING:
    import sqlalchemy as sa
    from sqlalchemy import Connection, Table

    from gateway.store import tables
else:
    sa, tables = Lazily("sqlalchemy"), Lazily("gateway.store.tables")

_BATCH: Final = 500


async def erase(database: Database, *, tenant: str | None = None, session: str | None = None, pause_s: float = 0.02) -> Mapping[str, int]:
    """Deletes all that is stored of the tenant, or of the session (its pseudonym); table -> rows. Raises StoreError.

    What the writer has not stored yet comes later: wait until nothing of it waits, or erase once more.
    """
    if tenant is None and session is None:
        raise ValueError("a tenant or a session is needed: not everything is erased")
    gone: Counter[str] = Counter({"decisions": 0, "calls": 0, "outcomes": 0, "feedback": 0, "contents": 0})
    while batch := await database.run(lambda connection: erase_some(connection, tenant, session)):
        gone.update(batch)
        await asyncio.sleep(pause_s)
    await database.scrub()
    return dict(gone)


def erase_some(connection: Connection, tenant: str | None, session: str | None, most: int = _BATCH) -> dict[str, int]:
    """Up to so many decisions of the tenant and the session, where given, with what belongs to them; table -> rows, empty at the end."""
    c = tables.decisions.c
    if connection.dialect.name == "postgresql":  # in SQLite, whoever writes is alone
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({TURN})")
    wanted = [column == value for column, value in ((c.tenant, tenant), (c.session, session)) if value is not None]
    ids = list(connection.execute(sa.select(c.id).where(*wanted).limit(most)).scalars())
    if ids:
        those = (tables.calls, tables.outcomes, tables.feedback, tables.contents)
        gone = {table.name: _deleted(connection, table, table.c.decision_id.in_(ids)) for table in those}
        _unlearn(connection, ids)
        return gone | {"decisions": _deleted(connection, tables.decisions, c.id.in_(ids))}
    if tenant is None or session is not None:
        return {}
    said = tables.feedback.c  # of decisions that never came, or are gone
    pending = connection.execute(sa.select(said.id, said.decision_id).where(said.tenant == tenant).limit(most)).all()
    if not pending:
        return {}
    of = {row.decision_id for row in pending}
    _deleted(connection, tables.to_learn, tables.to_learn.c.decision_id.in_(of))
    return {
        "outcomes": _deleted(connection, tables.outcomes, tables.outcomes.c.decision_id.in_(of)),
        "feedback": _deleted(connection, tables.feedback, said.tenant == tenant, said.id.in_([row.id for row in pending])),
    }


def _unlearn(connection: Connection, ids: Sequence[str]) -> None:
    """What policies learnt of the decisions is to be taken back. What they need for that is kept until then: no id of a person."""
    t, d = tables.learned.c, tables.decisions.c
    said = (t.decision_id, t.policy, t.metric, t.version, t.quality, t.weight)
    query = sa.select(*said).where(t.decision_id.in_(ids)).order_by(t.version)
    current = {(row.decision_id, row.policy, row.metric): row for row in connection.execute(query)}
    known = (d.id, d.plan, d.features, d.feature_version, d.propensity, d.created, d.cost_usd, d.latency_s, d.decided)
    facts = {row.id: row for row in connection.execute(sa.select(*known).where(d.id.in_({id_ for id_, _, _ in current})))}
    now = time.time()
    back = [
        {
            "decision_id": id_,
            "policy": policy,
            "metric": metric,
            "plan": facts[id_].plan,
            "features": facts[id_].features,
            "feature_version": facts[id_].feature_version,
            "quality": row.quality,
            "weight": row.weight,
            "propensity": facts[id_].propensity,
            "at": facts[id_].created,
            "cost_usd": facts[id_].cost_usd,
            "latency_s": facts[id_].latency_s,
            "decided": facts[id_].decided,
            "created": now,
        }
        for (id_, policy, metric), row in current.items()
        if row.quality is not None
    ]
    if back:
        connection.execute(sa.insert(tables.to_retract), back)
    states = tables.policy_states
    # What was forgotten since is not in the newest version, but in older ones.
    for policy in {policy for (_, policy, _), row in current.items() if row.quality is None}:
        newest = sa.select(sa.func.max(states.c.version)).where(states.c.policy == policy).scalar_subquery()
        _deleted(connection, states, states.c.policy == policy, states.c.version < newest)
    for table in (tables.learned, tables.to_learn):
        _deleted(connection, table, table.c.decision_id.in_(ids))


def _deleted(connection: Connection, table: Table, *where: Any) -> int:
    return connection.execute(sa.delete(table).where(*where)).rowcount
