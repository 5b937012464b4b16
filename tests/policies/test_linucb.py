from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from policies.policy import Kit, Policy, decide
from policies.routing.linucb import LinUCB, Params, build, problems
from tests.support.bandits import Block, answer, chi_square, lived, plans, situation

PLANS = plans(3)


def policy(floor: float = 0.0, count: int = 3, **params: Any) -> Policy:
    return Policy("auto", LinUCB(Params(**params), plans(count)), floor, 11)


def learned(of: Policy, pulls: tuple[int, ...] = (300, 300, 20)) -> Any:
    rng = np.random.default_rng(2)
    truth = (0.7, 0.6, 0.65)
    seen = [(plan, float(rng.random() < truth[plan])) for plan, count in enumerate(pulls) for _ in range(count)]
    return of.algorithm.fold(of.algorithm.empty(), [answer(n, plan, quality) for n, (plan, quality) in enumerate(seen)])


def test_the_score_is_the_mean_and_its_bonus_less_the_price() -> None:
    one = policy(alpha=1.5)
    state = learned(one)
    mean, sd = state.posterior.mean[:, 0], np.sqrt(state.posterior.cov[:, 0, 0])
    costs = (0.01, 0.02, 0.0)

    scores = one.algorithm.estimate(state, situation(PLANS, costs, cost=3.0))

    assert scores.score == pytest.approx(mean + 1.5 * sd - 3.0 * np.array(costs))
    assert scores.quality == pytest.approx(mean)
    assert scores.low == pytest.approx(np.clip(mean - 1.96 * sd, 0, 1))
    assert scores.high == pytest.approx(np.clip(mean + 1.96 * sd, 0, 1))


def test_what_is_little_known_is_tried_and_the_better_known_best_is_used_where_nothing_may_be() -> None:
    one = policy(alpha=3.0)
    state = learned(one)

    assert decide(one, state, situation(PLANS), "d").probabilities == (0.0, 0.0, 1.0)
    greedy = decide(one, state, situation(PLANS, explore=False), "d")
    assert greedy.probabilities == (1.0, 0.0, 0.0)
    assert greedy.scores is not None
    assert greedy.scores.score == pytest.approx(state.posterior.mean[:, 0])


def test_the_choice_changes_at_the_price_where_scores_are_equal() -> None:
    one = policy(alpha=0.5)
    state = learned(one, (300, 300, 300))
    costs = (0.03, 0.01, 0.05)
    first, second, _ = one.algorithm.estimate(state, situation(PLANS)).score
    threshold = (first - second) / 0.02

    assert threshold > 0
    assert decide(one, state, situation(PLANS, costs, cost=threshold * 0.999), "d").chosen == 0
    assert decide(one, state, situation(PLANS, costs, cost=threshold * 1.001), "d").chosen == 1


def test_twenty_thousand_requests_are_drawn_as_logged() -> None:
    one = policy(floor=0.3)

    statistic, probabilities = chi_square(one, learned(one), situation(PLANS))

    assert sorted(probabilities) == pytest.approx([0.1, 0.1, 0.8])
    assert statistic < 13.8  # 2 degrees of freedom: passed once in 1,000 seeds


def test_of_equal_plans_the_cheap_one_is_used() -> None:
    _, chosen = lived(policy(count=2), plans(2), [(0.7, 0.7)], 800, costs=(0.002, 0.02), cost=5.0)

    assert chosen[500:].count(0) > 0.8 * 300


def test_a_difference_in_quality_is_learned() -> None:
    _, chosen = lived(policy(count=3), plans(3), [(0.5, 0.85, 0.4)], 800, costs=(0.002, 0.02, 0.01), cost=5.0)

    assert chosen[500:].count(1) > 0.9 * 300


def test_plans_that_change_places_are_found_again() -> None:
    state, chosen = lived(policy(count=2), plans(2), [(0.8, 0.45), (0.2, 0.45)], 2_000)

    assert chosen[500:1_000].count(0) > 450
    assert chosen[1_500:].count(1) > 450
    assert state.drift.alarms.sum() >= 1


def test_it_is_built_with_the_encoders_that_it_names() -> None:
    kit = Kit(lambda name: Block(f"{name}-1", 2), lambda name: pytest.fail(name), "p0")

    built = build(Params(features=("shape", "topics")), PLANS, kit)

    assert [encoder.name for encoder in built.encoders] == ["shape-1", "topics-1"]
    blocks = {"shape-1": np.ones(2, np.float32), "topics-1": np.zeros(2, np.float32)}
    assert len(built.estimate(built.empty(), situation(PLANS, blocks=blocks)).score) == 3


def test_parameters_that_cannot_work_are_problems() -> None:
    assert problems(Params(), ["a"]) == []
    assert ["`alpha`" in said for said in problems(Params(alpha=-0.1), ["a"])] == [True]
    assert len(problems(Params(alpha=float("nan"), noise=0.0), ["a"])) == 2
