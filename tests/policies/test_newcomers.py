from __future__ import annotations

import numpy as np
import pytest

from policies.policy import Policy, decide
from policies.routing.weighted import Weighted
from policies.values.outcome import Observation
from policies.values.plan import Plan
from policies.values.situation import Situation, Standing
from policies.wrappers.canary import Canary
from policies.wrappers.canary import Params as Split
from policies.wrappers.newcomers import Newcomers, Params, State, build, problems
from policies.wrappers.sticky import Params as Glue
from policies.wrappers.sticky import Sticky
from tests.support.given import Given, candidates, kit, surprise

PLANS = tuple(Plan(name, f"model-{name}") for name in "abcd")
SITUATION = Situation(candidates("abcd"))


def label(plan: str, quality: float | None = 1.0, before: float | None = None) -> Observation:
    return Observation("d", plan, {}, quality, 0.0, before=before)


def known(policy: Newcomers, **counts: int) -> State:
    state: State = policy.fold(policy.empty(), [label(plan) for plan, count in counts.items() for _ in range(count)])
    return state


def wrapped(inner: object, share: float = 0.05, least: float = 0.01, until: int = 3) -> Newcomers:
    return build(Params(share, least, until), inner, PLANS, kit())  # type: ignore[arg-type]


def odds(policy: Newcomers, state: State, situation: Situation = SITUATION) -> tuple[float, ...]:
    return policy.propensities(state, situation, policy.estimate(state, situation)).drawn


def test_too_much_is_scaled_down_in_proportion() -> None:
    policy = wrapped(Weighted({"a": 3, "b": 1, "c": 4, "d": 2}))

    # c and d had 0.6 together: 2 to 1 of 0.05; a and b have 3 to 1 of 0.95
    assert odds(policy, known(policy, a=3, b=3, c=2)) == pytest.approx((0.7125, 0.2375, 0.1 / 3, 0.05 / 3))


def test_a_plan_that_is_liked_before_it_is_known_leaves_the_rest_to_the_best_of_the_others() -> None:
    policy = wrapped(Given({"a": 0.5, "b": 0.7, "c": 0.99}))

    assert odds(policy, known(policy, a=3, b=3)) == pytest.approx((0, 0.95, 0.05, 0))


def test_a_plan_that_nobody_asks_for_is_tried_all_the_same() -> None:
    policy = wrapped(Weighted({"a": 3, "b": 1}))

    assert odds(policy, known(policy, a=3, b=3)) == pytest.approx((0.7425, 0.2475, 0.005, 0.005))
    quiet = Situation(SITUATION.candidates, explore=False)
    assert odds(policy, known(policy, a=3, b=3), quiet) == pytest.approx((0.75, 0.25, 0, 0))


def test_what_is_within_the_bounds_stays() -> None:
    policy = wrapped(Weighted({"a": 0.97, "b": 0, "c": 0.03}))

    assert odds(policy, known(policy, a=3, b=3)) == pytest.approx((0.97, 0, 0.03, 0))


def test_nothing_is_tried_where_it_may_not_be_explored_on() -> None:
    policy = wrapped(Given({"a": 0.5, "b": 0.7, "c": 0.99}))

    assert odds(policy, known(policy, a=3, b=3), Situation(SITUATION.candidates, explore=False)) == (0, 1, 0, 0)


@pytest.mark.parametrize("counts", [{}, {"a": 2}, {"a": 3, "b": 3, "c": 3, "d": 3}])
def test_where_all_are_new_or_none_is_the_policy_decides(counts: dict[str, int]) -> None:
    policy = wrapped(Weighted({"a": 1, "c": 3}))

    assert odds(policy, known(policy, **counts)) == (0.25, 0, 0.75, 0)


def test_only_candidates_count() -> None:
    policy = wrapped(Weighted({"b": 1, "c": 3}))

    assert odds(policy, known(policy, a=3), Situation(candidates("abcd")[1:])) == (0.25, 0.75, 0)


def test_a_session_that_began_with_a_newcomer_may_stay_with_it() -> None:
    policy = wrapped(Sticky(Given({"a": 0.5, "c": 0.5}), Glue()))
    situation = Situation(SITUATION.candidates, standing=Standing("c", 1.0))

    assert odds(policy, known(policy, a=3, b=3), situation) == (0, 0, 1, 0)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ({"a": 3, "b": 1, "c": 4, "d": 2}, (0.7125, 0.2375, 0.1 / 3, 0.05 / 3)),
        ({"a": 3, "b": 1}, (0.7425, 0.2475, 0.005, 0.005)),
    ],
)
def test_draws_follow_what_is_said_of_them(weights: dict[str, float], expected: tuple[float, ...]) -> None:
    policy = wrapped(Weighted(weights))
    said = {name: 0.9 * p + 0.025 for name, p in zip("abcd", expected, strict=True)}

    # 3 degrees of freedom: 16.3 is passed once in 1,000 seeds
    assert surprise(Policy("p", policy, 0.1, 5), known(policy, a=3, b=3), lambda _: SITUATION, said) < 16.3


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ({"c": 1}, {"a": 0.95, "b": 0.0, "c": 0.05, "d": 0.0}),  # one side is all newcomer: both together have 0.3
        ({"b": 1}, {"a": 0.99 * 0.7, "b": 0.99 * 0.3, "c": 0.005, "d": 0.005}),
    ],
)
def test_over_the_sides_of_a_canary_the_bounds_hold_for_both_together(new: dict[str, float], expected: dict[str, float]) -> None:
    policy = wrapped(Canary(Weighted({"a": 1}), Weighted(new), Split("new", 0.3)))
    state = known(policy, a=3, b=3)

    chi2 = surprise(Policy("p", policy, 0.0, 5), state, lambda i: Situation(SITUATION.candidates, unit=f"u{i}"), expected)

    assert chi2 < 16.3


def test_corrections_change_no_count_and_what_is_taken_back_does() -> None:
    policy = wrapped(Given())
    state = policy.fold(known(policy, a=3, b=2), [label("a", 0.5, 1.0), label("a", None, 0.5), label("gone")])

    assert state.counts.tolist() == [2, 2, 0, 0]
    assert state.inner.count == 5


def test_people_see_who_is_new_and_what_share_it_got() -> None:
    policy = wrapped(Given())

    assert policy.statistics(known(policy, a=3, c=1))["newcomers"] == {
        "a": {"observations": 3, "newcomer": False, "share": 0.75},
        "b": {"observations": 0, "newcomer": True, "share": 0.0},
        "c": {"observations": 1, "newcomer": True, "share": 0.25},
        "d": {"observations": 0, "newcomer": True, "share": 0.0},
    }
    assert not any(row["newcomer"] for row in policy.statistics(policy.empty())["newcomers"].values())


def test_a_plan_that_comes_later_has_its_share_of_what_came_since() -> None:
    before = {"counts": np.array([8, 2]), "total": np.array(10), "before": np.array([0, 0])}
    policy = Newcomers(Weighted({"a": 1}), (Plan("a", "m"), Plan("n", "m")), Params(until=3))

    after = policy.adapted(before, ("a", "b"), ("a", "n"))
    state = policy.fold(State(None, after["counts"], 10, after["before"]), [label("a"), label("n"), label("a"), label("a")])

    assert policy.statistics(state)["newcomers"]["n"] == {"observations": 1, "newcomer": True, "share": 0.25}
    assert policy.statistics(state)["newcomers"]["a"]["observations"] == 11


def test_a_decision_is_made_with_the_floor_on_top() -> None:
    policy = wrapped(Given({"b": 1.0}))

    decision = decide(Policy("p", policy, 0.2, 0), known(policy, b=3), SITUATION, "d")

    assert decision.probabilities == pytest.approx((0.8 * 0.01 / 3 + 0.05, 0.8 * 0.99 + 0.05, *[0.8 * 0.01 / 3 + 0.05] * 2))


@pytest.mark.parametrize(
    ("params", "number"),
    [(Params(), 0), (Params(share=0), 2), (Params(share=1), 1), (Params(least=-1), 1), (Params(least=0.06), 1), (Params(until=0), 1)],
)
def test_parameters_that_cannot_work(params: Params, number: int) -> None:
    assert len(problems(params, ["a"])) == number
