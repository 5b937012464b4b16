from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.policy import Policy, decide
from policies.routing.weighted import Params, Weighted, build, problems
from policies.values.plan import Candidate
from policies.values.situation import Situation
from tests.support.given import candidates, kit, surprise

PLANS = candidates("abcd")


def shares(weights: dict[str, float], eligible: tuple[Candidate, ...] = PLANS) -> tuple[float, ...]:
    policy = build(Params(weights=weights), (), kit())
    situation = Situation(eligible)
    return policy.propensities(None, situation, policy.estimate(None, situation)).drawn


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ({}, (0.25, 0.25, 0.25, 0.25)),
        ({"a": 1}, (1.0, 0.0, 0.0, 0.0)),
        ({"a": 1, "c": 3}, (0.25, 0.0, 0.75, 0.0)),
        ({"a": 90, "b": 5, "c": 5, "d": 0}, (0.9, 0.05, 0.05, 0.0)),
        ({"b": 1e-300, "d": 3e-300}, (0.0, 0.25, 0.0, 0.75)),
    ],
)
def test_a_plan_has_its_share_of_the_weights(weights: dict[str, float], expected: tuple[float, ...]) -> None:
    assert shares(weights) == pytest.approx(expected, rel=1e-14)


def test_when_no_weighted_plan_is_left_all_that_are_left_are_alike() -> None:
    assert shares({"a": 1, "b": 0}, PLANS[1:]) == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert shares({"a": 1, "b": 1}, PLANS[1:]) == (1.0, 0.0, 0.0)


@settings(deadline=None)
@given(weights=st.dictionaries(st.sampled_from("abcd"), st.floats(0, 1e299), max_size=4))
def test_shares_are_probabilities(weights: dict[str, float]) -> None:
    found = shares(weights)

    assert all(0 <= share <= 1 for share in found)
    assert math.isclose(sum(found), 1.0, rel_tol=1e-12)


@pytest.mark.parametrize("floor", [0.0, 0.2])
def test_twenty_thousand_requests_are_split_as_configured(floor: float) -> None:
    policy = Policy("p", Weighted({"a": 6, "b": 3, "c": 1}), floor, 5)
    expected = {name: (1 - floor) * share + floor / 4 for name, share in zip("abcd", (0.6, 0.3, 0.1, 0.0), strict=True)}

    # chi-square, at most 3 degrees of freedom: 16.3 is passed once in 1,000 seeds
    assert surprise(policy, None, lambda _: Situation(PLANS), expected) < 16.3


def test_a_split_is_no_exploration() -> None:
    policy = Policy("p", Weighted({"a": 3, "b": 1}), 0.2, 5)

    assert decide(policy, None, Situation(PLANS[:2], explore=False), "d").probabilities == (0.75, 0.25)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ({"a": 1, "z": 1}, ["`z`", "not among"]),
        ({"a": -1.0, "b": 2.0}, ["`a`", "negative"]),
        ({"a": math.inf}, ["`a`", "not finite"]),
        ({"a": math.nan}, ["`a`", "not finite"]),
        ({"a": 0.0, "b": 0}, ["no plan has a positive weight"]),
    ],
)
def test_weights_that_cannot_work_are_problems(weights: dict[str, float], words: list[str]) -> None:
    (said,) = problems(Params(weights=weights), ["a", "b", "c", "d"])

    assert all(word in said for word in words)


def test_weights_that_work_are_none() -> None:
    assert problems(Params(), ["a"]) == []
    assert problems(Params(weights={"a": 0.5}), ["a", "b"]) == []
