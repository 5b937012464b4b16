"""A policy put to the log of another: the same probabilities as in serving, and worth that is near the truth."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import msgspec
import numpy as np
import pytest

from policies.draw import mix
from policies.offpolicy.log import Logged, Option, Row, logged
from policies.offpolicy.replay import ReplayError, judged_rows, replay, target_probabilities
from policies.policy import Policy, decide
from policies.routing import thompson
from policies.routing.base import Stateless
from policies.routing.fixed import Fixed
from policies.routing.weighted import Weighted
from policies.values.decision import Odds, Scores
from policies.values.outcome import Observation
from policies.values.plan import Candidate, Plan
from policies.values.situation import Prices, Situation

PLANS = (Plan("small", "m"), Plan("large", "m"))
SUCCESS = {"small": 0.5, "large": 0.8}


class Hard:
    """Whether a request is hard: one number."""

    name = "hard-1"
    dim = 1
    slow = False

    def encode(self, _prompt: Any) -> Any:
        raise AssertionError("features come from the log")


class LargeIfHard(Stateless):
    """The large plan where the request is hard."""

    encoders = (Hard(),)

    def propensities(self, _state: None, situation: Situation, _scores: Scores) -> Odds:
        hard = situation.blocks["hard-1"][0] > 0.5
        return Odds(tuple(1.0 if (each.plan.name == "large") == hard else 0.0 for each in situation.candidates))


def rows(n: int = 2000, seed: int = 0, *, labelled: float = 1.0, floor: float = 0.4) -> list[Row]:
    """Half of the requests are hard: only the large plan can do them. The log takes the small plan, but for the floor."""
    generator = np.random.default_rng(seed)
    made = []
    odds = mix((1.0, 0.0), floor)
    for i in range(n):
        hard = bool(generator.random() < 0.5)
        plan = "small" if generator.random() < odds[0] else "large"
        success = (0.9 if plan == "large" else 0.2) if hard else 0.8
        quality = float(generator.random() < success) if generator.random() < labelled else None
        made.append(
            Row(
                f"d{i}",
                plan,
                odds[0] if plan == "small" else odds[1],
                (Option("small", odds[0], 0.001, 1.0), Option("large", odds[1], 0.01, 3.0)),
                created=float(i),
                quality=quality,
                labelling=labelled,
                cost=0.0011 if plan == "small" else 0.012,
                latency=1.1 if plan == "small" else 2.9,
                blocks={"hard-1": [float(hard)]},
            )
        )
    return made


def log(made: Sequence[Row]) -> Logged:
    return logged(made, [plan.name for plan in PLANS])


def changed(made: Sequence[Row], **changes: Any) -> list[Row]:
    return [msgspec.structs.replace(row, **changes) for row in made]


@pytest.mark.parametrize("labelled", [1.0, 0.3])
def test_the_intervals_hold_the_truth_and_the_gain_is_seen(labelled: float) -> None:
    report = replay(Policy("p", LargeIfHard(), 0.0, 0), PLANS, log(rows(seed=2, labelled=labelled)))
    assert report.evaluated == report.rows == 2000 and report.left_out == {}
    truth, own = 0.5 * 0.9 + 0.5 * 0.8, 0.5 * (0.8 * 0.2 + 0.2 * 0.9) + 0.5 * 0.8
    for estimate in report.quality.target:
        if estimate.method in ("dr", "ips", "snips", "switch"):
            assert estimate.low is not None and estimate.high is not None
            assert estimate.low < truth < estimate.high, estimate
    assert report.quality.target[0].method == "dr"
    assert report.quality.logged.value == pytest.approx(own, abs=0.06)
    gained = report.quality.gain
    assert gained.low is not None and gained.high is not None
    assert 0.0 < gained.low < truth - own < gained.high
    assert report.cost.target[0].value == pytest.approx(0.5 * 0.012 + 0.5 * 0.0011, rel=0.05)
    assert report.latency.gain.value == pytest.approx(2.0 - (0.8 * 1.1 + 0.2 * 2.9), rel=0.05)
    assert report.shares["large"] == pytest.approx((0.5, 0.2), abs=0.03)
    assert json.loads(json.dumps(asdict(report)))["quality"]["gain"]["method"] == "gain"


def test_callers_who_say_nothing_are_not_taken_to_be_unhappy() -> None:
    """Feedback says that it may come for every request, and comes for a fifth of them."""
    made = changed(rows(seed=2, labelled=0.2), labelling=1.0)
    report = replay(Policy("p", LargeIfHard(), 0.0, 0), PLANS, log(made))
    for estimate in report.quality.target:
        assert estimate.value == pytest.approx(0.85, abs=0.15), estimate
    assert report.quality.logged.value == pytest.approx(0.57, abs=0.05)


def test_the_probabilities_are_those_that_serving_would_draw_from() -> None:
    made = changed(rows(30), prices=Prices(10.0, 0.1), unit="u", tenant="t")
    policy = Policy("t", thompson.Thompson(thompson.Params(), PLANS), 0.2, 3)
    algorithm = policy.algorithm
    state = algorithm.fold(algorithm.empty(), [Observation("x", "small", {}, 0.4, at=0.0), Observation("y", "large", {}, 0.9, at=0.0)])
    found = target_probabilities(policy, PLANS, log(made), np.arange(30), state)
    for i in range(30):
        candidates = (Candidate(PLANS[0], 0, 0.001, 1.0), Candidate(PLANS[1], 1, 0.01, 3.0))
        situation = Situation(candidates, {}, Prices(10.0, 0.1), unit="u", now=float(i), tenant="t")
        assert found[i].tolist() == list(decide(policy, state, situation, "another id").probabilities)


def test_the_floor_is_in_the_target() -> None:
    found = target_probabilities(Policy("f", Fixed("large"), 0.1, 0), PLANS, log(rows(2)), np.arange(2))
    assert found == pytest.approx(np.array([[0.05, 0.95]] * 2))


def test_a_learning_policy_is_judged_as_it_learns() -> None:
    made = rows(400, floor=1.0)
    policy = Policy("t", thompson.Thompson(thompson.Params(), PLANS), 0.0, 0)
    log_ = log(made)
    found = target_probabilities(policy, PLANS, log_, np.arange(400), learn=True, batch=1)
    # The first row is decided with nothing known; the k-th as the policy would that has folded the k rows before.
    algorithm = policy.algorithm
    state = algorithm.empty()
    for row in made[:25]:
        state = algorithm.fold(state, [Observation(row.id, row.plan, {}, row.quality, at=row.created, propensity=row.propensity)])
    frozen = target_probabilities(policy, PLANS, log_, np.arange(400), state)
    assert found[0] == pytest.approx([0.5, 0.5], abs=1e-3)
    assert found[25] == pytest.approx(frozen[25], abs=1e-9)
    # large is right in 0.85 of all cases, small in 0.5.
    assert found[-1][1] > 0.95
    batched = target_probabilities(policy, PLANS, log_, np.arange(400), learn=True, batch=1000)
    assert batched[-1] == pytest.approx(batched[0])


def test_what_is_learnt_says_how_likely_the_baseline_was() -> None:
    class Listener(Stateless):
        def __init__(self) -> None:
            self.told: list[Observation] = []

        def propensities(self, _state: None, situation: Situation, _scores: Scores) -> Odds:
            return Odds((1.0,) * len(situation.candidates))

        def fold(self, _state: None, observations: Sequence[Observation]) -> None:
            self.told += observations

    for baseline, probability in ((None, 0.8), ("large", 0.2), ("elsewhere", 0.0)):
        listener = Listener()
        target_probabilities(Policy("l", listener, 0.0, 0), PLANS, log(rows(10)), np.arange(10), learn=True, baseline=baseline)
        assert [each.baseline for each in listener.told] == pytest.approx([probability] * 9)
        assert {round(each.propensity, 9) for each in listener.told} <= {0.8, 0.2}


def test_rows_that_say_nothing_are_left_out_and_counted() -> None:
    made = rows(100)
    made[:10] = changed(made[:10], first=False)
    made[10:15] = changed(made[10:15], explore=False)
    made[15:18] = changed(made[15:18], blocks={})
    retired = (Option("old", 1.0),)
    made[18:20] = changed(made[18:20], candidates=retired, plan="old", propensity=1.0)
    policy = Policy("p", LargeIfHard(), 0.0, 0)
    report = replay(policy, PLANS, log(made))
    assert report.left_out == {
        "later turns": 10,
        "not explored on": 5,
        "without features": 3,
        "without a candidate that is still a plan": 2,
    }
    assert (report.rows, report.evaluated) == (100, 80)
    assert replay(policy, PLANS, log(made), first_only=False).evaluated == 90


def test_what_the_log_knows_nothing_of_is_named() -> None:
    new = (*PLANS, Plan("new", "m"))
    assert replay(Policy("f", Fixed("large"), 0.0, 0), new, log(rows(50))).absent == ("new",)
    with pytest.raises(ReplayError, match="the policy `p` reads the features `hard-1`, which the log does not hold"):
        replay(Policy("p", LargeIfHard(), 0.0, 0), PLANS, log(changed(rows(50), blocks={})))


def test_a_log_without_a_row_to_judge_by_is_refused() -> None:
    with pytest.raises(ReplayError, match=r"none of 50 rows .*: 50 later turns"):
        replay(Policy("f", Fixed("large"), 0.0, 0), PLANS, log(changed(rows(50), first=False)))
    with pytest.raises(ReplayError, match="the log is empty"):
        replay(Policy("f", Fixed("large"), 0.0, 0), PLANS, log([]))


def test_a_log_that_never_explored_says_nothing_of_others() -> None:
    made = [row for row in rows(500, floor=0.0) if row.plan == "small"]
    report = replay(Policy("f", Fixed("large"), 0.0, 0), PLANS, log(made))
    for estimate in report.quality.target:
        assert estimate.value is None and estimate.refused is not None and "no support" in estimate.refused
    same = replay(Policy("f", Fixed("small"), 0.0, 0), PLANS, log(made))
    assert same.quality.gain.value == 0.0


def test_sessions_are_kept_together() -> None:
    made = rows(400)
    alone = replay(Policy("w", Weighted({}), 0.0, 0), PLANS, log(made))
    doubled = [msgspec.structs.replace(row, id=f"{row.id}.{k}", session=row.id) for row in made for k in range(2)]
    together = replay(Policy("w", Weighted({}), 0.0, 0), PLANS, log(doubled))
    assert together.quality.target[0].units == 400
    assert together.quality.target[0].se == pytest.approx(alone.quality.target[0].se, rel=0.1)


def test_costs_that_are_not_known_are_not_guessed() -> None:
    report = replay(Policy("f", Fixed("large"), 0.0, 0), PLANS, log(changed(rows(500), cost=None)))
    assert report.cost.target[0].low is None
    assert report.quality.target[0].low is not None


def test_plans_in_another_order_than_the_log_mean_the_same() -> None:
    made = rows(300)
    one = replay(Policy("p", LargeIfHard(), 0.0, 0), PLANS, log(made))
    other = replay(Policy("p", LargeIfHard(), 0.0, 0), PLANS, logged(made, ["large", "small"]))
    assert other.quality.target[0].value == pytest.approx(one.quality.target[0].value)
    assert {plan: pytest.approx(shares) for plan, shares in other.shares.items()} == one.shares
    left, kept = judged_rows(Policy("p", LargeIfHard(), 0.0, 0), PLANS, log(made))
    assert left == {} and kept.tolist() == list(range(300))
