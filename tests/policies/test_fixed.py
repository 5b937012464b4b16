from __future__ import annotations

import pytest

from policies.draw import draw
from policies.routing.fixed import Params, problems, propensities
from policies.values.plan import Plan

PLANS = tuple(Plan(name, f"model-{name}") for name in ("a", "b", "c"))


def test_the_first_plan_serves_unless_another_is_named() -> None:
    assert propensities(Params(), PLANS) == (1.0, 0.0, 0.0)
    assert propensities(Params(plan="c"), PLANS) == (0.0, 0.0, 1.0)


def test_it_never_explores_without_a_floor() -> None:
    decisions = [draw(propensities(Params(plan="b"), PLANS), 0.0, f"id-{i}", 0) for i in range(1_000)]

    assert {(decision.chosen, decision.propensity, decision.explored) for decision in decisions} == {(1, 1.0, False)}


def test_a_floor_explores_its_share() -> None:
    decisions = [draw(propensities(Params(plan="b"), PLANS), 0.3, f"id-{i}", 0) for i in range(20_000)]

    counts = [sum(decision.chosen == plan for decision in decisions) for plan in range(3)]
    # 0.7 + 0.1, and 0.1 each; chi-square, 2 degrees of freedom: 13.8 is passed once in 1,000 seeds
    assert sum((count - expected) ** 2 / expected for count, expected in zip(counts, (2_000, 16_000, 2_000), strict=True)) < 13.8
    assert {(decision.chosen, decision.explored) for decision in decisions} == {(0, True), (1, False), (2, True)}
    assert {round(decision.propensity, 12) for decision in decisions} == {0.1, 0.8}


@pytest.mark.parametrize(("params", "found"), [(Params(), 0), (Params(plan="a"), 0), (Params(plan="z"), 1)])
def test_a_plan_that_is_not_there_is_a_problem(params: Params, found: int) -> None:
    said = problems(params, ["a", "b"])

    assert len(said) == found
    assert all("`z`" in sentence for sentence in said)
