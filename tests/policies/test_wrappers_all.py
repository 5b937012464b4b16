"""What holds for every algorithm and every wrapper of the registry, whatever they do."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from policies.policy import Encoder, Policy, decide, needed
from policies.registry import ALGORITHMS, WRAPPERS, Spec, policy
from policies.states import arrays, packed, restored, unpacked
from policies.values.outcome import Observation
from policies.values.plan import Candidate, Plan
from policies.values.prompt import Prompt, Turn
from policies.values.situation import Prices, Situation
from tests.support.encoders import Letters

OLD = (Plan("a", "m"), Plan("b", "n"), Plan("c", "m"))
NEW = (Plan("c", "m"), Plan("d", "n"), Plan("a", "m"))
LEARNING = ("best_single", "length", "neighbors", "linucb", "thompson")
NEEDS: dict[str, dict[str, Any]] = {"shadow": {"policy": "other"}, "canary": {"policy": "other", "share": 0.3}}
PARAMS: dict[str, dict[str, Any]] = {name: {"features": ["shape"]} for name in ("linucb", "thompson")} | {"length": {"plans": ["a", "c"]}}
OTHER = Spec("best_single")


def encoder(name: str) -> Encoder:
    return Letters("abcdefghijklmnopqrstuvwxyz?!", f"{name}-1")


def built(kind: str, wrappers: tuple[str, ...], plans: tuple[Plan, ...] = OLD) -> Policy:
    around = [{"type": each, **NEEDS.get(each, {})} for each in wrappers]
    specs = {"p": Spec(kind, PARAMS.get(kind, {}), 0.1, 3, around), "other": OTHER}
    return policy("p", specs, plans, "a", encoder)


def blocks(made: Policy, text: str) -> dict[str, Any]:
    return {each.name: each.encode(Prompt((Turn("user", text),))) for each in made.algorithm.encoders}


def observed(made: Policy, number: int, plans: str = "abc") -> list[Observation]:
    rates = {"a": 0.9, "b": 0.3, "c": 0.7}
    chance = np.random.default_rng(8).random(number)
    drawn = ["abc"[i % 3] for i in range(number)]
    return [
        Observation(
            f"d{i}",
            plan,
            blocks(made, "hello world"[i % 11 :]),
            float(chance[i] < rates[plan]),
            1.7e9 + i,
            propensity=0.4,
            baseline=0.4,
            unit=f"u{i % 50}",
        )
        for i, plan in enumerate(drawn)
        if plan in plans
    ]


def situations(made: Policy, plans: tuple[Plan, ...] = OLD) -> list[Situation]:
    whole = tuple(Candidate(plan, index, 0.001 * index, 0.1) for index, plan in enumerate(plans))
    return [
        Situation(each, blocks(made, text), Prices(1.0, 0.01), unit=unit, explore=explore, now=1.7e9 + 1000)
        for each in (whole, whole[1:], whole[2:])
        for text, unit, explore in (("hello", "", True), ("what now?", "u4", True), ("zebra", "u9", False))
    ]


COMBINED = [(kind, ()) for kind in ALGORITHMS] + [(kind, (wrapper,)) for kind in (*LEARNING, "random") for wrapper in WRAPPERS]
COMBINED.append(("thompson", ("sticky", "newcomers", "alarm", "safe", "canary", "shadow")))
every = pytest.mark.parametrize(("kind", "wrappers"), [pytest.param(*each, id="-".join((each[0], *each[1]))) for each in COMBINED])


@every
def test_a_state_survives_its_bytes(kind: str, wrappers: tuple[str, ...]) -> None:
    """And what is decided and learned thereafter is the same to the bit."""
    made = built(kind, wrappers)
    those = observed(made, 360)
    state = made.algorithm.fold(made.algorithm.empty(), those[:300])

    back = restored(made.algorithm.empty(), unpacked(packed(arrays(state))))

    for index, situation in enumerate(situations(made)):
        assert decide(made, back, situation, f"d{index}") == decide(made, state, situation, f"d{index}")
    further = [arrays(made.algorithm.fold(each, those[300:])) for each in (state, back)]
    assert {name: array.tobytes() for name, array in further[0].items()} == {name: array.tobytes() for name, array in further[1].items()}


@every
def test_no_observation_teaches_nothing(kind: str, wrappers: tuple[str, ...]) -> None:
    made = built(kind, wrappers)
    state = made.algorithm.fold(made.algorithm.empty(), observed(made, 60))
    after = made.algorithm.fold(state, [])

    assert {name: array.tobytes() for name, array in arrays(after).items()} == {n: array.tobytes() for n, array in arrays(state).items()}


@every
def test_statistics_can_be_written_as_json(kind: str, wrappers: tuple[str, ...]) -> None:
    made = built(kind, wrappers)

    for state in (made.algorithm.empty(), made.algorithm.fold(made.algorithm.empty(), observed(made, 360))):
        json.dumps(made.algorithm.statistics(state), allow_nan=False)


@every
def test_odds_sum_to_one(kind: str, wrappers: tuple[str, ...]) -> None:
    made = built(kind, wrappers)

    for state in (made.algorithm.empty(), made.algorithm.fold(made.algorithm.empty(), observed(made, 360))):
        for situation in situations(made):
            odds = made.algorithm.propensities(state, situation, made.algorithm.estimate(state, situation))
            for each in (odds.drawn, odds.drawn if odds.marginal is None else odds.marginal):
                assert len(each) == len(situation.candidates)
                assert sum(each) == pytest.approx(1.0, abs=1e-9)
                assert min(each) >= 0


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_the_encoders_are_those_of_all_inside_each_once(wrapper: str) -> None:
    specs = {
        "p": Spec("linucb", {"features": ["shape", "hashed"]}, wrappers=[{"type": wrapper, **NEEDS.get(wrapper, {})}]),
        "other": Spec("linucb", {"features": ["hashed", "static"]}),
    }
    made = policy("p", specs, OLD, "a", encoder).algorithm

    assert [each.name for each in made.encoders] == ["shape-1", "hashed-1", *(["static-1"] if wrapper in NEEDS else [])]
    assert [each.name for each in needed(made)] == ["shape-1", "hashed-1", *(["static-1"] if wrapper == "canary" else [])]


ADAPTED = [(kind, ()) for kind in LEARNING] + [(kind, wrappers) for kind, wrappers in COMBINED if wrappers]


@pytest.mark.parametrize(("kind", "wrappers"), [pytest.param(*each, id="-".join((each[0], *each[1]))) for each in ADAPTED])
def test_where_plans_come_and_go_those_that_stay_are_known_as_before(kind: str, wrappers: tuple[str, ...]) -> None:
    """As if only what was learned of them had ever been learned, by a policy that never had other plans."""
    before, after = built(kind, wrappers), built(kind, wrappers, NEW)
    old, new = (tuple(plan.name for plan in plans) for plans in (OLD, NEW))
    state = before.algorithm.fold(before.algorithm.empty(), observed(before, 360))

    found = after.algorithm.adapted(arrays(state), old, new)  # type: ignore[attr-defined]
    taken = restored(after.algorithm.empty(), found)

    plans = "abc" if kind == "length" else "ac"
    fresh = after.algorithm.fold(after.algorithm.empty(), observed(after, 360, plans))
    for situation in situations(after, NEW):
        one, other = (after.algorithm.estimate(each, situation) for each in (taken, fresh))
        assert one.quality == pytest.approx(other.quality, abs=1e-9)
        assert one.score == pytest.approx(other.score, abs=1e-9)
    if "alarm" in wrappers:
        kept = after.algorithm.adapted(arrays(before.algorithm.empty()), old, new)  # type: ignore[attr-defined]
        assert {n: a.tolist() for n, a in kept.items()} == {n: a.tolist() for n, a in arrays(after.algorithm.empty()).items()}
    after.algorithm.fold(taken, observed(after, 30))


@pytest.mark.parametrize("kind", ["best_single", "neighbors", "linucb", "thompson"])
def test_what_is_of_other_plans_than_it_says_is_refused(kind: str) -> None:
    made = built(kind, ("sticky",))

    with pytest.raises(ValueError, match="is not of these plans"):
        made.algorithm.adapted(arrays(made.algorithm.empty()), ("a", "b"), ("a", "b", "c"))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "modules",
    ["policies.routing.fixed, policies.routing.weighted, policies.wrappers.sticky, policies.wrappers.shadow, policies.wrappers.frozen"],
)
def test_what_keeps_no_numbers_needs_no_numpy(modules: str) -> None:
    code = f"import sys, {modules}; print('numpy' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
