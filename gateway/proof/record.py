"""The record of a virtual model's decisions, as the rows that estimates are made of: from the database, or as `trilemma export` wrote it.

What is left out, and counted: what was only relayed or has no account of how it was decided; what failed, was cut or cancelled, which says
nothing of a plan's quality. What a fallback decided was not explored on, and nor was what is not to be learnt from.
"""

from __future__ import annotations

import base64
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from gateway.access.link import Link
from gateway.learning.blocks import unpacked
from gateway.learning.labels import label
from gateway.learning.logged import Asked, Record, recorded
from gateway.serving.choice import Decided
from gateway.store.history import Stretch
from gateway.store.learning import Outcome
from gateway.store.urls import Location
from policies.offpolicy.log import LogError, Option, Row

_DAY_S: Final = 86_400.0
_WITHIN_S: Final = 60.0
MOST: Final = 200_000
"""Decisions that are read from a database, if nobody says otherwise."""


class Reading(NamedTuple):
    """rows: in no order. left_out: how many, by reason."""

    rows: list[Row]
    left_out: dict[str, int]


def read_folder(folder: Path) -> Record:
    """`decisions.jsonl` and `outcomes.jsonl` of an export. Raises LogError; OSError where one cannot be read."""
    return _record(_lines(folder / "decisions.jsonl"), _lines(folder / "outcomes.jsonl"))


async def read_database(location: Location, model: str, days: float, last: int = MOST) -> Record:
    """Of a virtual model: the newest decisions of the last days, no more than so many. Raises StoreError."""
    link = Link(location, _WITHIN_S, "trilemma-replay")
    try:
        return await recorded(link.read, Asked(Stretch(model, since=time.time() - days * _DAY_S), last))
    finally:
        await link.close()


def rows_of(record: Record, model: str, by_unit: Collection[str] = ()) -> Reading:
    """The rows of a virtual model. by_unit: policies that draw once for all requests of a unit, so that these belong together. Raises
    LogError."""
    rows, left_out = [], Counter[str]()
    for each in record.decisions:
        if each["requested_model"] != model:
            continue
        if each["plan"] is None or not each["decided"]:
            left_out["not decided by a policy"] += 1
        elif each["outcome"] != "ok":
            left_out["failed, cut or cancelled"] += 1
        else:
            rows.append(_row(each, record.outcomes.get(each["id"], ()), each["policy"] in by_unit))
    return Reading(rows, dict(left_out))


def _row(each: Mapping[str, Any], outcomes: Iterable[Outcome], by_unit: bool) -> Row:
    try:
        decided = msgspec.json.decode(each["decided"], type=Decided)
        features = each["features"]
        blocks = unpacked(base64.b64decode(features) if isinstance(features, str) else features, each["feature_version"])
    except ValueError as error:
        raise LogError(f"the decision `{each['id']}`: {error}") from None
    said = label(tuple(outcomes))
    return Row(
        id=each["id"],
        plan=each["plan"],
        propensity=each["propensity"],
        candidates=tuple(Option(one.plan, one.probability, one.cost, one.latency) for one in decided.candidates),
        unit=each["unit"] or "",
        session=(each["unit"] if by_unit else each["session"]) or "",
        first=each["first_turn"] is not False,
        explore=decided.explore and decided.fallback is None,
        quality=None if said is None else said.quality,
        labelling=1.0 if said is None else 1.0 / said.weight,
        cost=each["cost_usd"],
        latency=each["latency_s"],
        prices=decided.prices,
        blocks={name: block.tobytes() for name, block in blocks.items()},
        created=decided.now or each["created"],
        version=each["snapshot"] or 0,
        tenant=each["tenant"],
    )


def _record(decisions: Iterable[Mapping[str, Any]], outcomes: Iterable[Mapping[str, Any]]) -> Record:
    said: dict[str, list[Outcome]] = defaultdict(list)
    for each in outcomes:
        said[each["decision_id"]].append(Outcome(each["metric"], each["source"], each["value"], each["labelling_probability"]))
    return Record(list(decisions), said)


def _lines(file: Path) -> list[Mapping[str, Any]]:
    with file.open("rb") as lines:
        try:
            return [msgspec.json.decode(line) for line in lines if line.strip()]
        except msgspec.DecodeError as error:
            raise LogError(f"{file}: {error}") from None
