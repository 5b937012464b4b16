from __future__ import annotations

from math import log1p

import numpy as np
import numpy.typing as npt
import pytest

from models.encoders.shape import Shape, user_chars
from policies.policy import Kit, Policy
from policies.routing.length import Length, Params, State, build, problems
from policies.states import arrays, packed, restored, unpacked
from policies.values.outcome import Observation
from policies.values.plan import Plan
from policies.values.prompt import Prompt, Turn
from policies.values.situation import Situation
from tests.support.given import candidates, surprise

SHAPE = Shape()
KIT = Kit({"shape": SHAPE}.__getitem__, lambda _: None, "a")  # type: ignore[arg-type, return-value]
PLANS = tuple(Plan(name, f"model-{name}") for name in "abc")
NOW = 1_700_000_000.0


def block(characters: int) -> npt.NDArray[np.float32]:
    return SHAPE.encode(Prompt((Turn("system", "s" * 5_000), Turn("user", "x" * characters))))


def served(policy: Length, state: State, characters: int, names: str = "abc") -> str:
    situation = Situation(tuple(each for each in candidates("abc") if each.plan.name in names), {SHAPE.name: block(characters)})
    odds = policy.propensities(state, situation, policy.estimate(state, situation)).drawn
    assert sorted(odds) == [*[0.0] * (len(odds) - 1), 1.0]
    return situation.candidates[odds.index(1.0)].plan.name


def called(*characters: int, at: float = NOW, weight: float = 1.0) -> list[Observation]:
    return [Observation(f"d{n}", "a", {SHAPE.name: block(n)}, 1.0, at, weight=weight) for n in characters]


def test_the_first_number_of_the_features_is_the_length_of_what_the_user_said() -> None:
    assert block(123)[0] == pytest.approx(log1p(123) / 10)
    assert user_chars(block(123)) == pytest.approx(123, rel=1e-4)


def test_thresholds_part_the_lengths() -> None:
    policy = build(Params(thresholds=[100.5, 1000.5]), PLANS, KIT)

    assert [served(policy, policy.empty(), n) for n in (0, 100, 101, 1000, 1001, 50_000)] == ["a", "a", "b", "b", "c", "c"]


def test_where_a_plan_cannot_serve_the_next_stronger_does_else_the_next_weaker() -> None:
    policy = build(Params(plans=["c", "b", "a"], thresholds=[100.5, 1000.5]), PLANS, KIT)

    assert served(policy, policy.empty(), 10, "ab") == "b"
    assert served(policy, policy.empty(), 10, "a") == "a"
    assert served(policy, policy.empty(), 5_000, "bc") == "b"
    assert served(policy, policy.empty(), 500, "c") == "c"


def test_the_strongest_gets_its_share_of_the_calls() -> None:
    policy = build(Params(strong_share=0.2), PLANS, KIT)
    lengths = range(10, 5_010, 10)
    state = policy.fold(policy.empty(), called(*lengths, weight=100.0))

    plans = [served(policy, state, n) for n in lengths]

    # A bin is a sixteenth of a factor of e: 6 %.
    assert plans.count("c") / 500 == pytest.approx(0.2, abs=0.01)
    assert plans.count("a") / 500 == plans.count("b") / 500 == pytest.approx(0.4, abs=0.01)
    assert plans == sorted(plans)


@pytest.mark.parametrize(("share", "plans"), [(0.0, {"a", "b"}), (1.0, {"c"})])
def test_a_share_of_nothing_is_nothing_and_a_share_of_all_is_all(share: float, plans: set[str]) -> None:
    policy = build(Params(strong_share=share), PLANS, KIT)

    assert {served(policy, policy.empty(), n) for n in (0, 1, 50, 500, 5_000, 500_000)} == plans


def test_before_any_call_lengths_are_imagined() -> None:
    policy = build(Params(), PLANS, KIT)

    assert [served(policy, policy.empty(), n) for n in (20, 2_000, 40_000)] == ["a", "c", "c"]
    # The middle of 32 and 16,384 by their logarithms is 724.
    assert [served(policy, policy.empty(), n) for n in (600, 850)] == ["b", "c"]


def test_the_lengths_of_late_are_those_that_count() -> None:
    policy = build(Params(strong_share=0.5, half_life_s=3_600.0), PLANS, KIT)
    state = policy.fold(policy.empty(), called(*range(4_000, 4_400), at=NOW - 86_400))
    assert served(policy, state, 1_000) == "a"

    state = policy.fold(state, called(*range(100, 500), at=NOW))

    assert served(policy, state, 1_000) == "c"


def test_what_is_taken_back_was_never_there_and_a_correction_changes_no_length() -> None:
    policy = build(Params(), PLANS, KIT)
    state = policy.fold(policy.empty(), called(100, 200))
    gone = [Observation("d", "a", {SHAPE.name: block(100)}, None, NOW, before=1.0), *called(300)]
    again = policy.fold(state, [*gone, Observation("d", "a", {SHAPE.name: block(200)}, 0.0, NOW, before=1.0)])

    expected = policy.fold(policy.empty(), called(200, 300))
    assert again.calls == pytest.approx(expected.calls)
    assert policy.fold(state, [Observation("d", "a", {}, 1.0, NOW)]) is state


def test_only_the_floor_explores() -> None:
    algorithm = build(Params(thresholds=[100.5, 1000.5]), PLANS, KIT)
    situation = Situation(candidates("abc"), {SHAPE.name: block(500)})

    # chi-square, 2 degrees of freedom: 13.8 is passed once in 1,000 seeds
    assert surprise(Policy("p", algorithm, 0.3, 8), algorithm.empty(), lambda _: situation, {"a": 0.1, "b": 0.8, "c": 0.1}) < 13.8


def test_a_state_survives_a_snapshot() -> None:
    policy = build(Params(), PLANS, KIT)
    state = policy.fold(policy.empty(), called(*range(1_000, 1_400)))
    again = restored(policy.empty(), unpacked(packed(arrays(state))))

    assert policy.statistics(again) == policy.statistics(state)
    assert policy.statistics(state)["p50"] == pytest.approx(1_200, rel=0.07)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        (Params(plans=["a", "z"]), ["`z`", "not among"]),
        (Params(plans=["a", "a"]), ["twice"]),
        (Params(thresholds=[5.0]), ["3 plans", "2 `thresholds`"]),
        (Params(thresholds=[5.0, 5.0]), ["rise"]),
        (Params(thresholds=[5.0, 6.0], strong_share=0.5), ["not both"]),
        (Params(strong_share=1.5), ["`strong_share`"]),
        (Params(half_life_s=0.0), ["`half_life_s`"]),
    ],
)
def test_parameters_that_cannot_work_are_problems(params: Params, words: list[str]) -> None:
    (said,) = problems(params, ["a", "b", "c"])

    assert all(word in said for word in words)
