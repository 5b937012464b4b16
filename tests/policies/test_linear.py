from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from policies.routing.linear import Doubt, Learned, Linear, Params, common_problems
from policies.states import arrays, packed, restored, unpacked
from policies.values.outcome import Observation
from policies.values.plan import Plan
from tests.support.bandits import NOW, Block, answer, plans, situation

DAY = 86_400.0
NAMES = plans(3)


def linear(features: int = 0, of: list[Plan] | None = None, **params: Any) -> Linear:
    return Linear(Params(**params), of or NAMES, [Block("block-1", features)] if features else [])


def stream(count: int, features: int = 0, seed: int = 1, truth: tuple[float, ...] = (0.8, 0.5, 0.3), start: int = 0) -> list[Observation]:
    rng = np.random.default_rng(seed)
    found = []
    for number in range(start, start + count):
        plan = int(rng.integers(len(truth)))
        blocks = {"block-1": rng.normal(size=features).astype(np.float32)} if features else {}
        found.append(answer(number, plan, float(rng.random() < truth[plan]), blocks))
    return found


def same(one: Learned, other: Learned, tolerance: float = 1e-9) -> None:
    first, second = arrays(one), arrays(other)
    assert first.keys() == second.keys()
    for name, array in first.items():
        np.testing.assert_allclose(array, second[name], rtol=tolerance, atol=tolerance, err_msg=name)


def test_quality_is_the_ridge_regression_on_the_features() -> None:
    # One plan per model and a pool that is fixed: each plan is a ridge regression by itself, around the prior mean.
    policy = linear(2, of=NAMES[:1], pool=1e12, strength=1.0, residual=1e12, ridge=3.0, prior_mean=0.5, noise=0.2, drift=Doubt(threshold=0))
    seen = stream(80, 2, truth=(0.7,))
    x = np.array([[1.0, *each.blocks["block-1"]] for each in seen])
    r = np.array([each.quality for each in seen])
    precision = np.diag([1.0, 1.5, 1.5]) + x.T @ x  # slopes: pool and model, each 1 / 3, are 2 / 3
    theta = np.linalg.solve(precision, x.T @ r + [0.5, 0, 0])
    at = np.array([1.0, 0.25, -1.5])
    asked = situation(NAMES[:1], blocks={"block-1": at[1:].astype(np.float32)})

    index, means, sds = policy.moments(policy.fold(policy.empty(), seen), asked)

    assert index == [0]
    assert means == pytest.approx([at @ theta], rel=1e-6)
    assert sds == pytest.approx([np.sqrt(0.2 * at @ np.linalg.solve(precision, at))], rel=1e-6)


def test_several_encoders_stand_one_after_the_other() -> None:
    encoders = [Block("b-1", 2), Block("a-1", 1)]
    policy = Linear(Params(features=("b", "a")), NAMES, encoders)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3)).astype(np.float32)
    apart = [answer(n, n % 3, float(row[2] > 0), {"a-1": row[2:], "b-1": row[:2]}) for n, row in enumerate(x)]
    together = [answer(n, n % 3, float(row[2] > 0), {"block-1": row}) for n, row in enumerate(x)]

    one = policy.moments(policy.fold(policy.empty(), apart), situation(NAMES, blocks={"a-1": x[0, 2:], "b-1": x[0, :2]}))
    whole = linear(3)
    assert one == whole.moments(whole.fold(whole.empty(), together), situation(NAMES, blocks={"block-1": x[0]}))


def test_only_eligible_plans_are_estimated_each_by_its_own_numbers() -> None:
    policy = linear()
    state = policy.fold(policy.empty(), stream(300))
    whole = policy.moments(state, situation(NAMES))
    asked = situation(NAMES)
    some = type(asked)((asked.candidates[2], asked.candidates[0]))

    assert policy.moments(state, some) == ([2, 0], [whole[1][2], whole[1][0]], [whole[2][2], whole[2][0]])


@pytest.mark.parametrize(("features", "half_life"), [(0, None), (0, DAY), (3, 3_600.0)])
def test_without_the_detector_order_and_batches_make_no_difference(features: int, half_life: float | None) -> None:
    policy = linear(features, half_life_s=half_life, drift=Doubt(threshold=0))
    seen = stream(200, features)
    whole = policy.fold(policy.empty(), seen)

    same(whole, policy.fold(policy.empty(), seen[::-1]))
    same(whole, policy.fold(policy.fold(policy.empty(), seen[70:]), seen[:70]))
    one_by_one = policy.empty()
    for each in seen:
        one_by_one = policy.fold(one_by_one, [each])
    same(whole, one_by_one)


def test_with_it_the_sums_are_the_same_while_there_is_no_alarm() -> None:
    policy, seen = linear(half_life_s=DAY), stream(500)
    without = linear(half_life_s=DAY, drift=Doubt(threshold=0))

    state, other = policy.fold(policy.empty(), seen), without.fold(without.empty(), seen)

    assert state.drift.alarms.sum() == 0
    assert state.drift.pulls.tolist() == [sum(each.plan == f"p{plan}" for each in seen) for plan in range(3)]
    same(Learned(state.sums, state.posterior, other.drift), other)


@pytest.mark.parametrize("half_life", [None, DAY])
def test_a_correction_and_a_retraction_leave_no_trace(half_life: float | None) -> None:
    policy = linear(2, half_life_s=half_life, drift=Doubt(threshold=0))
    seen = stream(50, 2)
    wrong = [answer(50, 1, 0.1, seen[0].blocks, at=NOW, weight=3.0), answer(51, 2, 1.0, seen[1].blocks, at=NOW + 1)]
    right = answer(50, 1, 0.9, seen[0].blocks, at=NOW, weight=3.0)
    later = [
        answer(50, 1, 0.9, seen[0].blocks, at=NOW, weight=3.0, before=0.1),
        answer(51, 2, None, seen[1].blocks, at=NOW + 1, before=1.0),
    ]

    same(policy.fold(policy.empty(), [*seen, right]), policy.fold(policy.fold(policy.empty(), [*seen, *wrong]), later))


def changed(policy: Linear) -> Learned:
    """p0, that was good, is not any more."""
    state = policy.fold(policy.empty(), stream(600))
    for each in stream(400, seed=2, truth=(0.2, 0.5, 0.3), start=600):
        state = policy.fold(state, [each])
    return state


def test_a_change_is_noticed_and_the_past_let_go() -> None:
    policy = linear()
    state = changed(policy)

    assert state.drift.alarms.tolist() == [1, 0, 0]
    statistics = policy.statistics(state)["plans"]
    assert statistics["p0"]["resets"] == 1
    assert statistics["p0"]["posterior"] < 0.35
    assert sum(plan["pulls"] for plan in statistics.values()) < 400
    without = linear(drift=Doubt(threshold=0))
    assert without.statistics(changed(without))["plans"]["p0"]["posterior"] > 0.5


@pytest.mark.parametrize("seed", range(4))
def test_a_stationary_stream_raises_no_alarm(seed: int) -> None:
    policy = linear()

    state = policy.fold(policy.empty(), stream(4_000, seed=seed))

    assert state.drift.alarms.sum() == 0


def test_what_was_decided_before_a_change_is_taken_back_by_what_it_still_counts() -> None:
    policy = linear()
    state = changed(policy)
    everything = [*stream(600), *stream(400, seed=2, truth=(0.2, 0.5, 0.3), start=600)]

    taken = [answer(n, int(each.plan[1:]), None, before=each.quality) for n, each in enumerate(everything)]
    left = policy.fold(state, taken)

    np.testing.assert_allclose(left.sums.gram, 0.0, atol=1e-9)
    np.testing.assert_allclose(left.sums.moment, 0.0, atol=1e-9)
    np.testing.assert_allclose(left.posterior.mean, policy.empty().posterior.mean, atol=1e-9)


def test_late_words_on_an_old_decision_raise_no_alarm_of_their_own() -> None:
    policy = linear()
    state = policy.fold(policy.empty(), stream(300))

    corrected = policy.fold(state, [answer(number, 0, 0.0, before=1.0) for number in range(60)])

    assert corrected.drift.pulls.tolist() == state.drift.pulls.tolist()
    assert corrected.drift.error.tolist() == state.drift.error.tolist()


def test_a_state_comes_back_bit_for_bit_and_learns_on_alike() -> None:
    policy = linear(3, half_life_s=DAY)
    state = policy.fold(policy.empty(), stream(300, 3))

    back = restored(policy.empty(), unpacked(packed(arrays(state))))

    more = stream(50, 3, seed=9, start=300)
    for one, other in ((state, back), (policy.fold(state, more), policy.fold(back, more))):
        first, second = arrays(one), arrays(other)
        assert {name: array.tobytes() for name, array in first.items()} == {name: array.tobytes() for name, array in second.items()}


def test_a_state_is_small_and_stays_so() -> None:
    policy = linear(14, of=plans(11))
    few, many = (policy.fold(policy.empty(), stream(count, 14, truth=(0.5,) * 11)) for count in (50, 5_000))

    sizes = [sum(array.nbytes for array in arrays(state).values()) for state in (few, many)]

    assert sizes[0] == sizes[1] < 100_000


def test_a_new_plan_of_a_known_model_starts_from_its_model() -> None:
    of = [Plan("p0", "m"), Plan("p1", "other"), Plan("p2", "m"), Plan("p3", "m", reasoning="high"), Plan("p4", "new")]
    policy = Linear(Params(), of, [])

    state = policy.fold(policy.empty(), [answer(n, n % 2, 0.9 if n % 2 == 0 else 0.2) for n in range(2_000)])

    p0, p1, sibling, thinking, new = policy.moments(state, situation(of))[1]
    assert p0 == pytest.approx(0.9, abs=0.01)
    assert p1 == pytest.approx(0.2, abs=0.01)
    assert sibling == pytest.approx(p0, abs=0.08)
    assert thinking == pytest.approx(new)  # another mode is another model
    assert abs(new - p0) > 0.1


def test_what_it_cannot_read_is_passed_over() -> None:
    policy = linear(2)
    state = policy.fold(policy.empty(), stream(20, 2))

    assert policy.fold(state, []) is state
    assert (
        policy.fold(state, [answer(1, 7, 1.0, {"block-1": np.zeros(2, np.float32)}), answer(2, 0, 1.0, {"block-2": np.zeros(2)})]) is state
    )


def test_statistics_say_what_is_known_of_each_plan() -> None:
    policy = linear(of=NAMES[:2], pool=1e12, strength=1.0, residual=1e12, prior_mean=0.5)

    found = policy.statistics(policy.fold(policy.empty(), [answer(n, 0, q) for n, q in enumerate((1.0, 1.0, 0.5))]))["plans"]

    sd = np.sqrt(0.2 / 4)
    assert found["p0"] == pytest.approx(
        {"pulls": 3.0, "mean": 2.5 / 3, "posterior": 3.0 / 4, "low": 0.75 - 1.96 * sd, "high": 0.75 + 1.96 * sd, "resets": 0}
    )
    assert (found["p1"]["pulls"], found["p1"]["mean"], found["p1"]["posterior"]) == (0.0, None, pytest.approx(0.5))


@pytest.mark.parametrize(
    ("params", "word"),
    [
        ({"ridge": 0.0}, "`ridge`"),
        ({"noise": -1.0}, "`noise`"),
        ({"strength": float("nan")}, "`strength`"),
        ({"half_life_s": 0.0}, "`half_life_s`"),
        ({"prior_mean": 1.5}, "`prior_mean`"),
        ({"drift": Doubt(rate=0.0)}, "`drift`"),
        ({"features": ("a", "a")}, "`features`"),
    ],
)
def test_parameters_that_cannot_work_are_problems(params: dict[str, Any], word: str) -> None:
    (said,) = common_problems(Params(**params))

    assert word in said
    assert common_problems(Params()) == []
