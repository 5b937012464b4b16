from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.draw import draw
from policies.routing.weighted import Params, problems, propensities
from policies.values.plan import Plan

PLANS = tuple(Plan(name, f"model-{name}") for name in ("a", "b", "c", "d"))


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
    assert propensities(Params(weights=weights), PLANS) == pytest.approx(expected, rel=1e-14)


def test_when_no_weighted_plan_is_left_all_that_are_left_are_alike() -> None:
    params = Params(weights={"a": 1, "b": 0})

    assert propensities(params, PLANS[1:]) == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert propensities(Params(weights={"a": 1, "b": 1}), PLANS[1:]) == (1.0, 0.0, 0.0)


@settings(deadline=None)
@given(weights=st.dictionaries(st.sampled_from("abcd"), st.floats(0, 1e299), max_size=4))
def test_shares_are_probabilities(weights: dict[str, float]) -> None:
    shares = propensities(Params(weights=weights), PLANS)

    assert all(0 <= share <= 1 for share in shares)
    assert math.isclose(sum(shares), 1.0, rel_tol=1e-12)


@pytest.mark.parametrize("floor", [0.0, 0.2])
def test_twenty_thousand_requests_are_split_as_configured(floor: float) -> None:
    shares = propensities(Params(weights={"a": 6, "b": 3, "c": 1}), PLANS)
    decisions = [draw(shares, floor, f"request-{i}", 5) for i in range(20_000)]

    counts = [sum(decision.chosen == plan for decision in decisions) for plan in range(4)]
    expected = [20_000 * ((1 - floor) * share + floor / 4) for share in (0.6, 0.3, 0.1, 0.0)]
    assert floor > 0 or counts[3] == 0
    # chi-square, at most 3 degrees of freedom: 16.3 is passed once in 1,000 seeds
    assert sum((count - wanted) ** 2 / wanted for count, wanted in zip(counts, expected, strict=True) if wanted) < 16.3


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
