from __future__ import annotations

import pytest

from policies.policy import Policy, decide
from policies.routing.best_single import BestSingle, Params, build, problems
from policies.states import arrays, packed, restored, unpacked
from policies.values.outcome import Observation
from policies.values.plan import Plan
from policies.values.situation import Prices, Situation
from tests.support.given import candidates, kit, surprise

PLANS = tuple(Plan(name, f"model-{name}") for name in "abc")
NOW = 1_700_000_000.0


def built(baseline: str = "b", **params: float) -> BestSingle:
    return build(Params(**params), PLANS, kit(baseline=baseline))


def seen(plan: str, *qualities: float) -> list[Observation]:
    return [Observation(f"{plan}-{index}", plan, {}, quality, NOW) for index, quality in enumerate(qualities)]


def test_the_baseline_serves_before_anything_is_known() -> None:
    policy = Policy("p", built(), 0.0, 0)

    assert decide(policy, policy.algorithm.empty(), Situation(candidates("abc"), now=NOW), "d").probabilities == (0.0, 1.0, 0.0)
    assert decide(policy, policy.algorithm.empty(), Situation(candidates("ac"), now=NOW), "d").probabilities == (1.0, 0.0)


def test_the_best_mean_serves() -> None:
    policy = built()
    state = policy.fold(policy.empty(), [*seen("a", 1, 1, 0), *seen("b", 0, 0), *seen("c", 1, 1, 1)])
    situation = Situation(candidates("abc"), now=NOW)

    scores = policy.estimate(state, situation)

    # (2 * 0.5 + successes) / (2 + tries)
    assert scores.quality == pytest.approx((3 / 5, 1 / 4, 4 / 5), rel=1e-6)
    assert all(low < mean < high for low, mean, high in zip(scores.low, scores.quality, scores.high, strict=True))
    assert policy.propensities(state, situation, scores).drawn == (0.0, 0.0, 1.0)
    without = Situation(candidates("ab"), now=NOW)
    assert policy.propensities(state, without, policy.estimate(state, without)).drawn == (1.0, 0.0)


def test_a_better_plan_that_costs_more_than_it_is_worth_does_not_serve() -> None:
    policy = built()
    state = policy.fold(policy.empty(), [*seen("a", 1, 0), *seen("c", 1, 1, 1)])
    dear = candidates("abc", {"c": 0.004})  # 0.8 against 0.5: worth 0.3

    def served(price: float) -> tuple[float, ...]:
        situation = Situation(dear, prices=Prices(cost=price), now=NOW)
        return policy.propensities(state, situation, policy.estimate(state, situation)).drawn

    assert served(70.0) == (0.0, 0.0, 1.0)  # 0.28
    assert served(80.0) == (0.0, 1.0, 0.0)  # 0.32; a and b are alike, and b is the baseline


def test_only_the_floor_explores() -> None:
    policy = Policy("p", built(), 0.3, 8)
    state = policy.algorithm.fold(policy.algorithm.empty(), seen("c", 1, 1))
    situation = Situation(candidates("abc"), now=NOW)

    # chi-square, 2 degrees of freedom: 13.8 is passed once in 1,000 seeds
    assert surprise(policy, state, lambda _: situation, {"a": 0.1, "b": 0.1, "c": 0.8}) < 13.8


def test_a_state_survives_a_snapshot() -> None:
    policy = built()
    state = policy.fold(policy.empty(), seen("a", 1, 0, 1))
    again = restored(policy.empty(), unpacked(packed(arrays(state))))

    assert policy.statistics(again) == policy.statistics(state)
    assert policy.statistics(again)["a"]["mean"] == pytest.approx(3 / 5)


@pytest.mark.parametrize(
    ("params", "word"),
    [
        (Params(prior_mean=1.5), "prior_mean"),
        (Params(prior_strength=0.0), "prior_strength"),
        (Params(half_life_s=0.0), "half_life_s"),
    ],
)
def test_parameters_that_cannot_work_are_problems(params: Params, word: str) -> None:
    (said,) = problems(params, ["a"])

    assert f"`{word}`" in said
