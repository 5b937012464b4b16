"""Plans, requests and answers for policies that learn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from policies.policy import Policy, decide
from policies.values.outcome import Observation
from policies.values.plan import Candidate, Plan
from policies.values.situation import Prices, Situation

NOW = 1_700_000_000.0


class Block:
    """An encoder whose blocks tests make themselves."""

    slow = False

    def __init__(self, name: str, dim: int) -> None:
        self.name, self.dim = name, dim

    def encode(self, _prompt: object) -> Any:
        raise AssertionError("policies read blocks")


def plans(count: int) -> list[Plan]:
    """p0, p1, ...: each of a model of its own."""
    return [Plan(f"p{index}", f"model-{index}") for index in range(count)]


def situation(
    of: Sequence[Plan], costs: Sequence[float] = (), cost: float = 0.0, blocks: Mapping[str, Any] | None = None, explore: bool = True
) -> Situation:
    """All plans are candidates; they cost `costs` at the price `cost`."""
    costs = costs or [0.0] * len(of)
    candidates = tuple(Candidate(plan, index, costs[index]) for index, plan in enumerate(of))
    return Situation(candidates, blocks or {}, Prices(cost=cost), explore=explore, now=NOW)


def answer(number: int, plan: int, quality: float | None, blocks: Mapping[str, Any] | None = None, **more: Any) -> Observation:
    """The answer of p{plan}; one each second."""
    return Observation(f"d{number}", f"p{plan}", blocks or {}, quality, more.pop("at", NOW + number), **more)


def chi_square(policy: Policy, state: Any, asked: Situation, draws: int = 20_000) -> tuple[float, list[float]]:
    """Of what is drawn against the probabilities that are logged, with these probabilities."""
    counts: Counter[int] = Counter()
    probabilities: tuple[float, ...] = ()
    for number in range(draws):
        decision = decide(policy, state, asked, f"d{number}")
        counts[decision.chosen] += 1
        probabilities = decision.probabilities
        assert decision.propensity == probabilities[decision.chosen]
    assert all(counts[plan] == 0 for plan, p in enumerate(probabilities) if p == 0.0)
    wanted = [draws * p for p in probabilities]
    return sum((counts[plan] - each) ** 2 / each for plan, each in enumerate(wanted) if each), list(probabilities)


def lived(
    policy: Policy, of: Sequence[Plan], truths: Sequence[Sequence[float]], requests: int, costs: Sequence[float] = (), cost: float = 0.0
):
    """Decides and learns, one request after another; the truths (success rates) follow each other, each for its share of the requests.

    The state in the end, and the plan of each request.
    """
    state, chosen = policy.algorithm.empty(), []
    rng = np.random.default_rng(5)
    asked = situation(of, costs, cost)
    for number in range(requests):
        truth = truths[number * len(truths) // requests]
        plan = decide(policy, state, asked, f"d{number}").chosen
        chosen.append(plan)
        state = policy.algorithm.fold(state, [answer(number, plan, float(rng.random() < truth[plan]))])
    return state, chosen
