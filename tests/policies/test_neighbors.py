from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from policies.policy import Kit, Policy
from policies.routing.neighbors import Neighbors, Params, State, build, problems
from policies.states import arrays, packed, restored, unpacked
from policies.values.outcome import Observation
from policies.values.plan import Plan
from policies.values.situation import Prices, Situation
from tests.support.encoders import Letters
from tests.support.given import candidates, surprise

ENCODER = Letters("xyz", "near-1")
PLANS = tuple(Plan(name, f"model-{name}") for name in "abc")
NOW = 1_700_000_000.0


def built(encoder: Letters = ENCODER, **params: float) -> Neighbors:
    kit = Kit({"static": encoder}.__getitem__, lambda _: None, "b")  # type: ignore[arg-type, return-value]
    return build(Params(**params), PLANS, kit)  # type: ignore[arg-type]


def seen(key: str, plan: str, x: Sequence[float], quality: float | None, at: float = NOW, **more: float) -> Observation:
    return Observation(key, plan, {ENCODER.name: np.array(x, np.float32)}, quality, at, **more)


def asked(x: Sequence[float], price: float = 0.0) -> Situation:
    return Situation(candidates("abc", {"c": 0.01}), {ENCODER.name: np.array(x, np.float32)}, Prices(cost=price), now=NOW)


def same(one: State, other: State) -> bool:
    return all(
        np.array_equal(value, arrays(other)[name]) if not name.startswith("means") else np.allclose(value, arrays(other)[name], rtol=1e-12)
        for name, value in arrays(one).items()
    )


def crowd(number: int, seed: int = 0) -> list[Observation]:
    rng = random.Random(seed)
    return [
        seen(f"d{i}", rng.choice("abc"), [rng.gauss(0, 1) for _ in range(3)], float(rng.random() < 0.5), NOW + 60 * i, weight=1.0 + i % 3)
        for i in range(number)
    ]


def test_the_baseline_serves_before_anything_is_known() -> None:
    policy = built()
    scores = policy.estimate(policy.empty(), asked([1, 0, 0]))

    assert scores.quality == (0.5, 0.5, 0.5)
    assert policy.propensities(policy.empty(), asked([1, 0, 0]), scores).drawn == (0.0, 1.0, 0.0)


def test_quality_is_the_mean_of_the_most_alike_shrunk_to_the_mean_of_the_plan() -> None:
    policy = built(k=2, mean_weight=3.0, half_life_s=1e9)
    rows = [seen("1", "a", [2, 0, 0], 1.0), seen("2", "a", [3, 4, 0], 0.0), seen("3", "a", [1, 7, 0], 0.0), seen("4", "a", [0, 0, 5], 1.0)]
    state = policy.fold(policy.empty(), rows)

    scores = policy.estimate(state, asked([10, 0, 0]))

    # Cosines 1, 0.6, 0.14 and 0: the first two are near. The plan's mean: (2 * 0.5 + 2) / (2 + 4).
    assert scores.quality[0] == pytest.approx((3 * 0.5 + 1 * 1 + 0.6 * 0) / (3 + 1.6), rel=1e-6)
    assert scores.quality[1:] == (0.5, 0.5)
    assert scores.low[0] < scores.quality[0] < scores.high[0]


def test_what_is_unlike_or_unknown_says_nothing() -> None:
    policy = built(mean_weight=1.0)
    state = policy.fold(policy.empty(), [seen("1", "a", [1, 0, 0], 1.0), seen("2", "a", [1, 0, 0], 1.0)])
    mean = (2 * 0.5 + 2) / 4

    for x in ([-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]):
        assert policy.estimate(state, asked(x)).quality[0] == pytest.approx(mean)
    assert policy.estimate(state, Situation(candidates("abc"), now=NOW)).quality[0] == pytest.approx(mean)


def test_each_kind_of_request_goes_to_the_plan_that_is_good_at_it_and_worth_its_price() -> None:
    policy = built()
    rows = [
        seen(f"{plan}{kind}{i}", plan, x, float(plan == kind))
        for plan in "ac"
        for kind, x in (("a", [1, 0, 0]), ("c", [0, 1, 0]))
        for i in range(30)
    ]
    state = policy.fold(policy.empty(), rows)

    def served(x: Sequence[float], price: float = 0.0) -> str:
        situation = asked(x, price)
        return "abc"[policy.propensities(state, situation, policy.estimate(state, situation)).drawn.index(1.0)]

    assert (served([1, 0.1, 0]), served([0.1, 1, 0])) == ("a", "c")
    assert served([0.1, 1, 0], price=100.0) == "b"  # 1 for c's cost


def test_neither_order_nor_replicas_change_the_memory() -> None:
    policy = built(capacity=64)
    observations = crowd(600)
    at_once = policy.fold(policy.empty(), observations)
    shuffled = random.Random(5).sample(observations, len(observations))
    piecewise = policy.empty()
    for start in range(0, 600, 37):
        piecewise = policy.fold(piecewise, shuffled[start : start + 37])

    assert same(at_once, piecewise)
    assert at_once.ids.shape == (64, 3)


def test_a_correction_changes_its_row_and_what_is_taken_back_is_gone() -> None:
    policy = built()
    rest = [seen("2", "a", [0, 1, 0], 0.3), seen("3", "b", [0, 0, 1], 0.9)]
    state = policy.fold(policy.empty(), [seen("1", "a", [1, 0, 0], 0.2), *rest])

    corrected = policy.fold(state, [seen("1", "a", [1, 0, 0], 0.7, before=0.2)])
    retracted = policy.fold(corrected, [Observation("1", "a", {}, None, NOW, before=0.7)])

    assert same(corrected, policy.fold(policy.empty(), [seen("1", "a", [1, 0, 0], 0.7), *rest]))
    assert np.allclose(retracted.rows, policy.fold(policy.empty(), rest).rows)
    assert 1.0 not in retracted.rows[:, 0, 0]
    empty = policy.fold(retracted, [Observation("2", "a", {}, None, NOW, before=0.3), Observation("3", "b", {}, None, NOW, before=0.9)])
    assert policy.estimate(empty, asked([1, 1, 1])).quality == pytest.approx((0.5, 0.5, 0.5))


def test_a_full_memory_keeps_the_recent_and_those_that_stand_for_many() -> None:
    policy = built(capacity=200, half_life_s=3_600.0)
    # Three half-lives apart: eight to one. Twice the weight: two to one.
    groups = {"old": (NOW - 3 * 3_600, 1.0), "new": (NOW, 1.0), "rare": (NOW, 2.0)}
    rows = [
        seen(f"{name}{i}", "a", [index == 0, index == 1, index == 2], 1.0, at, weight=weight)
        for index, (name, (at, weight)) in enumerate(groups.items())
        for i in range(2_000)
    ]
    state = policy.fold(policy.empty(), rows)

    old, new, rare = (int(count) for count in state.rows[:, 0].sum(axis=0))
    # Expected: 200 * (1, 8, 16) / 25 = 8, 64, 128; three standard deviations and a half around.
    assert old + new + rare == 200
    assert old <= 18
    assert abs(new - 64) <= 23
    assert abs(rare - 128) <= 24


def test_outcomes_without_features_count_for_the_mean_only_and_those_of_gone_plans_not_at_all() -> None:
    policy = built()
    state = policy.fold(policy.empty(), [Observation("1", "a", {}, 1.0, NOW), Observation("2", "z", {}, 1.0, NOW)])

    assert state.ids.shape == (0, 3)
    assert policy.estimate(state, asked([1, 0, 0])).quality == pytest.approx((2 / 3, 0.5, 0.5))


def test_only_the_floor_explores() -> None:
    algorithm = built()
    state = algorithm.fold(algorithm.empty(), [seen("1", "c", [1, 0, 0], 1.0)])

    # chi-square, 2 degrees of freedom: 13.8 is passed once in 1,000 seeds
    expected = {"a": 0.1, "b": 0.1, "c": 0.8}
    assert surprise(Policy("p", algorithm, 0.3, 8), state, lambda _: asked([1, 0, 0]), expected) < 13.8


def test_a_state_is_bounded_and_survives_a_snapshot() -> None:
    policy = built(capacity=100)
    state = policy.fold(policy.empty(), crowd(2_000))
    again = restored(policy.empty(), unpacked(packed(arrays(state))))

    assert sum(array.nbytes for array in arrays(state).values()) < 100 * 3 * (3 * 4 + 20) + 200
    assert same(state, again)
    assert policy.estimate(again, asked([1, 2, 3])) == policy.estimate(state, asked([1, 2, 3]))
    assert [each["rows"] for each in policy.statistics(state).values()] == [100, 100, 100]


def test_a_memory_that_would_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="exceed 10 MB"):
        built(Letters("x" * 2_000), capacity=1_000)


@pytest.mark.parametrize(
    ("params", "word"),
    [
        (Params(k=0), "k"),
        (Params(k=600), "k"),
        (Params(capacity=70_000), "capacity"),
        (Params(prior_mean=-0.1), "prior_mean"),
        (Params(prior_strength=0.0), "prior_strength"),
        (Params(mean_weight=0.0), "mean_weight"),
        (Params(half_life_s=0.0), "half_life_s"),
    ],
)
def test_parameters_that_cannot_work_are_problems(params: Params, word: str) -> None:
    (said,) = problems(params, ["a"])

    assert f"`{word}`" in said
