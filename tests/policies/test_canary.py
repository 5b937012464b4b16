from __future__ import annotations

import hashlib
import random

import pytest

from policies.policy import Policy, decide
from policies.routing.weighted import Weighted
from policies.states import arrays, restored
from policies.values.outcome import Observation
from policies.values.situation import Situation
from policies.wrappers.canary import Canary, Params, State, build, problems
from tests.support.given import Given, Seen, candidates, kit, surprise

PLANS = candidates("ab")


def split(share: float = 0.25, seed: int = 0) -> Canary:
    return build(Params(policy="new", share=share, seed=seed), Given({"a": 1.0}), (), kit({"new": Given({"b": 1.0})}))


def observed(canary: Canary, units: range, quality: float = 1.0, **others: float) -> State:
    state: State = canary.fold(canary.empty(), [Observation(f"d{i}", "a", {}, quality, 0.0, unit=f"u{i}", **others) for i in units])
    return state


def test_a_unit_stays_on_its_side_and_the_log_says_what_could_have_been() -> None:
    canary = split()

    for unit in (f"u{i}" for i in range(300)):
        digest = hashlib.blake2b(b"new\0" + unit.encode(), digest_size=8, key=(0).to_bytes(8, "big"), person=b"side").digest()
        new = int.from_bytes(digest, "big") / 2**64 < 0.25
        decision = decide(Policy("p", canary, 0.0, 1), canary.empty(), Situation(PLANS, unit=unit), f"d-{unit}")
        assert PLANS[decision.chosen].plan.name == ("b" if new else "a")
        assert decision.probabilities == pytest.approx((0.75, 0.25))
        assert decision.scores is not None
        assert decision.scores.quality == ((0.0, 1.0) if new else (1.0, 0.0))


def test_another_seed_is_another_split() -> None:
    sides = [[split(seed=seed).canary(f"u{i}") for i in range(200)] for seed in (1, 2)]

    assert sides[0] != sides[1]


def test_without_a_unit_there_is_no_experiment() -> None:
    canary = split(0.99)
    decision = decide(Policy("p", canary, 0.0, 1), canary.empty(), Situation(PLANS), "d")

    assert (decision.chosen, decision.propensity) == (0, 1.0)


def test_draws_over_all_units_follow_the_marginal_probabilities() -> None:
    canary = Canary(Weighted({"a": 3, "b": 1}), Weighted({"b": 3, "c": 2}), Params(policy="new", share=0.3))
    # (0.7 * 3/4, 0.7 / 4 + 0.3 * 3/5, 0.3 * 2/5), and the floor
    expected = {"a": 0.9 * 0.525 + 0.1 / 3, "b": 0.9 * 0.355 + 0.1 / 3, "c": 0.9 * 0.12 + 0.1 / 3}
    plans = candidates("abc")

    chi2 = surprise(Policy("p", canary, 0.1, 5), canary.empty(), lambda i: Situation(plans, unit=f"u{i}"), expected)

    assert chi2 < 13.8  # 2 degrees of freedom: passed once in 1,000 seeds


def test_a_canary_within_a_canary_is_drawn_as_it_is_logged() -> None:
    inner = Canary(Weighted({"a": 1}), Weighted({"b": 1}), Params(policy="x", share=0.5))
    canary = Canary(inner, Weighted({"c": 1}), Params(policy="y", share=0.2))
    plans = candidates("abc")

    chi2 = surprise(Policy("p", canary, 0.0, 5), canary.empty(), lambda i: Situation(plans, unit=f"u{i}"), {"a": 0.4, "b": 0.4, "c": 0.2})

    assert chi2 < 13.8


def test_the_floor_is_mixed_in_only_where_both_sides_explore() -> None:
    canary = Canary(Given({"a": 1.0}), Given({"b": 1.0}, explores=False), Params(policy="new", share=0.25))

    for i in range(20):
        decision = decide(Policy("p", canary, 0.2, 1), canary.empty(), Situation(PLANS, unit=f"u{i}"), f"d{i}")
        assert decision.probabilities == pytest.approx((0.75, 0.25))


def test_both_sides_learn_from_everything() -> None:
    canary = split()
    state = observed(canary, range(100))

    assert (state.inner, state.other) == (Seen(100, 100.0), Seen(100, 100.0))


def test_the_sides_are_compared() -> None:
    canary = split()
    new = [i for i in range(400) if canary.canary(f"u{i}")]
    state = canary.fold(
        canary.empty(),
        [Observation(f"d{i}-{turn}", "a", {}, 0.75 if i in new else 0.5, 0.0, unit=f"u{i}") for i in range(400) for turn in range(2)],
    )

    statistics = canary.statistics(state)

    assert statistics["canary"]["requests"] == 2 * len(new)
    assert statistics["control"]["requests"] == 2 * (400 - len(new))
    assert (statistics["control"]["quality"], statistics["canary"]["quality"]) == pytest.approx((0.5, 0.75))
    # 400 units in 4,096 slots: about 19 share one, and are not counted
    assert 365 <= statistics["sample_ratio"]["units"] <= 395
    assert statistics["control"]["units"] + statistics["canary"]["units"] == statistics["sample_ratio"]["units"]
    assert not statistics["sample_ratio"]["alarm"]
    assert statistics["other"] == {"policy": "new", "count": 800}


def test_corrections_and_retractions_correct_the_sums() -> None:
    canary = split()
    state = observed(canary, range(10), weight=2.0)
    state = canary.fold(state, [Observation("d0", "a", {}, 0.0, 0.0, before=1.0, unit="u0", weight=2.0)])
    state = canary.fold(state, [Observation(f"d{i}", "a", {}, None, 0.0, before=1.0, unit=f"u{i}", weight=2.0) for i in range(1, 10)])

    assert (state.requests.sum(), state.weight.sum(), state.quality.sum()) == (1, 2.0, 0.0)


def test_no_outcome_at_all_is_no_alarm() -> None:
    canary = split()
    statistics = canary.statistics(canary.empty())

    assert (statistics["control"]["quality"], statistics["canary"]["quality"]) == (None, None)
    assert statistics["sample_ratio"] == {"units": 0, "expected": 0.25, "log_evidence": pytest.approx(0.0), "alarm": False}


def test_a_side_that_loses_its_outcomes_is_found_and_a_sound_experiment_is_not() -> None:
    lossy = split(0.5)
    rng = random.Random(4)
    kept = [i for i in range(3_000) if not lossy.canary(f"u{i}") or rng.random() < 0.7]
    state = lossy.fold(lossy.empty(), [Observation(f"d{i}", "a", {}, 1.0, 0.0, unit=f"u{i}") for i in kept])
    assert lossy.statistics(state)["sample_ratio"]["alarm"]

    for seed in range(20):
        sound = split(0.1, seed)
        assert not sound.statistics(observed(sound, range(3_000)))["sample_ratio"]["alarm"]


def test_units_are_counted_in_any_order_and_in_fixed_memory() -> None:
    canary = split()
    observations = [Observation(f"d{i}", "a", {}, 1.0, 0.0, unit=f"u{i % 9_000}") for i in range(12_000)]
    forth = canary.fold(canary.empty(), observations)
    back = canary.fold(canary.empty(), observations[::-1])

    assert (forth.units == back.units).all()
    assert forth.units.nbytes == 32_768
    again = restored(canary.empty(), arrays(forth))
    assert canary.statistics(again) == canary.statistics(forth)


def test_parameters_that_cannot_work_are_problems() -> None:
    assert problems(Params(policy="new"), ["a"]) == []
    assert len(problems(Params(policy="new", share=1.0, seed=-1), ["a"])) == 2
