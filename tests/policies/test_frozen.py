from __future__ import annotations

import msgspec
import pytest

from policies.policy import Policy, decide
from policies.routing.weighted import Weighted
from policies.values.outcome import Observation
from policies.values.situation import Prices, Situation
from policies.wrappers.frozen import Frozen, Params, build, problems
from tests.support.given import Given, candidates, kit, surprise


def test_nothing_is_learned() -> None:
    frozen = build(Params(), Given(), (), kit())
    state = frozen.empty()

    assert frozen.fold(state, [Observation("d", "a", {}, 1.0, 0.0)]) is state
    assert frozen.statistics(state) == {"inner": {"count": 0}}


def test_nothing_is_explored() -> None:
    inner = Given({"a": 0.6, "b": 0.5}, bonus={"b": 0.3})
    situation = Situation(candidates("ab"))
    assert decide(Policy("p", inner, 0.2, 0), inner.empty(), situation, "d").probabilities == pytest.approx((0.1, 0.9))

    frozen = Frozen(inner, False)
    decision = decide(Policy("p", frozen, 0.2, 0), frozen.empty(), situation, "d")

    assert decision.probabilities == (1.0, 0.0)  # neither the bonus nor the floor
    assert not decision.explored


def test_a_pessimist_takes_the_plan_that_is_known_to_be_good_and_pays_no_more_than_it_is_worth() -> None:
    inner = Given({"a": 0.6, "b": 0.7, "c": 0.65}, low={"a": 0.55, "b": 0.3, "c": 0.58}, shadow={"s": "c"})
    frozen = Frozen(inner, True)
    situation = Situation(candidates("abc", {"c": 0.002}), prices=Prices(cost=10.0))

    scores = frozen.estimate(frozen.empty(), situation)
    odds = frozen.propensities(frozen.empty(), situation, scores)

    assert scores.score == pytest.approx((0.55, 0.3, 0.58 - 0.02))
    assert odds.drawn == (0.0, 0.0, 1.0)
    assert odds.shadow == {"s": "c"}
    dear = msgspec.structs.replace(situation, prices=Prices(cost=20.0))
    assert frozen.propensities(frozen.empty(), dear, frozen.estimate(frozen.empty(), dear)).drawn == (1.0, 0.0, 0.0)


@pytest.mark.parametrize("pessimistic", [False, True])
def test_a_split_that_is_no_exploration_stays(pessimistic: bool) -> None:
    frozen = Frozen(Weighted({"a": 3, "b": 1}), pessimistic)
    situation = Situation(candidates("ab"))

    # 1 degree of freedom: 10.8 is passed once in 1,000 seeds
    assert surprise(Policy("p", frozen, 0.1, 5), frozen.empty(), lambda _: situation, {"a": 0.75, "b": 0.25}) < 10.8


def test_it_has_no_problems() -> None:
    assert problems(Params(), ["a"]) == []
