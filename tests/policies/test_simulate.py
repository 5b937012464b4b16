"""Policies on outcome matrices: the same run for the same seed, and nothing known before its time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from policies.offpolicy.matrix import Matrix
from policies.offpolicy.simulate import Run, Setting, category_means, matrix_blocks, regrets, simulate
from policies.policy import Policy
from policies.routing import thompson
from policies.routing.base import Stateless
from policies.routing.weighted import Weighted
from policies.values.decision import Odds, Scores
from policies.values.outcome import Observation
from policies.values.plan import Plan
from policies.values.prompt import Prompt
from policies.values.situation import Prices, Situation

PLANS = (Plan("a", "m"), Plan("b", "m"), Plan("c", "m"))


@dataclass(frozen=True)
class Heard:
    """What a policy was told, in order, and how often."""

    observations: tuple[Observation, ...] = ()
    folds: int = 0


@dataclass
class Listener(Stateless):
    """Draws evenly; remembers what it was told, and what it knew at each decision."""

    encoders: tuple[Any, ...] = ()
    known: list[int] = field(default_factory=list)
    seen: list[Situation] = field(default_factory=list)

    def empty(self) -> Any:
        return Heard()

    def estimate(self, state: Any, situation: Situation) -> Scores:
        self.known.append(len(state.observations))
        self.seen.append(situation)
        return super().estimate(None, situation)

    def propensities(self, _state: Any, situation: Situation, _scores: Scores) -> Odds:
        return Odds((1.0,) * len(situation.candidates))

    def fold(self, state: Any, observations: Sequence[Observation]) -> Any:
        return Heard((*state.observations, *observations), state.folds + 1)


class Length:
    """Features of a prompt: how long it is."""

    name = "length-1"
    dim = 1
    slow = False

    def encode(self, prompt: Prompt) -> npt.NDArray[np.float32]:
        return np.array([len(prompt.turns[0].text)], dtype=np.float32)


def listen(rewards: Any, setting: Setting, **more: Any) -> tuple[Listener, Run]:
    listener = Listener(**({"encoders": more.pop("encoders")} if "encoders" in more else {}))
    return listener, simulate(Policy("p", listener, 0.0, 0), np.asarray(rewards, dtype=np.float64), PLANS, setting, **more)


def test_an_outcome_is_known_after_the_delay_and_not_before() -> None:
    rewards = np.full((8, 3), 0.5)
    assert listen(rewards, Setting())[0].known == [0, 1, 2, 3, 4, 5, 6, 7]
    assert listen(rewards, Setting(delay=3))[0].known == [0, 0, 0, 0, 1, 2, 3, 4]
    assert listen(rewards, Setting(batch=4))[0].known == [0, 0, 0, 0, 4, 4, 4, 4]
    assert listen(rewards, Setting(batch=2, delay=3))[0].known == [0, 0, 0, 0, 1, 1, 3, 3]


def test_what_is_told_is_what_was_drawn() -> None:
    rewards = np.arange(24).reshape(8, 3) / 24
    listener, run = listen(rewards, Setting(seed=5), costs=np.array([0.1, 0.2, 0.3]))
    assert sorted(run.rows.tolist()) == list(range(8))
    assert run.rewards == pytest.approx(rewards[run.rows, run.arms])
    assert run.propensities == pytest.approx(np.full(8, 1 / 3))
    assert run.probabilities == pytest.approx(np.full((8, 3), 1 / 3))
    told = run.state.observations
    assert [each.quality for each in told] == pytest.approx(run.rewards[:-1])
    assert [each.plan for each in told] == [PLANS[arm].name for arm in run.arms[:-1]]
    assert {each.weight for each in told} == {1.0}
    assert [each.cost for each in told] == pytest.approx([0.1 * (arm + 1) for arm in run.arms[:-1]])
    assert [each.at for each in told] == [each.now for each in listener.seen[:-1]]
    assert [each.baseline for each in told] == pytest.approx([1 / 3] * 7)
    assert len({each.decision_id for each in told}) == 7


def test_the_baseline_is_the_first_plan_or_the_one_that_is_named() -> None:
    rewards = np.array([[0.5, np.nan, 0.5]] * 5)
    policy = Policy("w", Listener(), 0.0, 0)
    for name, expected in ((None, 0.5), ("c", 0.5), ("b", 0.0)):
        run = simulate(policy, rewards, PLANS, Setting(baseline=name))
        assert {each.baseline for each in run.state.observations} == {expected}
    with pytest.raises(ValueError, match="the baseline `x`"):
        simulate(policy, rewards, PLANS, Setting(baseline="x"))


def test_few_labels_count_for_the_others() -> None:
    _, run = listen(np.full((4000, 3), 0.5), Setting(labelled=0.25, batch=50))
    told = run.state.observations
    assert {each.weight for each in told} == {4.0}
    assert 900 < run.labelled.sum() < 1100
    assert len(told) == run.labelled[:3950].sum()


def test_warm_prompts_are_told_of_whole_and_are_not_served() -> None:
    rewards = np.array([[0.1, 0.2, np.nan]] * 6)
    listener, run = listen(rewards, Setting(warm=2, delay=100))
    assert listener.known == [4, 4, 4, 4] and len(run.rows) == 4
    warm = run.state.observations
    assert [(each.plan, each.quality, each.weight, each.propensity) for each in warm] == [("a", 0.1, 1.0, 1.0), ("b", 0.2, 1.0, 1.0)] * 2
    assert all(each.at < listener.seen[0].now for each in warm)


def test_a_plan_whose_outcome_is_not_known_is_not_eligible() -> None:
    rewards = np.array([[0.5, np.nan, 0.5], [np.nan, np.nan, np.nan], [0.5, 0.5, 0.5], [np.nan, 0.5, np.nan]])
    listener, run = listen(rewards, Setting())
    assert sorted(run.rows.tolist()) == [0, 2, 3]
    for row, situation in zip(run.rows.tolist(), listener.seen, strict=True):
        assert [each.index for each in situation.candidates] == np.flatnonzero(~np.isnan(rewards[row])).tolist()
    assert run.probabilities[run.rows == 0].tolist() == [[0.5, 0.0, 0.5]]
    assert run.propensities[run.rows == 3].tolist() == [1.0]


def test_two_plans_exchange_their_outcomes_half_way() -> None:
    rewards = np.tile([1.0, 0.0, 0.5], (1000, 1))
    _, run = listen(rewards, Setting(swap=(0, 1)))
    first, second = np.arange(1000) < 500, np.arange(1000) >= 500
    for arm, before, after in ((0, 1.0, 0.0), (1, 0.0, 1.0), (2, 0.5, 0.5)):
        assert set(run.rewards[first & (run.arms == arm)]) == {before}
        assert set(run.rewards[second & (run.arms == arm)]) == {after}
    lost = regrets(run, category_means(rewards, [""] * 1000), swap=(0, 1))
    assert lost == pytest.approx(1.0 - run.rewards)


def test_the_same_seed_is_the_same_run_and_another_is_another_order() -> None:
    generator = np.random.default_rng(0)
    rewards = (generator.random((300, 3)) < [0.2, 0.5, 0.8]).astype(np.float64)
    policy = Policy("t", thompson.Thompson(thompson.Params(), PLANS), 0.1, 7)
    one, same, other = (simulate(policy, rewards, PLANS, Setting(seed=seed)) for seed in (3, 3, 4))
    assert (one.arms == same.arms).all() and (one.propensities == same.propensities).all()
    assert one.rows.tolist() != other.rows.tolist()
    assert simulate(policy, rewards, PLANS, Setting(seed=3, requests=10)).arms.tolist() == one.arms[:10].tolist()


def test_a_policy_that_learns_finds_the_better_plan() -> None:
    generator = np.random.default_rng(0)
    rewards = (generator.random((3000, 3)) < [0.2, 0.5, 0.8]).astype(np.float64)
    run = simulate(Policy("t", thompson.Thompson(thompson.Params(), PLANS), 0.0, 1), rewards, PLANS, Setting(batch=10))
    assert (run.arms[-1000:] == 2).mean() > 0.9
    again = simulate(Policy("t", thompson.Thompson(thompson.Params(), PLANS), 0.0, 1), rewards, PLANS, Setting(batch=10), state=run.state)
    assert (again.arms[:500] == 2).mean() > 0.9


def test_prices_reach_the_policy() -> None:
    listener, _ = listen(np.full((3, 3), 0.5), Setting(prices=Prices(2.0, 3.0)), costs=np.array([1.0, 2.0, 3.0]), latencies=np.ones(3))
    assert {(each.prices.cost, each.prices.latency) for each in listener.seen} == {(2.0, 3.0)}
    assert [(each.cost, each.latency) for each in listener.seen[0].candidates] == [(1.0, 1.0), (2.0, 1.0), (3.0, 1.0)]


def test_features_are_of_the_prompt_that_is_served() -> None:
    none = np.zeros((3, 3))
    matrix = Matrix(("1", "2", "3"), ("x", "xx", "xxx"), ("", "", ""), ("a", "b", "c"), none, none, none)
    blocks = matrix_blocks(matrix, (Length(),))
    assert blocks["length-1"].tolist() == [[1.0], [2.0], [3.0]]
    listener, run = listen(none, Setting(), encoders=(Length(),), blocks=blocks)
    assert [float(each.blocks["length-1"][0]) for each in listener.seen] == [row + 1.0 for row in run.rows]


def test_missing_features_are_named() -> None:
    with pytest.raises(ValueError, match="reads the features `length-1`"):
        listen(np.zeros((3, 3)), Setting(), encoders=(Length(),))
    with pytest.raises(ValueError, match="but there are 3 plans"):
        simulate(Policy("w", Weighted({}), 0.0, 0), np.zeros((3, 2)), PLANS)


def test_means_are_of_a_category_and_of_what_is_known() -> None:
    rewards = np.array([[1.0, 0.0], [0.0, np.nan], [0.5, 0.5], [0.5, np.nan]])
    means = category_means(rewards, ["x", "x", "y", "y"])
    assert means.tolist() == [[0.5, 0.0], [0.5, 0.0], [0.5, 0.5], [0.5, 0.5]]
