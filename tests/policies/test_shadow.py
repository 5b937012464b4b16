from __future__ import annotations

import numpy as np
import pytest

from policies.policy import Policy, decide, needed
from policies.routing.weighted import Weighted
from policies.values.outcome import Observation
from policies.values.situation import Situation
from policies.wrappers.base import Wrapper
from policies.wrappers.canary import Canary
from policies.wrappers.canary import Params as CanaryParams
from policies.wrappers.shadow import Params, Shadow, build, problems
from tests.support.given import Given, Seen, candidates, kit, surprise

OBSERVED = [Observation("d", "a", {}, 1.0, 0.0)]


def test_what_the_other_would_have_done_is_logged_and_changes_nothing() -> None:
    inner = Given({"a": 0.9, "b": 0.1}, shadow={"first": "a"})
    shadow = build(Params(policy="new"), inner, (), kit({"new": Given({"a": 0.1, "b": 0.9})}))
    situation = Situation(candidates("ab"))

    alone = decide(Policy("p", inner, 0.1, 3), inner.empty(), situation, "d")
    watched = decide(Policy("p", shadow, 0.1, 3), shadow.empty(), situation, "d")

    assert watched.shadow == {"first": "a", "new": "b"}
    assert (watched.chosen, watched.probabilities, watched.scores) == (alone.chosen, alone.probabilities, alone.scores)


def test_it_is_the_plan_that_it_would_most_likely_have_drawn() -> None:
    shadow = Shadow(Given({"a": 1.0}), "new", Given(odds={"a": 0.2, "b": 0.3, "c": 0.5}))

    def choice(names: str) -> str:
        situation = Situation(candidates(names))
        return shadow.propensities(shadow.empty(), situation, shadow.estimate(shadow.empty(), situation)).shadow["new"]

    assert (choice("abc"), choice("ab"), choice("a")) == ("c", "b", "a")


def test_both_learn_from_what_was_served() -> None:
    shadow = Shadow(Given(), "new", Given())

    state = shadow.fold(shadow.empty(), OBSERVED)

    assert (state.inner, state.other, state.failures) == (Seen(1, 1.0), Seen(1, 1.0), 0)
    assert shadow.statistics(state) == {"inner": {"count": 1}, "shadow": {"policy": "new", "failures": 0, "count": 1}}


@pytest.mark.parametrize("error", [ValueError("x"), FloatingPointError("x"), ZeroDivisionError(), KeyError("shape-1"), IndexError("x")])
def test_its_failure_is_seen_and_hurts_nobody(error: Exception) -> None:
    shadow = Shadow(Given({"a": 0.1, "b": 0.9}), "new", Given(fails=error))

    decision = decide(Policy("p", shadow, 0.0, 3), shadow.empty(), Situation(candidates("ab")), "d")
    state = shadow.fold(shadow.empty(), OBSERVED)

    assert (decision.chosen, decision.shadow) == (1, {"new": ""})
    assert (state.inner, state.other, state.failures) == (Seen(1, 1.0), Seen(), 1)


def test_a_mistake_in_its_code_is_not_hidden() -> None:
    shadow = Shadow(Given({"a": 0.1}), "new", Given(fails=AttributeError("x")))

    with pytest.raises(AttributeError):
        decide(Policy("p", shadow, 0.0, 3), shadow.empty(), Situation(candidates("ab")), "d")


def test_the_features_of_both_are_made_each_once() -> None:
    shadow = Shadow(Given(encoders=("shape-1", "static-1")), "new", Given(encoders=("rules-1", "static-1")))

    assert [encoder.name for encoder in shadow.encoders] == ["shape-1", "static-1", "rules-1"]


def test_draws_follow_the_policy_that_serves() -> None:
    shadow = Shadow(Weighted({"a": 3, "b": 1}), "new", Weighted({"b": 1}))
    situation = Situation(candidates("ab"))

    assert surprise(Policy("p", shadow, 0.2, 5), shadow.empty(), lambda _: situation, {"a": 0.7, "b": 0.3}) < 10.8


def test_a_policy_must_be_named() -> None:
    assert problems(Params(policy="new"), ["a"]) == []
    with pytest.raises(TypeError):
        Params()  # type: ignore[call-arg]


def test_where_its_features_are_missing_it_does_not_learn_and_the_other_does() -> None:
    shadow = Shadow(Given(), "new", Given(encoders=("x-1",)))
    there = Observation("e", "a", {"x-1": np.zeros(1, np.float32)}, 0.5, 0.0)

    state = shadow.fold(shadow.empty(), [*OBSERVED, there])

    assert (state.inner, state.other, state.failures) == (Seen(2, 1.5), Seen(1, 0.5), 0)


def test_only_the_features_of_who_serves_are_needed() -> None:
    inner, watching = Given(encoders=("x-1",)), Given(encoders=("x-1", "y-1"))
    shadow = Shadow(inner, "new", watching)

    assert [each.name for each in shadow.encoders] == ["x-1", "y-1"]
    assert [each.name for each in needed(shadow)] == ["x-1"]
    assert [each.name for each in needed(Wrapper(shadow))] == ["x-1"]
    assert [each.name for each in needed(Canary(shadow, watching, CanaryParams("other")))] == ["x-1", "y-1"]
    assert [each.name for each in needed(watching)] == ["x-1", "y-1"]
