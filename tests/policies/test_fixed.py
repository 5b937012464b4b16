from __future__ import annotations

import pytest

from policies.policy import Policy, decide
from policies.routing.fixed import Fixed, Params, build, problems
from policies.values.situation import Situation
from tests.support.given import candidates, kit, surprise

ABC = Situation(candidates("abc"))


def probabilities(policy: Fixed, situation: Situation = ABC) -> tuple[float, ...]:
    return policy.propensities(None, situation, policy.estimate(None, situation)).drawn


def test_the_baseline_serves_unless_another_is_named() -> None:
    assert probabilities(build(Params(), (), kit(baseline="b"))) == (0.0, 1.0, 0.0)
    assert probabilities(build(Params(plan="c"), (), kit(baseline="b"))) == (0.0, 0.0, 1.0)


def test_where_the_plan_cannot_serve_the_baseline_does_else_the_first_that_can() -> None:
    assert probabilities(Fixed("c", "b"), Situation(candidates("abc")[:2])) == (0.0, 1.0)
    assert probabilities(Fixed("c", "d"), Situation(candidates("abc")[:2])) == (1.0, 0.0)


def test_it_never_explores_without_a_floor() -> None:
    policy = Policy("p", Fixed("b"), 0.0, 0)
    decisions = [decide(policy, None, ABC, f"id-{i}") for i in range(1_000)]

    assert {(decision.chosen, decision.propensity, decision.explored) for decision in decisions} == {(1, 1.0, False)}


def test_a_floor_explores_its_share() -> None:
    policy = Policy("p", Fixed("b"), 0.3, 0)
    decisions = [decide(policy, None, ABC, f"id-{i}") for i in range(20_000)]

    assert {(decision.chosen, decision.explored) for decision in decisions} == {(0, True), (1, False), (2, True)}
    # 0.7 + 0.1, and 0.1 each; chi-square, 2 degrees of freedom: 13.8 is passed once in 1,000 seeds
    assert surprise(policy, None, lambda _: ABC, {"a": 0.1, "b": 0.8, "c": 0.1}) < 13.8


@pytest.mark.parametrize(("params", "found"), [(Params(), 0), (Params(plan="a"), 0), (Params(plan="z"), 1)])
def test_a_plan_that_is_not_there_is_a_problem(params: Params, found: int) -> None:
    said = problems(params, ["a", "b"])

    assert len(said) == found
    assert all("`z`" in sentence for sentence in said)
