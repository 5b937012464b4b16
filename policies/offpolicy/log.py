"""What was decided and what came of it, as columns: what estimates are made of.

A row as a line of JSON (numbers that are not known are left out, or null):

    {"id": "...", "unit": "...", "session": "...", "first": true, "explore": true, "plan": "small", "propensity": 0.9, "created": 1.8e9,
    "version": 3, "candidates": [{"plan": "small", "probability": 0.9, "cost": 0.0001, "latency": 0.8}, {"plan": "large", "probability":
    0.1, ...}], "blocks": {"shape-1": [0.1, ...]}, "prices": {"cost": 10, "latency": 0.01}, "tenant": "...", "quality": 0.7, "labelling":
    0.5, "cost": 0.00012, "latency": 0.9}

A block may also be base64 of float32, little-endian, as `trilemma export` writes bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from policies.values.situation import Prices

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Blocks = Mapping[str, npt.NDArray[np.float32]]

# What logged probabilities may be off by.
_SLACK: Final = 1e-6


class LogError(ValueError):
    """The log cannot be read, or contradicts itself; says where and why."""


class Option(msgspec.Struct, frozen=True, gc=False):
    """A candidate of a logged decision: its marginal probability, and what it was expected to take: USD, seconds."""

    plan: str
    probability: float
    cost: float = 0.0
    latency: float = 0.0


class Row(msgspec.Struct, frozen=True):
    """One logged decision. unit: as the policy saw it. session: what is not independent of one another: a session's turns, and a unit's
    requests where its side of an experiment was drawn once for all of them; empty: it stands alone. first: the first turn of its session,
    or without one. explore: whether it was explored on: what is decided greedily has no other choice's outcome. propensity: marginal, of
    the chosen plan. quality: None: not labelled. labelling: probability that it is. cost: USD. latency: seconds; None: not known."""

    id: str
    plan: str
    propensity: float
    candidates: Sequence[Option]
    unit: str = ""
    session: str = ""
    first: bool = True
    explore: bool = True
    quality: float | None = None
    labelling: float = 1.0
    cost: float | None = None
    latency: float | None = None
    prices: Prices = Prices()
    blocks: Mapping[str, bytes | list[float]] = {}
    created: float = 0.0
    version: int = 0
    tenant: str = ""


@dataclass(frozen=True)
class Logged:
    """n rows with p plans, in the order of time. plans: p names. ids, units, sessions, tenants: n of each. chosen: an index of the plans.
    probabilities, eligible, expected_costs, expected_latencies: (n, p), 0 and false for what was no candidate. quality, costs, latencies:
    nan: not known. blocks: (n, d) by the encoder's name, nan where a row has none. All others: see Row."""

    plans: tuple[str, ...]
    ids: tuple[str, ...]
    units: tuple[str, ...]
    sessions: tuple[str, ...]
    tenants: tuple[str, ...]
    first: Bools
    explore: Bools
    chosen: Ints
    propensities: Floats
    probabilities: Floats
    eligible: Bools
    expected_costs: Floats
    expected_latencies: Floats
    quality: Floats
    labelling: Floats
    costs: Floats
    latencies: Floats
    cost_prices: Floats
    latency_prices: Floats
    blocks: Blocks
    created: Floats
    versions: Ints

    def __len__(self) -> int:
        return len(self.ids)

    def at(self, rows: Ints) -> Logged:
        """Only these rows, in this order."""
        taken: dict[str, Any] = {"plans": self.plans, "blocks": {name: block[rows] for name, block in self.blocks.items()}}
        for field in fields(self):
            if field.name not in taken:
                column = getattr(self, field.name)
                taken[field.name] = tuple(column[row] for row in rows.tolist()) if isinstance(column, tuple) else column[rows]
        return Logged(**taken)


def logged(rows: Iterable[Row], plans: Sequence[str] | None = None) -> Logged:
    """plans: of the virtual model, in their order; None: those that occur, by name. Candidates that are no longer among the plans are kept,
    after them: what was drawn then cannot be understood without. Raises LogError."""
    given = sorted(rows, key=lambda row: (row.created, row.id))
    named = sorted({option.plan for row in given for option in row.candidates})
    names = [*(plans or ()), *(name for name in named if name not in (plans or ()))]
    index = {name: i for i, name in enumerate(names)}
    shape = (len(given), len(names))
    probabilities, costs, latencies, eligible = np.zeros(shape), np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=np.bool_)
    for i, row in enumerate(given):
        _check(row)
        for option in row.candidates:
            at = (i, index[option.plan])
            probabilities[at], costs[at], latencies[at], eligible[at] = option.probability, option.cost, option.latency, True
    return Logged(
        plans=tuple(names),
        ids=tuple(row.id for row in given),
        units=tuple(row.unit for row in given),
        sessions=tuple(row.session for row in given),
        tenants=tuple(row.tenant for row in given),
        first=np.array([row.first for row in given], dtype=np.bool_),
        explore=np.array([row.explore for row in given], dtype=np.bool_),
        chosen=np.array([index[row.plan] for row in given], dtype=np.int64),
        propensities=_numbers(row.propensity for row in given),
        probabilities=probabilities,
        eligible=eligible,
        expected_costs=costs,
        expected_latencies=latencies,
        quality=_numbers(row.quality for row in given),
        labelling=_numbers(row.labelling for row in given),
        costs=_numbers(row.cost for row in given),
        latencies=_numbers(row.latency for row in given),
        cost_prices=_numbers(row.prices.cost for row in given),
        latency_prices=_numbers(row.prices.latency for row in given),
        blocks=_blocks(given),
        created=_numbers(row.created for row in given),
        versions=np.array([row.version for row in given], dtype=np.int64),
    )


def read_log(file: Path, plans: Sequence[str] | None = None) -> Logged:
    """A file of lines. Raises LogError; OSError where it cannot be read."""
    decoder = msgspec.json.Decoder(Row)
    rows = []
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = decoder.decode(line)
                _check(row)
            except (msgspec.DecodeError, LogError) as error:
                raise LogError(f"{file}:{number}: {error}") from None
            rows.append(row)
    return logged(rows, plans)


def write_log(file: Path, rows: Iterable[Row]) -> int:
    """Writes rows as lines; returns how many."""
    encoder, count = msgspec.json.Encoder(), 0
    with file.open("wb") as out:
        for row in rows:
            out.write(encoder.encode(row) + b"\n")
            count += 1
    return count


def _check(row: Row) -> None:
    names = [option.plan for option in row.candidates]
    if row.plan not in names or len(set(names)) != len(names):
        raise LogError(f"the decision `{row.id}` chose `{row.plan}`, which is not, or not once, among its candidates")
    total = sum(option.probability for option in row.candidates)
    if abs(total - 1.0) > _SLACK or min(option.probability for option in row.candidates) < 0.0:
        raise LogError(f"the probabilities of the decision `{row.id}` sum to {total:.6g}, not 1")
    own = row.candidates[names.index(row.plan)].probability
    if not 0.0 < row.propensity <= 1.0 + _SLACK or abs(own - row.propensity) > _SLACK:
        raise LogError(f"the decision `{row.id}` has the propensity {row.propensity:.6g}, but among its candidates stands {own:.6g}")
    if row.quality is not None and not 0.0 < row.labelling <= 1.0:
        raise LogError(f"the decision `{row.id}` is labelled, but with the labelling probability {row.labelling:.6g}")


def _numbers(values: Iterable[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _blocks(rows: Sequence[Row]) -> Blocks:
    found: dict[str, npt.NDArray[np.float32]] = {}
    for i, row in enumerate(rows):
        for name, given in row.blocks.items():
            if isinstance(given, bytes) and len(given) % 4:
                raise LogError(f"the features of `{name}` of the decision `{row.id}` are no numbers of 4 bytes")
            block = np.frombuffer(given, dtype="<f4") if isinstance(given, bytes) else np.array(given, dtype=np.float32)
            if name not in found:
                found[name] = np.full((len(rows), len(block)), np.nan, dtype=np.float32)
            if len(block) != found[name].shape[1]:
                raise LogError(f"the decision `{row.id}` has {len(block)} features of `{name}`, others have {found[name].shape[1]}")
            found[name][i] = block
    return found
