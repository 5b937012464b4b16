"""What is asked of a policy's past, through a Session (access/link.py): what was decided, what was learnt, and how it was then."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gateway.store.learning import Taught

if TYPE_CHECKING:
    from gateway.access.link import Session

_BRIEF: Final = (
    "id",
    "created",
    "requested_model",
    "tenant",
    "policy",
    "plan",
    "propensity",
    "outcome",
    "cost_usd",
    "latency_s",
    "session",
    "unit",
    "first_turn",
    "snapshot",
    "decided",
)
_WHOLE: Final = (*_BRIEF, "features", "feature_version")
_RECEIPT: Final = (*_WHOLE, "config_hash", "explored")


class Stretch(NamedTuple):
    """Which decisions: those of a virtual model, and of one of its policies if one is named. since, until: seconds since 1970, `until` not
    in; None: no bound."""

    model: str
    policy: str | None = None
    since: float | None = None
    until: float | None = None


class Card(NamedTuple):
    """A row of `policy_states` without its state. size: bytes of that; None: it is not kept, but was made again."""

    version: int
    created: float
    config_hash: str
    plans: tuple[str, ...]
    feature_version: str
    size: int | None
    observations: int
    data_from: float | None
    data_to: float | None
    note: str | None


def decisions(
    session: Session, of: Stretch, after: tuple[float, str] | None, limit: int, *, features: bool = True
) -> list[Mapping[str, Any]]:
    """The newest rows, those behind `after` (time and id of the last one) if it is given. features: with these."""
    columns = _WHOLE if features else _BRIEF
    where, values = ["requested_model = ?"], [of.model]
    bounds: list[tuple[str, Any]] = [("policy = ?", of.policy), ("created >= ?", of.since), ("created < ?", of.until)]
    for condition, value in bounds:
        if value is not None:
            where.append(condition)
            values.append(value)
    if after is not None:
        where.append("(created, id) < (?, ?)")
        values += after  # type: ignore[arg-type]
    sql = f"SELECT {', '.join(columns)} FROM decisions WHERE {' AND '.join(where)} ORDER BY created DESC, id DESC LIMIT ?"  # noqa: S608 - names of our own
    return [_record(columns, row) for row in session.rows(sql, *values, limit)]


def receipt(session: Session, id_: str) -> Mapping[str, Any] | None:
    """All that a decision can be made again from; None: there is none of this id."""
    rows = session.rows(f"SELECT {', '.join(_RECEIPT)} FROM decisions WHERE id = ?", id_)  # noqa: S608 - names of our own
    return _record(_RECEIPT, rows[0]) if rows else None


def cards(session: Session, policy: str, before: int | None, limit: int) -> list[Card]:
    """The versions that are there, the newest first; before: those with a lesser number."""
    bound, values = ("", []) if before is None else ("AND version < ? ", [before])
    sql = (
        "SELECT version, created, config_hash, plans, feature_version, LENGTH(state), observations, data_from, data_to, note "  # noqa: S608
        f"FROM policy_states WHERE policy = ? {bound}ORDER BY version DESC LIMIT ?"
    )
    return [Card(*row)._replace(plans=tuple(json.loads(row[3]))) for row in session.rows(sql, policy, *values, limit)]


def config_texts(session: Session, hashes: Sequence[str]) -> Mapping[str, str]:
    """The texts of configurations that were kept, by their hash."""
    sql = f"SELECT hash, text FROM config_versions WHERE text IS NOT NULL AND hash IN ({', '.join('?' * len(hashes))})"  # noqa: S608
    return dict(session.rows(sql, *hashes))


def learnt_since(session: Session, policy: str, version: int) -> list[Taught]:
    """What must be noted so that all is known again as it was at that version: of each decision of which anything was learnt after it, the
    quality then (None: nothing was known), with what is known now in `before`."""
    sql = (
        "SELECT decision_id, metric, version, quality, weight FROM learned WHERE policy = ? AND decision_id IN "
        "(SELECT decision_id FROM learned WHERE policy = ? AND version > ?) ORDER BY decision_id, metric, version"
    )
    then: dict[tuple[str, str], tuple[float | None, float]] = {}
    now: dict[tuple[str, str], tuple[float | None, float]] = defaultdict(lambda: (None, 1.0))
    for id_, metric, number, quality, weight in session.rows(sql, policy, policy, version):
        now[id_, metric] = quality, weight
        if number <= version:
            then[id_, metric] = quality, weight
    found = []
    for (id_, metric), (quality, weight) in now.items():
        old, old_weight = then.get((id_, metric), (None, weight))
        if (old, old_weight) != (quality, weight):
            found.append(Taught(id_, metric, old, old_weight, quality, weight))
    return found


def _record(columns: Sequence[str], row: Sequence[Any]) -> Mapping[str, Any]:
    found = dict(zip(columns, row, strict=True))
    if found["first_turn"] is not None:
        found["first_turn"] = bool(found["first_turn"])
    if found.get("features") is not None:
        found["features"] = bytes(found["features"])
    return found
