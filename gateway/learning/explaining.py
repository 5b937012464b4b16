"""A decision made again from its row: the same candidates, prices, features and state go through the same functions, and what comes out is
compared bit for bit with what was logged.

    found = explained(row, route, policy, state)        Explanation
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import msgspec

from gateway.learning.blocks import unpacked
from gateway.serving.choice import Decided
from gateway.serving.decision import runner_up_price
from gateway.serving.state import VirtualModel
from policies.draw import uniform
from policies.policy import Policy, decide, needed
from policies.values.decision import Decision
from policies.values.plan import Candidate
from policies.values.situation import Situation


class CannotBe(Exception):
    """The decision cannot be made again; says why."""


class Difference(msgspec.Struct, frozen=True):
    """What came out otherwise. where: `chosen`, `propensity`, or a candidate and its number, as `small.score`."""

    where: str
    logged: Any
    again: Any


@dataclass(frozen=True)
class Explanation:
    """decided: as it was logged. chosen, propensity, explored: too. draw: u, of which the cumulative probabilities made the choice; None:
    nothing was drawn. runner_up_price: see serving/decision.py. terms: what wrappers added to scores: by plan, then by the term's name.
    differences: none: it came out the same."""

    id: str
    model: str
    policy: str
    snapshot: int
    chosen: str
    propensity: float
    explored: bool
    decided: Decided
    draw: float | None
    runner_up_price: float | None
    terms: Mapping[str, Mapping[str, float]]
    differences: tuple[Difference, ...]


@runtime_checkable
class _Adding(Protocol):
    """A wrapper that says what it adds to scores."""

    def terms(self, situation: Situation) -> dict[str, dict[str, float]]:
        """By plan, then by the term's name."""
        ...


def decided_of(row: Mapping[str, Any]) -> Decided:
    """All that was logged of it. Raises CannotBe."""
    if row["plan"] is None or not row["decided"]:
        raise CannotBe("no policy chose: the request named a real model, or failed before")
    try:
        return msgspec.json.decode(row["decided"], type=Decided)
    except msgspec.DecodeError as error:
        raise CannotBe(f"what was logged of it cannot be read: {error}") from None


def situation_of(row: Mapping[str, Any], decided: Decided, route: VirtualModel) -> Situation:
    """What was decided on. Raises CannotBe where a candidate is no longer a plan, or its features cannot be read."""
    plans = {plan.name: (index, plan) for index, plan in enumerate(route.plans)}
    gone = [each.plan for each in decided.candidates if each.plan not in plans]
    if gone:
        raise CannotBe(f"`{route.name}` has no plan `{gone[0]}` any more")
    try:
        blocks = unpacked(row["features"], row["feature_version"])
    except ValueError as error:
        raise CannotBe(str(error)) from None
    return Situation(
        candidates=tuple(Candidate(plans[each.plan][1], plans[each.plan][0], each.cost, each.latency) for each in decided.candidates),
        blocks=blocks,
        prices=decided.prices,
        standing=decided.standing,
        unit=row["unit"] or "",
        tool_loop=decided.tool_loop,
        explore=decided.explore,
        now=decided.now,
        tenant=row["tenant"],
    )


def explained(row: Mapping[str, Any], route: VirtualModel, policy: Policy, state: Any) -> Explanation:
    """state: what the policy had learnt then. Raises CannotBe."""
    decided = decided_of(row)
    situation = situation_of(row, decided, route)
    if decided.fallback is not None:
        terms: dict[str, dict[str, float]] = {}
        differences = tuple(_by_baseline(row, decided, route))
    else:
        missing = [each.name for each in needed(policy.algorithm) if each.name not in situation.blocks]
        if missing:
            raise CannotBe(f"the policy `{policy.name}` reads the features `{missing[0]}` now, which were not logged then")
        try:
            decision = decide(policy, state, situation, row["id"])
        except Exception as error:
            raise CannotBe(f"the policy `{policy.name}` fails: {error}") from error
        terms = _terms(policy.algorithm, situation)
        differences = tuple(_differences(row, decided, decision))
    return Explanation(
        id=row["id"],
        model=route.name,
        policy=policy.name,
        snapshot=row["snapshot"] or 0,
        chosen=row["plan"],
        propensity=row["propensity"],
        explored=bool(row["explored"]),
        decided=decided,
        draw=None if decided.fallback is not None else uniform(row["id"], policy.seed),
        runner_up_price=runner_up_price(decided),
        terms=terms,
        differences=differences,
    )


def _by_baseline(row: Mapping[str, Any], decided: Decided, route: VirtualModel) -> Iterator[Difference]:
    names = [each.plan for each in decided.candidates]
    again = route.baseline if route.baseline in names else names[0]
    yield from _unlike("chosen", row["plan"], again)
    yield from _unlike("propensity", row["propensity"], 1.0)


def _differences(row: Mapping[str, Any], decided: Decided, decision: Decision) -> Iterator[Difference]:
    yield from _unlike("chosen", row["plan"], decided.candidates[decision.chosen].plan)
    yield from _unlike("propensity", row["propensity"], decision.propensity)
    yield from _unlike("explored", bool(row["explored"]), decision.explored)
    yield from _unlike("shadow", dict(decided.shadow), dict(decision.shadow))
    for at, logged in enumerate(decided.candidates):
        for name, again in _numbers(decision, at).items():
            yield from _unlike(f"{logged.plan}.{name}", getattr(logged, name), again)


def _numbers(decision: Decision, at: int) -> dict[str, float | None]:
    """Of a candidate, by the names that they have in the log."""
    scores = decision.scores
    estimated = scores is not None and scores.estimated
    numbers = (scores.quality, scores.low, scores.high, scores.score) if scores is not None else ((), (), (), ())
    named = zip(("quality", "low", "high", "score"), numbers, strict=True)
    return {"probability": decision.probabilities[at], **{name: _plain(each[at]) if estimated else None for name, each in named}}


def _plain(value: float) -> float | None:
    """As the log can hold it: what is no finite number is null there."""
    return float(value) if abs(value) < float("inf") else None


def _unlike(where: str, logged: Any, again: Any) -> Iterator[Difference]:
    if logged != again:
        yield Difference(where, logged, again)


def _terms(algorithm: Any, situation: Situation) -> dict[str, dict[str, float]]:
    """Of all wrappers, the outermost last."""
    found: dict[str, dict[str, float]] = {}
    inner = getattr(algorithm, "inner", None)
    if inner is not None:
        found = _terms(inner, situation)
    if isinstance(algorithm, _Adding):
        for plan, terms in algorithm.terms(situation).items():
            found[plan] = {**found.get(plan, {}), **terms}
    return found
