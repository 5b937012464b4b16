"""What callers say of decisions, and the decisions: either may come first, and each only once.

    outcome = sum over keys of w_k * v_k / sum over keys of w_k       v_k: the newest value that key k gave, w_k: its weight

An outcome of source `feedback` stands from the moment on in which the feedback is stored; it belongs to the decision by its id, whose row
may come later. Where that never comes, because it was lost or erased, nothing may stay: what is said of a decision that is GRACE_S old and
not there is not kept, and what was said of one before is swept out.

With each outcome a row of `to_learn` is stored: what policies have still to learn (gateway/learning), until they have.

The statements are of both databases; `?` stands for a value.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from gateway.store.columns import COLUMNS, first_id

GRACE_S: Final = 7 * 86_400.0
"""How long a decision's row may take: a stream lasts for a day at most, and rows wait while the database is away."""

_HERE: Final = "EXISTS (SELECT 1 FROM decisions WHERE decisions.id = decision_id)"

OUTCOME: Final = """
INSERT INTO outcomes (decision_id, metric, source, value, labelling_probability, created)
SELECT decision_id, metric, 'feedback', SUM(weight * value) / SUM(weight), 1, MAX(created) FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY key_name ORDER BY created DESC, id DESC) AS age
  FROM feedback WHERE decision_id = ? AND metric = ? AND weight > 0 AND value IS NOT NULL
) AS said WHERE age = 1 GROUP BY decision_id, metric
ON CONFLICT (decision_id, metric, source) DO UPDATE SET value = excluded.value, created = excluded.created
"""
"""Of a decision's id and a metric. It makes the outcome what the feedback says now, so running it again does no harm."""

LEARN: Final = """
INSERT INTO to_learn (decision_id, metric, created, due)
SELECT decision_id, metric, ?, 0 FROM outcomes WHERE decision_id = ? AND metric = ? GROUP BY decision_id, metric
ON CONFLICT (decision_id, metric) DO UPDATE SET created = excluded.created, due = excluded.due
"""
"""Of now, a decision's id and a metric, once the outcome is stored. A row that is there is changed, too, so that whoever takes it out at
the same time has either seen this outcome or leaves the row."""

FORGET: Final = f"DELETE FROM feedback WHERE decision_id = ? AND NOT {_HERE}"  # noqa: S608 - our own words
"""Of a decision's id: deletes what was said of a decision that is not there."""

NEXT: Final = (
    "SELECT MAX(decision_id), COUNT(*) FROM "
    "(SELECT decision_id FROM feedback WHERE decision_id > ? AND decision_id < ? ORDER BY decision_id LIMIT ?) AS next"
)
"""Of a stretch of ids and a number: the last of so many, and how many there are."""

SWEEP: Final = tuple(
    f"DELETE FROM {table} WHERE decision_id > ? AND decision_id <= ? AND NOT {_HERE}"  # noqa: S608
    for table in ("outcomes", "feedback", "to_learn")
)
"""Of a stretch of ids: deletes what was said of decisions that are not there."""

_DECISION: Final = COLUMNS["feedback"].index("decision_id")
_METRIC: Final = COLUMNS["feedback"].index("metric")
_OUTCOME_OF: Final = COLUMNS["outcomes"].index("decision_id"), COLUMNS["outcomes"].index("metric")


def said_of(rows: Iterable[tuple[object, ...]]) -> list[tuple[str, str]]:
    """The decisions and metrics that rows of `feedback` are about, in an order that is the same for everybody."""
    return sorted({(str(row[_DECISION]), str(row[_METRIC])) for row in rows})


def found_of(rows: Iterable[tuple[object, ...]]) -> list[tuple[str, str]]:
    """As `said_of`, of rows of `outcomes`."""
    id_, metric = _OUTCOME_OF
    return sorted({(str(row[id_]), str(row[metric])) for row in rows})


def too_late(ids: Iterable[tuple[str, str]], now: float) -> list[str]:
    """Those of decisions that would be there, if they still came."""
    bound = first_id(now - GRACE_S)
    return sorted({id_ for id_, _ in ids if id_ < bound})


Sweep = Callable[[str, str, int], str]
"""(after, before, most) -> how far it got in that stretch of decision ids, looking at so much feedback at most; `before`: to its end."""


class Orphans:
    """Sweeps out what was said of decisions that never came, a little at a time. every_s: how often it is looked for them."""

    def __init__(self, *, batch: int = 1_000, every_s: float = 600.0, clock: Callable[[], float] = time.time) -> None:
        self._batch = batch
        self._every_s = every_s
        self._clock = clock
        self._due = float("-inf")
        self._swept = ""

    def step(self, sweep: Sweep) -> None:
        """One batch, if it is time to look."""
        now = self._clock()
        if now < self._due:
            return
        before = first_id(now - GRACE_S)
        self._swept = sweep(self._swept, before, self._batch)
        if self._swept >= before:
            self._due = now + self._every_s
