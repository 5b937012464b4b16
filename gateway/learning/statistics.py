"""What policies know and how they did, as numbers for people: by plan, by version, by time."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.learning.logged import Record

Plain = dict[str, Any]


@dataclass(slots=True)
class _Tally:
    """Of a plan in a stretch of time. quality: sum of labels, each with its weight."""

    decisions: int = 0
    labels: int = 0
    weight: float = 0.0
    quality: float = 0.0
    costs: int = 0
    cost: float = 0.0
    failed: int = 0


@dataclass(slots=True)
class _Bucket:
    plans: dict[str, _Tally] = field(default_factory=lambda: defaultdict(_Tally))


def curve(record: Record, buckets: int) -> list[Plain]:
    """Stretches of equal time from the first decision to the last: of each plan how often it was chosen and how often that failed, how many
    labels there are, their mean quality (each stands for as many as its source leaves out) and the mean cost, USD. null: not known."""
    rows = [row for row in record.decisions if row["plan"] is not None]
    if not rows:
        return []
    start, end = min(row["created"] for row in rows), max(row["created"] for row in rows)
    width = (end - start) / buckets
    found = [_Bucket() for _ in range(buckets if width > 0 else 1)]
    for row in rows:
        at = min(len(found) - 1, int((row["created"] - start) / width)) if width > 0 else 0
        _count(found[at].plans[row["plan"]], row, record)
    return [
        {
            "from": start + at * width,
            "to": start + (at + 1) * width if width > 0 else end,
            "plans": {plan: _told(tally) for plan, tally in sorted(bucket.plans.items())},
        }
        for at, bucket in enumerate(found)
    ]


def _count(tally: _Tally, row: Mapping[str, Any], record: Record) -> None:
    tally.decisions += 1
    tally.failed += row["outcome"] != "ok"
    said = record.labels.get(row["id"])
    if said is not None:
        tally.labels += 1
        tally.weight += said.weight
        tally.quality += said.weight * said.quality
    if row["cost_usd"] is not None:
        tally.costs += 1
        tally.cost += row["cost_usd"]


def _told(tally: _Tally) -> Plain:
    return {
        "decisions": tally.decisions,
        "failed": tally.failed,
        "labels": tally.labels,
        "quality": tally.quality / tally.weight if tally.weight else None,
        "cost": tally.cost / tally.costs if tally.costs else None,
    }


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[Plain]:
    """Where two things of the same kind differ: the place, as `plans.small.mean`, and what stands there in each; null: nothing."""
    before, after = dict(_leaves(one, "")), dict(_leaves(other, ""))
    return [
        {"what": what, "from": before.get(what), "to": after.get(what)}
        for what in dict.fromkeys((*before, *after))
        if before.get(what) != after.get(what)
    ]


def _leaves(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _leaves(each, f"{where}.{name}" if where else str(name))
    else:
        yield where, value


def plain(value: Any) -> Any:
    """The same as what JSON can hold: numbers of numpy as numbers, and null for what is no number."""
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, bool | str | int) or value is None:
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return plain(value.tolist())
