"""Model, strategy and number of answers are chosen together: what one plan's outcomes say is known of the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from models.response import Response, headroom
from policies.policy import Policy, decide
from policies.routing import linucb, thompson
from policies.routing.linear import Doubt, Learned, Linear, Params
from policies.states import arrays, restored
from policies.values.outcome import Observation
from policies.values.plan import Plan
from tests.support.bandits import NOW, chi_square, lived, situation

CHECK = "best_of_n/verifier"
TRIES = (1, 4, 8, 16)
LEVELS = {"small": 0.45, "large": 0.65}
COSTS = {"small": 0.02, "large": 0.2}
STEADY = Doubt(threshold=0)


def joint(tries: Sequence[int] = TRIES, *, curves: bool = True) -> list[Plan]:
    """p0, p1, ...: the small and then the large model, each with so many checked answers."""
    ways = [(model, n) for model in LEVELS for n in tries]
    return [
        Plan(f"p{at}", model) if n == 1 else Plan(f"p{at}", model, f"check-{n}", response=Response(CHECK, n, 0.9) if curves else None)
        for at, (model, n) in enumerate(ways)
    ]


PLANS = joint()


def truth(plan: Plan, efficiency: float) -> float:
    """How often the plan is right."""
    p = LEVELS[plan.model]
    return p if plan.response is None else p + efficiency * headroom(p, plan.response.tries)[0]


def cost(plan: Plan) -> float:
    return COSTS[plan.model] * (1 if plan.response is None else plan.response.tries)


def outcomes(of: Sequence[int], each: int, efficiency: float, start: int = 0) -> list[Observation]:
    """So many outcomes of each of these plans, as often right as they are."""
    told = [(at, float(n < round(each * truth(PLANS[at], efficiency)))) for at in of for n in range(each)]
    return [Observation(f"d{number}", PLANS[at].name, {}, right, NOW + number) for number, (at, right) in enumerate(told, start)]


def means(policy: Linear, state: Learned) -> list[float]:
    return policy.moments(state, situation(PLANS))[1]


@pytest.mark.parametrize("efficiency", [0.1, 0.5])
def test_four_answers_of_one_model_teach_eight_of_it_and_four_of_another(efficiency: float) -> None:
    """Nobody has tried the latter two, and the check is worse than was expected of it."""
    found = {}
    for curves in (True, False):
        policy = Linear(Params(drift=STEADY), joint(curves=curves), [])
        for seen in ((0, 4), (0, 1, 4)):
            found[curves, len(seen)] = means(policy, policy.fold(policy.empty(), outcomes(seen, 2_000, efficiency)))

    for untried in (2, 5):
        errors = {case: abs(known[untried] - truth(PLANS[untried], efficiency)) for case, known in found.items()}
        assert errors[True, 3] < 0.05
        assert errors[True, 3] < errors[True, 2]
    assert abs(found[False, 3][5] - truth(PLANS[4], efficiency)) < 0.03  # an arm of its own: no better than one answer


@pytest.mark.parametrize("kind", [linucb, thompson])
@pytest.mark.parametrize(("price", "best"), [(0.0, 7), (0.1, 5), (0.3, 4), (1.1, 1), (5.0, 0)])
def test_the_best_model_strategy_and_number_at_a_price_may_be_one_that_nobody_has_tried(kind: type, price: float, best: int) -> None:
    """Seen are one answer and four of the small model, and one of the large one."""
    worth = [truth(plan, 0.5) - price * cost(plan) for plan in PLANS]
    assert worth.index(max(worth)) == best
    policy = kind.build(kind.Params(drift=STEADY), PLANS, None)  # type: ignore[attr-defined]
    state = policy.fold(policy.empty(), outcomes((0, 1, 4), 4_000, 0.5))

    asked = situation(PLANS, [cost(plan) for plan in PLANS], price, explore=False)

    assert decide(Policy("p", policy, 0.0, 1), state, asked, "d").chosen == best


@pytest.mark.parametrize("kind", [linucb, thompson])
def test_policies_find_it_by_themselves(kind: type) -> None:
    """At the price of 1.1 four answers of the small model are the best."""
    policy = Policy("p", kind.build(kind.Params(), PLANS, None), 0.02, 3)  # type: ignore[attr-defined]

    _, chosen = lived(policy, PLANS, [[truth(plan, 0.5) for plan in PLANS]], 1_500, [cost(plan) for plan in PLANS], 1.1)

    counts = np.bincount(chosen[750:], minlength=8)
    assert int(counts.argmax()) == 1
    assert counts[1] > 375


def test_what_is_drawn_over_joint_plans_is_what_is_logged() -> None:
    policy = Policy("p", thompson.Thompson(thompson.Params(), PLANS), 0.05, 7)
    state = policy.algorithm.fold(policy.algorithm.empty(), outcomes((0, 1, 4), 30, 0.5))

    value, probabilities = chi_square(policy, state, situation(PLANS, [cost(plan) for plan in PLANS], 0.2))

    assert min(probabilities) >= 0.05 / 8
    assert value < 24.3  # the 99.9 % quantile with 7 degrees of freedom


def test_statistics_tell_what_a_kind_of_strategy_is_worth() -> None:
    policy = Linear(Params(drift=STEADY), PLANS, [])

    before, after = (policy.statistics(state)["strategies"] for state in (policy.empty(), seen(policy)))

    sd = np.sqrt(0.2 / 2.0)
    assert before == {CHECK: pytest.approx({"efficiency": 0.9, "low": 0.9 - 1.96 * sd, "high": 0.9 + 1.96 * sd})}
    assert after[CHECK]["efficiency"] == pytest.approx(0.5, abs=0.05)
    assert after[CHECK]["low"] < 0.5 < after[CHECK]["high"] < before[CHECK]["high"]
    assert "strategies" not in Linear(Params(), joint(curves=False), []).statistics(policy.empty())


def seen(policy: Linear) -> Learned:
    return policy.fold(policy.empty(), outcomes(range(8), 1_000, 0.5))


def test_a_new_number_of_answers_is_known_when_it_comes_and_what_another_taught_stays_as_long_as_its_plan() -> None:
    few = [plan for plan in PLANS if plan.name != "p2"]
    old, new, gone = (Linear(Params(drift=STEADY), of, []) for of in (few, PLANS, few[:1]))
    state = old.fold(old.empty(), [each for each in outcomes(range(8), 1_000, 0.5) if each.plan != "p2"])
    names = [[plan.name for plan in of] for of in (few, PLANS, few[:1])]

    grown = restored(new.empty(), new.adapted(arrays(state), names[0], names[1]))
    left = restored(gone.empty(), gone.adapted(arrays(state), names[0], names[2]))

    assert means(new, grown)[2] == pytest.approx(truth(PLANS[2], 0.5), abs=0.02)
    only = gone.fold(gone.empty(), outcomes((0,), 1_000, 0.5))
    np.testing.assert_allclose(left.posterior.mean, only.posterior.mean, atol=1e-12)


def test_neither_order_nor_what_was_taken_back_leaves_a_trace() -> None:
    policy = Linear(Params(drift=STEADY, half_life_s=3_600.0), PLANS, [])
    told = outcomes(range(8), 40, 0.5)
    rng = np.random.default_rng(0)
    mixed = [told[at] for at in rng.permutation(len(told))]
    wrong = [Observation(f"w{n}", f"p{n % 8}", {}, 1.0, NOW) for n in range(50)]
    back = [Observation(f"w{n}", f"p{n % 8}", {}, None, NOW, before=1.0) for n in range(50)]

    whole = policy.fold(policy.empty(), told)
    other = policy.fold(policy.fold(policy.fold(policy.empty(), wrong), mixed), back)

    for name, array in arrays(whole).items():
        np.testing.assert_allclose(array, arrays(other)[name], rtol=1e-8, atol=1e-8, err_msg=name)
