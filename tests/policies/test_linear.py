"""What LinUCB and Thompson sampling learn, and what they do with it."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from policies import states
from policies.policy import Policy, decide
from policies.routing import linear, linucb, thompson
from policies.routing.linear import Linear
from policies.values.outcome import Observation
from policies.values.plan import Candidate, Plan
from policies.values.situation import Prices, Situation

PLANS = (Plan("a", "small"), Plan("b", "large"), Plan("c", "large", reasoning="high"))
TWO = (Plan("cheap", "small"), Plan("dear", "large"))
PRIOR = {"prior_mean": 0.5, "pool": 1.0, "strength": 1.0, "residual": 4.0, "ridge": 60.0}


class Numbers:
    """An encoder of three numbers."""

    name, dim, slow = "numbers-1", 3, False

    def encode(self, prompt: Any) -> npt.NDArray[np.float32]:
        raise NotImplementedError


def ucb(plans: Sequence[Plan] = PLANS, *, features: bool = False, **params: Any) -> linucb.LinUCB:
    return linucb.LinUCB(linucb.Params(**params), plans, [Numbers()] if features else [])


def ts(plans: Sequence[Plan] = PLANS, *, features: bool = False, **params: Any) -> thompson.Thompson:
    return thompson.Thompson(thompson.Params(**params), plans, [Numbers()] if features else [])


def situation(plans: Sequence[Plan] = PLANS, x: Sequence[float] = (), costs: Sequence[float] = (), **fields: Any) -> Situation:
    each = [Candidate(plan, index, costs[index] if costs else 0.0) for index, plan in enumerate(plans)]
    return Situation(each, {"numbers-1": np.array(x, np.float32)} if x else {}, **fields)


def seen(number: int, plan: str, quality: float | None, x: Sequence[float] = (), **fields: Any) -> Observation:
    blocks = {"numbers-1": np.array(x, np.float32)} if x else {}
    return Observation(f"d{number}", plan, blocks, quality, fields.pop("at", 1_000.0 + number), **fields)


def noise(count: int, seed: int = 1, features: bool = False) -> list[Observation]:
    """Random observations of three plans."""
    dice = random.Random(seed)
    return [
        seen(number, dice.choice("abc"), float(dice.random() < 0.6), [dice.gauss(0, 1) for _ in range(3)] if features else ())
        for number in range(count)
    ]


@pytest.mark.parametrize("make", [ucb, ts])
def test_the_posterior_is_that_of_one_ridge_regression_on_the_augmented_design(make: Any) -> None:
    """Columns: x of all plans, x of each model in its reasoning mode, 1 of each plan. Solved here as one system of 1 x 19."""
    policy = make(features=True, drift=linear.Doubt(threshold=0), **PRIOR)
    log = noise(200, features=True)
    state = policy.fold(policy.empty(), log)

    def design(plan: int, x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        row = np.zeros(4 + 3 * 4 + 3)
        row[:4] = row[4 + 4 * plan : 8 + 4 * plan] = x  # here every plan is a group of its own
        row[16 + plan] = 1.0
        return row

    prior = np.concatenate([[1.0, 60, 60, 60], np.tile([1.0, 60, 60, 60], 3), [4.0] * 3])
    start = np.zeros(19)
    start[0] = 0.5
    rows = np.array([design("abc".index(each.plan), np.array([1.0, *each.blocks["numbers-1"]], np.float64)) for each in log])
    precision = np.diag(prior) + rows.T @ rows
    theta = np.linalg.solve(precision, prior * start + rows.T @ np.array([each.quality for each in log]))
    x = np.array([1.0, 0.5, -1.0, 2.0])
    at = situation(x=(0.5, -1.0, 2.0))
    for plan, (mean, sd) in enumerate(zip(*policy.moments(state, at)[1:], strict=True)):
        row = design(plan, x)
        assert mean == pytest.approx(row @ theta, abs=1e-9)
        assert sd == pytest.approx(math.sqrt(0.2 * row @ np.linalg.solve(precision, row)), abs=1e-9)


@pytest.mark.parametrize("make", [ucb, ts])
@pytest.mark.parametrize("half_life_s", [None, 100.0])
def test_neither_order_nor_batches_matter(make: Any, half_life_s: float | None) -> None:
    policy = make(features=True, half_life_s=half_life_s, drift=linear.Doubt(threshold=0))
    log = noise(120, features=True)
    whole = policy.fold(policy.empty(), log)
    mixed = list(log)
    random.Random(3).shuffle(mixed)
    parts = policy.empty()
    for start in range(0, 120, 7):
        parts = policy.fold(parts, mixed[start : start + 7])

    assert np.allclose(whole.posterior.mean, parts.posterior.mean, atol=1e-9)
    assert np.allclose(whole.posterior.cov, parts.posterior.cov, atol=1e-9)


@pytest.mark.parametrize("make", [ucb, ts])
def test_what_is_corrected_or_taken_back_leaves_no_trace(make: Any) -> None:
    policy = make(drift=linear.Doubt(threshold=0))
    plain = policy.fold(policy.empty(), [seen(1, "a", 1.0), seen(2, "b", 0.25)])
    state = policy.fold(policy.empty(), [seen(1, "a", 0.0), seen(2, "b", 0.25), seen(3, "c", 1.0, weight=2.0)])
    state = policy.fold(state, [seen(1, "a", 1.0, before=0.0), seen(3, "c", None, before=1.0, weight=2.0)])

    assert np.allclose(state.sums.gram, plain.sums.gram, atol=1e-12)
    assert np.allclose(state.sums.moment, plain.sums.moment, atol=1e-12)
    assert np.allclose(state.posterior.mean, plain.posterior.mean, atol=1e-9)


def test_an_observation_counts_half_after_its_half_life() -> None:
    """One answer of 1, a half-life before one of 0: 1.5 answers, and 0.5 of them good."""
    policy = ucb((Plan("a", "m"),), half_life_s=100.0, drift=linear.Doubt(threshold=0))
    state = policy.fold(policy.empty(), [seen(1, "a", 1.0, at=1_600.0), seen(2, "a", 0.0, at=1_700.0)])

    told = policy.statistics(state)["plans"]["a"]
    assert told["mean"] == pytest.approx(0.5 / 1.5)
    assert told["pulls"] == pytest.approx(1.5)


def test_a_plan_that_nobody_tried_starts_from_its_model_and_a_model_from_all() -> None:
    plans = (Plan("x", "m"), Plan("y", "m"), Plan("z", "other"))
    policy = ucb(plans, **PRIOR)
    state = policy.fold(policy.empty(), [seen(number, "x", 1.0) for number in range(50)])

    index, means, sds = policy.moments(state, situation(plans))
    assert index == [0, 1, 2]
    assert means[0] > means[1] > means[2] > 0.5
    assert sds[0] < sds[1] < sds[2]


@pytest.mark.parametrize("make", [ucb, ts])
def test_prices_change_the_choice_where_they_should(make: Any) -> None:
    """`dear` is better by d and costs 0.01 USD more: it wins below d / 0.01 a USD."""
    policy = make(TWO)
    log = [seen(number, "cheap", float(number % 10 < 5)) for number in range(200)]
    log += [seen(200 + number, "dear", float(number % 10 < 8)) for number in range(200)]
    state = policy.fold(policy.empty(), log)
    cheap, dear = policy.moments(state, situation(TWO))[1]
    border = (dear - cheap) / 0.01
    for price, winner in ((border * 0.99, 1), (border * 1.01, 0)):
        at = situation(TWO, costs=(0.0, 0.01), prices=Prices(cost=price), explore=False)
        assert policy.propensities(state, at, policy.estimate(state, at)).drawn[winner] == 1.0


@pytest.mark.parametrize("make", [ucb, ts])
def test_where_nothing_may_be_tried_out_the_best_mean_is_taken(make: Any) -> None:
    policy = make(TWO, **PRIOR)
    state = policy.fold(policy.empty(), [seen(number, "cheap", float(number % 2)) for number in range(40)] + [seen(99, "dear", 0.0)])
    for explore in (True, False):
        at = situation(TWO, explore=explore)
        scores = policy.estimate(state, at)
        odds = policy.propensities(state, at, scores).drawn
        if not explore:
            assert odds == (1.0, 0.0)
            assert scores.score == pytest.approx(scores.quality)
            assert set(scores.spread) <= {0.0}
        else:
            assert odds != (1.0, 0.0)


@pytest.mark.parametrize("floor", [0.0, 0.1])
def test_thompson_is_drawn_with_the_probability_that_it_says(floor: float) -> None:
    """Chi-square over 20,000 draws, 2 degrees of freedom: 13.8 is passed once in 1,000 seeds."""
    policy = ts()
    state = policy.fold(policy.empty(), noise(30))
    found = [decide(Policy("p", policy, floor, 7), state, situation(), f"d{number}") for number in range(20_000)]

    chances = found[0].probabilities
    assert min(chances) > 0.01
    counts = np.bincount([each.chosen for each in found], minlength=3)
    assert sum((counts - 20_000 * np.array(chances)) ** 2 / (20_000 * np.array(chances))) < 13.8
    assert all(each.propensity == chances[each.chosen] for each in found)


def test_thompsons_odds_are_those_of_the_largest_of_independent_normals() -> None:
    policy = ts()
    state = policy.fold(policy.empty(), noise(30))
    at = situation()
    scores = policy.estimate(state, at)
    drawn = np.random.default_rng(5).normal(scores.score, scores.spread, size=(400_000, 3))

    odds = policy.propensities(state, at, scores).drawn
    assert sum(odds) == pytest.approx(1)
    assert odds == pytest.approx(np.bincount(drawn.argmax(1), minlength=3) / 400_000, abs=3e-3)


def test_linucb_with_a_floor_is_drawn_with_the_probability_that_it_says() -> None:
    policy = ucb()
    state = policy.fold(policy.empty(), noise(60))
    found = [decide(Policy("p", policy, 0.3, 7), state, situation(), f"d{number}") for number in range(20_000)]

    chances = np.array(found[0].probabilities)
    assert sorted(chances) == pytest.approx([0.1, 0.1, 0.8])
    counts = np.bincount([each.chosen for each in found], minlength=3)
    assert sum((counts - 20_000 * chances) ** 2 / (20_000 * chances)) < 13.8


def test_the_interval_and_the_bonus_are_made_of_the_same_deviation() -> None:
    policy = ucb(alpha=3.0)
    state = policy.fold(policy.empty(), noise(400))
    at = situation()
    _, means, sds = policy.moments(state, at)
    scores = policy.estimate(state, at)

    assert scores.score == pytest.approx([mean + 3 * sd for mean, sd in zip(means, sds, strict=True)])
    assert scores.low == pytest.approx([max(0.0, mean - 1.96 * sd) for mean, sd in zip(means, sds, strict=True)])
    assert scores.high == pytest.approx([min(1.0, mean + 1.96 * sd) for mean, sd in zip(means, sds, strict=True)])


def served(
    policy: Linear, quality: dict[str, float], requests: int, seed: int, costs: Sequence[float] = (), price: float = 0.0
) -> list[str]:
    """The plans that serve a stream whose answers are all judged at once."""
    dice = random.Random(seed)
    state = policy.empty()
    plans: list[str] = []
    for number in range(requests):
        at = situation(TWO, costs=costs, prices=Prices(cost=price))
        plan = TWO[decide(Policy("p", policy, 0.02, seed), state, at, f"d{number}").chosen].name
        plans.append(plan)
        state = policy.fold(state, [seen(number, plan, float(dice.random() < quality[plan]))])
    return plans


@pytest.mark.parametrize("make", [ucb, ts])
def test_at_equal_quality_the_cheap_plan_gets_the_calls(make: Any) -> None:
    """It costs nothing; the other costs what is worth 0.09 of an answer."""
    shares = [served(make(TWO), {"cheap": 0.7, "dear": 0.7}, 500, seed, (0.0, 1.0), 0.09)[-200:].count("cheap") / 200 for seed in range(6)]

    assert sum(shares) / len(shares) > 0.8


@pytest.mark.parametrize("make", [ucb, ts])
def test_a_difference_of_quality_is_found(make: Any) -> None:
    shares = [served(make(TWO), {"cheap": 0.5, "dear": 0.8}, 500, seed, (0.0, 1.0), 0.09)[-200:].count("dear") / 200 for seed in range(6)]

    assert sum(shares) / len(shares) > 0.8


def test_a_change_is_noticed_and_a_steady_stream_is_left_alone() -> None:
    policy = ts(TWO)
    dice = random.Random(2)
    state = policy.fold(policy.empty(), [seen(n, "dear", float(dice.random() < 0.8)) for n in range(600)])
    assert policy.statistics(state)["plans"]["dear"]["resets"] == 0

    after = policy.fold(state, [seen(1_000 + n, "dear", float(dice.random() < 0.2)) for n in range(150)])
    told = policy.statistics(after)["plans"]["dear"]
    assert told["resets"] == 1
    assert told["posterior"] < 0.4  # 600 answers of before would hold it above 0.6


@pytest.mark.parametrize("make", [ucb, ts])
def test_a_state_is_saved_and_taken_up_to_the_bit(make: Any) -> None:
    policy = make(features=True, half_life_s=50.0)
    state = policy.fold(policy.empty(), noise(300, features=True))
    again = states.restored(policy.empty(), states.unpacked(states.packed(states.arrays(state))))
    at = situation(x=(0.1, 0.2, 0.3))

    assert policy.estimate(again, at) == policy.estimate(state, at)
    more = noise(50, seed=9, features=True)
    assert policy.estimate(policy.fold(again, more), at) == policy.estimate(policy.fold(state, more), at)
    assert sum(array.nbytes for array in states.arrays(state).values()) < 20_000


def test_only_some_plans_may_be_candidates() -> None:
    policy = ts()
    state = policy.fold(policy.empty(), noise(60))
    whole = policy.estimate(state, situation())
    some = Situation([Candidate(PLANS[2], 2), Candidate(PLANS[0], 0)])

    assert policy.estimate(state, some).quality == (whole.quality[2], whole.quality[0])


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"ridge": 0}, "`ridge` must be above 0"),
        ({"half_life_s": 0}, "`half_life_s` must be above 0"),
        ({"prior_mean": 2}, "`prior_mean` must be between 0 and 1"),
        ({"features": ["shape", "shape"]}, "`features` names an encoder twice"),
    ],
)
def test_parameters_that_cannot_work(params: dict[str, Any], says: str) -> None:
    assert linucb.problems(msgspec.convert(params, linucb.Params), ["a"]) == [says]
    assert thompson.problems(msgspec.convert(params, thompson.Params), ["a"]) == [says]
    assert linucb.problems(linucb.Params(alpha=-1), ["a"]) == ["`alpha` must be at least 0"]
    assert thompson.problems(thompson.Params(anneal=0), ["a"]) == ["`anneal` must be above 0"]
