from __future__ import annotations

import pytest

from policies.policy import Policy
from policies.routing.uniform import Params, Uniform, build, problems
from policies.values.situation import Prices, Situation
from tests.support.given import candidates, kit, surprise


@pytest.mark.parametrize(("names", "share"), [("a", 1.0), ("ab", 0.5), ("abcd", 0.25)])
def test_all_that_can_serve_are_alike(names: str, share: float) -> None:
    situation = Situation(candidates(names, {"b": 3.0}), prices=Prices(cost=100.0))
    policy = build(Params(), (), kit())

    assert policy.propensities(None, situation, policy.estimate(None, situation)).drawn == (share,) * len(names)


def test_twenty_thousand_requests_are_spread_evenly() -> None:
    fifth = dict.fromkeys("abcde", 0.2)

    # chi-square, 4 degrees of freedom: 18.5 is passed once in 1,000 seeds
    assert surprise(Policy("p", Uniform(), 0.0, 4), None, lambda _: Situation(candidates("abcde")), fifth) < 18.5


def test_nothing_cannot_work() -> None:
    assert problems(Params(), ["a"]) == []
