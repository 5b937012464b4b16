from __future__ import annotations

import msgspec
import pytest

from policies.policy import Policy, decide
from policies.routing.weighted import Weighted
from policies.values.situation import Prices, Situation, Standing
from policies.wrappers.sticky import Params, Sticky, build, problems
from tests.support.given import Given, candidates, kit, surprise

PARAMS = Params(
    stay_bias=0.02,
    prefix_cache_weight=0.08,
    tool_loop_bias=0.5,
    handoff=0.03,
    handoffs={"a": {"c": 0.07}},
    switch_margin=0.01,
    switch_history_penalty=0.005,
    cache_ttl_s=100.0,
    half_tokens=1000.0,
)


def situation(plan: str | None, names: str = "abc", idle_s: float = 0.0, tokens: int = 0, switches: int = 0) -> Situation:
    standing = None if plan is None else Standing(plan, idle_s, tokens, switches)
    return Situation(candidates(names), standing=standing)


def chosen(sticky: Sticky, asked: Situation, decision_id: str = "d", floor: float = 0.0) -> str:
    decision = decide(Policy("p", sticky, floor, 1), sticky.empty(), asked, decision_id)
    return asked.candidates[decision.chosen].plan.name


def test_every_term_is_told_and_stands_in_the_score() -> None:
    sticky = build(PARAMS, Given({"a": 0.5, "b": 0.6, "c": 0.7}), (), kit())
    asked = situation("a", idle_s=25.0, tokens=3000, switches=2)

    # mass 3000 / 4000, warmth 75 / 100, no costs known
    assert sticky.terms(asked) == {
        "a": {"stay": 0.02, "cache": pytest.approx(0.08 * 0.75 * 0.75), "tool_loop": 0.0},
        "b": {"handoff": -0.03, "margin": -0.01, "history": -0.01},
        "c": {"handoff": -0.07, "margin": -0.01, "history": -0.01},
    }
    scores = sticky.estimate(sticky.empty(), asked)
    assert scores.score == pytest.approx((0.5 + 0.02 + 0.045, 0.6 - 0.05, 0.7 - 0.09))
    assert scores.quality == (0.5, 0.6, 0.7)


def test_a_session_stays_until_the_other_plan_is_better_by_more_than_leaving_costs() -> None:
    # with an empty cache: 0.02 to stay, 0.03 + 0.01 to leave
    def after(gap: float) -> str:
        return chosen(Sticky(Given({"a": 0.5, "b": 0.5 + gap}), PARAMS), situation("a", "ab"))

    assert (after(0.059), after(0.061)) == ("a", "b")


@pytest.mark.parametrize(
    ("costs", "times"),
    [({}, 1.0), ({"a": 0.0, "b": 0.01}, 1.0), ({"a": 0.02, "b": 0.01}, 2.0), ({"a": 0.5, "b": 0.01}, 3.0), ({"a": 0.01, "b": 0.02}, 1.0)],
)
def test_a_dear_plans_cache_is_worth_more(costs: dict[str, float], times: float) -> None:
    asked = Situation(candidates("ab", costs), standing=Standing("a", 50.0, 1000))

    assert Sticky(Given(), PARAMS).terms(asked)["a"]["cache"] == pytest.approx(0.08 * 0.5 * 0.5 * times)


def test_who_has_changed_often_changes_less_readily() -> None:
    history = [Sticky(Given(), PARAMS).terms(situation("a", switches=n))["b"]["history"] for n in (0, 1, 5, 50)]

    assert history == pytest.approx([0.0, -0.005, -0.025, -0.025])


def test_an_idle_session_is_decided_anew() -> None:
    sticky = Sticky(Given({"a": 0.5, "b": 0.501}), PARAMS)

    assert chosen(sticky, situation("a", idle_s=99.9, tokens=10**6)) == "a"
    assert chosen(sticky, situation("a", idle_s=100.0, tokens=10**6)) == "b"
    assert sticky.terms(situation("a", idle_s=100.0)) == {}


def test_a_plan_that_is_down_is_left_even_in_a_tool_loop() -> None:
    sticky = Sticky(Given({"a": 0.9, "b": 0.2, "c": 0.3}), PARAMS)
    asked = msgspec.structs.replace(situation("a", "bc"), tool_loop=True)

    assert sticky.terms(asked) == {}
    assert chosen(sticky, asked) == "c"


@pytest.mark.parametrize("idle_s", [0.0, 1e6])
def test_a_tool_loop_never_changes_the_plan(idle_s: float) -> None:
    sticky = Sticky(Given({"a": 0.0, "b": 1.0}), PARAMS)
    asked = msgspec.structs.replace(situation("a", "ab", idle_s=idle_s), tool_loop=True)

    decisions = [decide(Policy("p", sticky, 0.5, 1), sticky.empty(), asked, f"d{i}") for i in range(200)]

    assert {(decision.chosen, decision.propensity) for decision in decisions} == {(0, 1.0)}
    if idle_s == 0.0:
        assert sticky.terms(asked)["a"]["tool_loop"] == 0.5


def test_a_turn_that_may_stay_is_not_explored_on() -> None:
    sticky = Sticky(Given({"a": 0.5, "b": 0.45}, bonus={"b": 0.9}), PARAMS)

    for asked, probabilities in [
        (situation("a", "ab"), (1.0, 0.0)),  # stays
        (situation("b", "ab", tokens=0), (0.0, 1.0)),  # stays there, too: the gap is small
        (situation(None, "ab"), (0.1, 0.9)),  # a first turn: bonus and floor
        (msgspec.structs.replace(situation(None, "ab"), tool_loop=True), (1.0, 0.0)),  # nobody knows the last plan, but chance is kept out
    ]:
        assert decide(Policy("p", sticky, 0.2, 1), sticky.empty(), asked, "d").probabilities == pytest.approx(probabilities)


def test_prices_count_in_the_comparison() -> None:
    sticky = Sticky(Given({"a": 0.5, "b": 0.5}), PARAMS)
    dear = Situation(candidates("ab", {"a": 0.01, "b": 0.001}), standing=Standing("a", 0.0), prices=Prices(cost=10.0))

    assert chosen(sticky, dear) == "b"  # 0.09 cheaper, 0.06 to leave


def test_a_split_by_chance_is_drawn_once_in_a_session() -> None:
    sticky = Sticky(Weighted({"a": 1, "b": 1}), PARAMS)

    assert {chosen(sticky, situation("b", "ab"), f"d{i}") for i in range(200)} == {"b"}
    # what the split would not give any more is left
    assert chosen(Sticky(Weighted({"a": 1}), PARAMS), situation("b", "ab")) == "a"


def test_first_turns_are_drawn_as_the_policy_says() -> None:
    sticky = Sticky(Weighted({"a": 5, "b": 3, "c": 2}), PARAMS)
    asked = situation(None)

    # 2 degrees of freedom: 13.8 is passed once in 1,000 seeds
    assert surprise(Policy("p", sticky, 0.3, 5), sticky.empty(), lambda _: asked, {"a": 0.45, "b": 0.31, "c": 0.24}) < 13.8


def test_shadows_watch_through_it() -> None:
    sticky = Sticky(Given({"a": 1.0}, shadow={"s": "c"}), PARAMS)
    asked = situation("a")

    assert sticky.propensities(sticky.empty(), asked, sticky.estimate(sticky.empty(), asked)).shadow == {"s": "c"}


def test_parameters_that_cannot_work_are_problems() -> None:
    assert problems(Params(), ["a", "b"]) == []
    found = problems(Params(stay_bias=-1.0, cache_ttl_s=0.0, half_tokens=0.0, handoffs={"a": {"z": float("nan")}}), ["a", "b"])
    assert [sentence.split("`")[1] for sentence in found] == ["stay_bias", "handoffs.a.z", "cache_ttl_s", "half_tokens", "handoffs"]
