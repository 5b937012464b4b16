"""The record of a virtual model's decisions, as the rows that estimates are made of: from the database, or as `trilemma export` wrote it.

What is left out, and counted: what was only relayed or has no account of how it was decided; what failed, was cut or cancelled, which says
nothing of a plan's quality. What a fallback decided was not explored on, and nor was what is not to be learnt from.

Labels are what a policy would learn of the decisions now. Sources are calibrated as a gateway does it: by what was judged twice.
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
from gateway.learning.labels import FEEDBACK, METRIC, Label, Worth
from gateway.learning.logged import Asked, Record, labelled, recorded
from gateway.learning.scopes import scope_name
from gateway.serving.choice import Decided
from gateway.store import learning as store
from gateway.store.history import Stretch
from gateway.store.learning import Outcome
from gateway.store.urls import Location
from policies.offpolicy.log import LogError, Option, Row
from policies.signals.calibration import Calibration, Pair, calibrations

_DAY_S: Final = 86_400.0
_WITHIN_S: Final = 60.0
MOST: Final = 200_000
"""Decisions that are read from a database, if nobody says otherwise."""


class Reading(NamedTuple):
    """rows: in no order. left_out: how many, by reason."""

    rows: list[Row]
    left_out: dict[str, int]


def read_folder(folder: Path, believed: Mapping[str, Calibration]) -> Record:
    """`decisions.jsonl` and `outcomes.jsonl` of an export. believed: what sources' words are worth before anything is known. Raises
    LogError; OSError where one cannot be read."""
    return _record(_lines(folder / "decisions.jsonl"), _lines(folder / "outcomes.jsonl"), believed)


async def read_database(location: Location, model: str, days: float, believed: Mapping[str, Calibration], last: int = MOST) -> Record:
    """Of a virtual model: the newest decisions of the last days, no more than so many. believed: as of read_folder. Raises StoreError."""
    link = Link(location, _WITHIN_S, "trilemma-replay")
    try:
        known = calibrations(await link.read(store.judged_twice), believed)
        return await recorded(link.read, Asked(Stretch(model, since=time.time() - days * _DAY_S), last), known)
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
            rows.append(_row(each, record.labels.get(each["id"]), each["policy"] in by_unit))
    return Reading(rows, dict(left_out))


def _row(each: Mapping[str, Any], said: Label | None, by_unit: bool) -> Row:
    try:
        decided = msgspec.json.decode(each["decided"], type=Decided)
        features = each["features"]
        blocks = unpacked(base64.b64decode(features) if isinstance(features, str) else features, each["feature_version"])
    except ValueError as error:
        raise LogError(f"the decision `{each['id']}`: {error}") from None
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


def _record(decisions: list[Mapping[str, Any]], outcomes: Iterable[Mapping[str, Any]], believed: Mapping[str, Calibration]) -> Record:
    said: dict[str, list[Outcome]] = defaultdict(list)
    for each in outcomes:
        said[each["decision_id"]].append(Outcome(each["metric"], each["source"], each["value"], each["labelling_probability"]))
    plans: dict[tuple[str, str], set[str]] = defaultdict(set)
    pairs: dict[str, list[Pair]] = defaultdict(list)
    for row in decisions:
        words = {each.source: each.value for each in said.get(row["id"], ()) if each.metric == METRIC}
        for source, value in words.items():
            if row["plan"] is not None:
                plans[scope_name(row["requested_model"], row["policy"]), source].add(row["plan"])
            if source != FEEDBACK and FEEDBACK in words:
                pairs[source].append((value, words[FEEDBACK]))
    worth = Worth(calibrations(pairs, believed), lambda scope, source: plans.get((scope, source), ()))
    return Record(decisions, labelled(decisions, said, worth))


def _lines(file: Path) -> list[Mapping[str, Any]]:
    with file.open("rb") as lines:
        try:
            return [msgspec.json.decode(line) for line in lines if line.strip()]
        except msgspec.DecodeError as error:
            raise LogError(f"{file}: {error}") from None
