"""What the learning asks of the database, and what it writes there, through a Session (access/link.py): the driver alone.

to_learn ──▶ fold ──▶ policy_states, learned          one transaction, by whoever has the turn
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

if TYPE_CHECKING:
    from gateway.access.link import Session

T = TypeVar("T")

# Any number, as long as every version of Trilemma has the same.
TURN: Final = 7_410_652_872
"""Of whoever changes `learned` or `to_retract`: a fold, or an erasure."""

_IN_A_STATEMENT: Final = 500


class ToLearn(NamedTuple):
    """A row of `to_learn`."""

    decision_id: str
    metric: str
    created: float


class Facts(NamedTuple):
    """What of a decision is learnt from. policy: VIRTUAL_MODEL/POLICY. plan: None: no policy chose one. outcome: `ok`, or it failed.
    decided: JSON of serving/choice.py's Decided."""

    id: str
    policy: str
    plan: str | None
    outcome: str | None
    learn: bool
    features: bytes | None
    feature_version: str | None
    propensity: float
    at: float
    unit: str
    tenant: str
    cost: float
    latency: float
    decided: str | None
    config_hash: str = ""


class Outcome(NamedTuple):
    """What a source says of a decision. probability: that it says something of such a decision."""

    metric: str
    source: str
    value: float
    probability: float


class Taught(NamedTuple):
    """A row of `learned`, without its place: what a policy learnt of a decision. quality: None: it was taken back. before: what had been
    learnt until then, with `weight_before`; None: nothing."""

    decision_id: str
    metric: str
    quality: float | None
    weight: float
    before: float | None = None
    weight_before: float = 1.0


class Stored(NamedTuple):
    """A row of `policy_states`."""

    policy: str
    version: int
    created: float
    kind: str
    config_hash: str
    plans: tuple[str, ...]
    feature_version: str
    state: bytes
    observations: int
    data_from: float | None
    data_to: float | None
    note: str | None


class Kept(NamedTuple):
    """A version that is there."""

    version: int
    created: float
    note: str | None


_FACTS: Final = (
    "id, requested_model, policy, plan, outcome, learn, features, feature_version, propensity, created, unit, tenant, cost_usd, latency_s, "
    "decided, config_hash"
)


def is_due(session: Session) -> bool:
    """Whether there is something to fold."""
    now = session.now()
    found = session.rows("SELECT 1 WHERE EXISTS (SELECT 1 FROM to_learn WHERE due <= ?) OR EXISTS (SELECT 1 FROM to_retract)", now)
    return bool(found)


def due(session: Session, now: float, most: int) -> list[ToLearn]:
    """Takes so many rows, those of the oldest decisions first."""
    sql = f"SELECT decision_id, metric, created FROM to_learn WHERE due <= ? ORDER BY due, decision_id, metric LIMIT ? {session.taking}"  # noqa: S608
    return [ToLearn(*row) for row in session.rows(sql, now, most)]


def waiting(session: Session, most: int = 10_000) -> int:
    """How many rows there are, counted as far as that."""
    ((count,),) = session.rows("SELECT COUNT(*) FROM (SELECT 1 FROM to_learn LIMIT ?) AS counted", most)
    return int(count)


def done(session: Session, rows: Iterable[ToLearn]) -> None:
    """Takes them out."""
    for some in _some([(row.decision_id, row.metric) for row in rows]):
        pairs = ", ".join(["(?, ?)"] * len(some))
        sql = f"DELETE FROM to_learn WHERE (decision_id, metric) IN (VALUES {pairs})"  # noqa: S608
        session.run(sql, *(value for pair in some for value in pair))


def postpone(session: Session, row: ToLearn, due: float) -> None:
    """It is looked at again then."""
    session.run("UPDATE to_learn SET due = ? WHERE decision_id = ? AND metric = ?", due, row.decision_id, row.metric)


def facts(session: Session, ids: Sequence[str]) -> Mapping[str, Facts]:
    """Those of the decisions that are there, by id."""
    found = _of(session, f"SELECT {_FACTS} FROM decisions WHERE id IN ", ids)  # noqa: S608
    return {row[0]: _facts(row) for row in found}


def outcomes(session: Session, ids: Sequence[str]) -> Mapping[str, Sequence[Outcome]]:
    """What is known of the decisions, by id."""
    found: dict[str, list[Outcome]] = defaultdict(list)
    sql = "SELECT decision_id, metric, source, value, labelling_probability FROM outcomes WHERE decision_id IN "
    for id_, *outcome in _of(session, sql, ids):
        found[id_].append(Outcome(*outcome))
    return found


def plans_labelled(session: Session, policy: str, source: str, last: int = 2_000) -> list[str]:
    """Two plans of the policy at most of which this source said something, among its last so many outcomes of any source."""
    sql = (
        "SELECT DISTINCT d.plan FROM (SELECT decision_id, source FROM outcomes WHERE metric = 'quality' ORDER BY decision_id DESC LIMIT ?) "
        "AS o JOIN decisions d ON d.id = o.decision_id WHERE o.source = ? AND d.plan IS NOT NULL "
        "AND d.requested_model || '/' || d.policy = ? LIMIT 2"
    )
    return [plan for (plan,) in session.rows(sql, last, source, policy)]


def judged_twice(session: Session, last: int = 20_000) -> Mapping[str, list[tuple[float, float]]]:
    """By source, what it said and what callers said of the same decision, as far as that stands in the last so many outcomes."""
    sql = (
        "SELECT o.source, o.value, f.value FROM (SELECT decision_id, source, value FROM outcomes WHERE metric = 'quality' "
        "ORDER BY decision_id DESC LIMIT ?) AS o JOIN outcomes f ON f.decision_id = o.decision_id AND f.metric = 'quality' "
        "AND f.source = 'feedback' WHERE o.source <> 'feedback'"
    )
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for source, value, truth in session.rows(sql, last):
        found[source].append((value, truth))
    return found


def learnt(session: Session, ids: Sequence[str]) -> Mapping[tuple[str, str, str], tuple[float, float]]:
    """(decision id, policy, metric) -> the quality and weight that are in the policy's state now."""
    found: dict[tuple[str, str, str], tuple[float, float]] = {}
    sql = "SELECT decision_id, policy, metric, version, quality, weight FROM learned WHERE decision_id IN "
    for id_, policy, metric, _, quality, weight in sorted(_of(session, sql, ids), key=lambda row: int(row[3])):
        if quality is None:
            found.pop((id_, policy, metric), None)
        else:
            found[id_, policy, metric] = quality, weight
    return found


def put_learned(session: Session, policy: str, version: int, rows: Sequence[Taught]) -> None:
    """Notes what is in this version and was not in the one before, in this order."""
    columns = "decision_id, policy, metric, version, n, quality, weight, before, weight_before"
    for some in _some(list(enumerate(rows))):
        values = ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?)"] * len(some))
        flat = [(t.decision_id, policy, t.metric, version, n, t.quality, t.weight, t.before, t.weight_before) for n, t in some]
        session.run(f"INSERT INTO learned ({columns}) VALUES {values}", *(value for row in flat for value in row))  # noqa: S608


def last_noted(session: Session, policy: str) -> int:
    """The last version of which it is noted what came into it; 0: nothing is noted of the policy."""
    ((version,),) = session.rows("SELECT COALESCE(MAX(version), 0) FROM learned WHERE policy = ?", policy)
    return int(version)


def forget_before(session: Session, policy: str, version: int) -> None:
    """Notes, as of this version, that nothing else is known than what is noted of it already. What was noted before stays, so that
    versions from then can be made again."""
    session.run(
        "INSERT INTO learned (decision_id, policy, metric, version, n, quality, weight, before, weight_before) "
        "SELECT l.decision_id, l.policy, l.metric, ?, 0, NULL, l.weight, l.quality, l.weight FROM learned l "
        "WHERE l.policy = ? AND l.version < ? AND l.quality IS NOT NULL AND NOT EXISTS (SELECT 1 FROM learned m "
        "WHERE m.decision_id = l.decision_id AND m.policy = l.policy AND m.metric = l.metric AND m.version > l.version)",
        version,
        policy,
        version,
    )


def log(session: Session, policy: str, version: int) -> list[tuple[Taught, Facts | None]]:
    """What came into this version, in order; empty: not all of that is noted any more. Without facts: the decision is not there any
    more."""
    sql = "SELECT n, decision_id, metric, quality, weight, before, weight_before FROM learned WHERE policy = ? AND version = ? ORDER BY n"
    found = session.rows(sql, policy, version)
    if any(row[0] != n for n, row in enumerate(found)):
        return []  # the oldest decisions' notes go first
    rows = [Taught(*row[1:]) for row in found]
    known = facts(session, sorted({row.decision_id for row in rows}))
    return [(row, known.get(row.decision_id)) for row in rows]


def newest_log(session: Session, policy: str, most: int) -> list[tuple[Taught, Facts]]:
    """What the policy knows of decisions that are there, the last so many, in the order in which it was learnt, each as if it were new."""
    columns = ", ".join(f"d.{name}" for name in _FACTS.split(", "))
    sql = (
        f"SELECT l.metric, l.quality, l.weight, {columns} FROM learned l JOIN decisions d ON d.id = l.decision_id "  # noqa: S608
        "WHERE l.policy = ? AND l.quality IS NOT NULL AND NOT EXISTS (SELECT 1 FROM learned m WHERE m.decision_id = l.decision_id "
        "AND m.policy = l.policy AND m.metric = l.metric AND m.version > l.version) ORDER BY l.version DESC, l.n DESC LIMIT ?"
    )
    rows = session.rows(sql, policy, most)
    return [(Taught(row[3], row[0], row[1], row[2]), _facts(row[3:])) for row in reversed(rows)]


def retractions(session: Session, most: int) -> list[tuple[Taught, Facts, float]]:
    """What is to be taken back, with when that was asked for."""
    sql = (
        "SELECT decision_id, policy, metric, plan, features, feature_version, quality, weight, propensity, at, cost_usd, latency_s, "
        "decided, created FROM to_retract ORDER BY policy, decision_id, metric LIMIT ?"
    )
    found = []
    for row in session.rows(sql, most):
        id_, policy, metric, plan, features, version, quality, weight, propensity, at, cost, latency, decided, created = row
        features = None if features is None else bytes(features)
        of = Facts(id_, policy, plan, "ok", True, features, version, propensity, at, "", "", cost or 0.0, latency, decided)
        found.append((Taught(id_, metric, None, weight, quality, weight), of, created))
    return found


def retracted(session: Session, policy: str, row: Taught) -> None:
    """It was taken back."""
    session.run("DELETE FROM to_retract WHERE decision_id = ? AND policy = ? AND metric = ?", row.decision_id, policy, row.metric)


def newest(session: Session) -> Mapping[str, int]:
    """The last version of each policy that has one."""
    return {policy: int(version) for policy, version in session.rows("SELECT policy, MAX(version) FROM policy_states GROUP BY policy")}


def created(session: Session, policy: str, version: int) -> float | None:
    """When this version was made; None: it is not there."""
    found = session.rows("SELECT created FROM policy_states WHERE policy = ? AND version = ?", policy, version)
    return found[0][0] if found else None


def state(session: Session, policy: str, version: int) -> Stored | None:
    """This version, or the last one before it that is there."""
    sql = (
        f"SELECT {', '.join(Stored._fields)} FROM policy_states WHERE policy = ? AND version <= ? "  # noqa: S608 - names of our own
        "ORDER BY version DESC LIMIT 1"
    )
    found = session.rows(sql, policy, version)
    return Stored(*found[0])._replace(plans=tuple(json.loads(found[0][5]))) if found else None


def put_state(session: Session, row: Stored) -> None:
    """Stores a new version."""
    values = ", ".join("?" * len(row))
    sql = f"INSERT INTO policy_states ({', '.join(Stored._fields)}) VALUES ({values})"  # noqa: S608 - names of our own
    session.run(sql, *row._replace(plans=json.dumps(row.plans)))  # type: ignore[arg-type]


def versions(session: Session, policy: str) -> list[Kept]:
    """Those that are there, oldest first."""
    return [
        Kept(*row) for row in session.rows("SELECT version, created, note FROM policy_states WHERE policy = ? ORDER BY version", policy)
    ]


def drop_versions(session: Session, policy: str, these: Sequence[int]) -> None:
    """They are gone."""
    for some in _some(these):
        session.run(f"DELETE FROM policy_states WHERE policy = ? AND version IN ({', '.join('?' * len(some))})", policy, *some)  # noqa: S608


def drop_all_versions(session: Session, policy: str) -> None:
    """All of them are gone."""
    session.run("DELETE FROM policy_states WHERE policy = ?", policy)


def _facts(row: Sequence[Any]) -> Facts:
    id_, model, policy, plan, outcome, learn, features, version, propensity, at, unit, tenant, cost, latency, decided, config = row
    # `learn` is null in rows of versions of Trilemma that had no such word.
    learns = learn is None or bool(learn)
    features = None if features is None else bytes(features)
    scope = f"{model}/{policy}"
    cost = cost or 0.0
    return Facts(id_, scope, plan, outcome, learns, features, version, propensity, at, unit or "", tenant, cost, latency, decided, config)


def _of(session: Session, sql: str, ids: Sequence[str]) -> Iterator[Any]:
    for some in _some(ids):
        yield from session.rows(f"{sql}({', '.join('?' * len(some))})", *some)


def _some(things: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(things), _IN_A_STATEMENT):
        yield things[start : start + _IN_A_STATEMENT]
