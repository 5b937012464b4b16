"""Learning while serving, on a small matrix whose right answers are known."""

from __future__ import annotations

import numpy as np
import pytest

from policies.bench import online
from policies.bench.online import CATEGORY, Course, Learner, Order
from policies.offpolicy.matrix import Matrix
from policies.offpolicy.simulate import Setting

N = 600


@pytest.fixture(scope="module")
def course() -> Course:
    """`good` is right on 80 % of the prompts, `bad` on 20 %; in the category `odd`, a fifth of all, it is the other way round."""
    random = np.random.default_rng(0)
    categories = tuple("odd" if row % 5 == 0 else "even" for row in range(N))
    odd = np.array(categories) == "odd"
    likely = np.where(odd[:, None], [0.2, 0.8], [0.95, 0.05])
    rewards = (random.random((N, 2)) < likely).astype(float)
    alone = [f"Question number {row} of {'many' if row % 2 else 'few'}" for row in range(N - 2)]
    prompts = (*alone, "Twice the same.", "twice, the same")
    none = np.zeros((N, 2))
    matrix = Matrix(tuple(map(str, range(N))), prompts, categories, ("good", "bad"), rewards, none, none)
    return Course(matrix, {CATEGORY: [online.one_hot(categories)]}, online.fresh(prompts))


def order(rewards: list[float], best: list[float]) -> Order:
    rows = np.arange(len(rewards))
    return Order(0, rows, np.zeros_like(rows), np.ones(len(rewards)), np.array(rewards), np.array(best), 0)


def test_the_worst_window_is_the_one_that_lost_most_to_the_best_fixed_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(online, "WINDOW", 2)
    assert order([1, 0, 0, 1, 1], [1, 1, 1, 1, 0]).worst_window == -1.0
    assert order([1], [0]).worst_window == 1.0  # fewer requests than the window has


def test_prompts_that_stand_there_twice_are_not_told_of_beforehand(course: Course) -> None:
    assert len(course.fresh) == N - 2
    told = course.warm(0, 50)
    assert len(set(told.tolist())) == 50
    assert not set(told.tolist()) & {N - 2, N - 1}
    assert course.warm(1, 50).tolist() != told.tolist()


def test_what_was_told_of_is_not_served(course: Course) -> None:
    found = online.run(course, Learner("warm", "thompson", {"nu": 0.35}, warm=50), 3)
    assert len(found.rows) == N - 50
    assert not set(found.rows.tolist()) & set(course.warm(3, 50).tolist())
    assert found.best.tolist() == course.matrix.rewards[found.rows, 0].tolist()
    assert found.rewards.tolist() == course.matrix.rewards[found.rows, found.arms].tolist()
    assert found.alarms == 0


def test_who_knows_the_category_does_better_than_the_best_fixed_plan(course: Course) -> None:
    params = {"nu": 0.15, "nu_warm": 0.15, "features": [CATEGORY], "ridge": 5.0}
    learners = [
        Learner("told", "thompson", params, CATEGORY, 100, orders=2),
        Learner("blind", "thompson", warm=100, orders=2),
        Learner("random", "random", orders=2),
    ]
    said: list[str] = []
    found = online.all_orders(course, learners, 1, said.append)
    over = {name: np.mean([each.rewards.mean() - each.best.mean() for each in orders]) for name, orders in found.items()}
    assert over["told"] > 0.05
    assert over["told"] > over["blind"] > over["random"]
    assert [each.seed for each in found["told"]] == [0, 1]
    assert len(said) == 3


def test_processes_change_nothing(course: Course) -> None:
    learners = [Learner("cold", "thompson", setting=Setting(requests=60), orders=2)]
    one = online.all_orders(course, learners, 1, lambda _: None)["cold"]
    two = online.all_orders(course, learners, 2, lambda _: None)["cold"]
    assert [each.arms.tolist() for each in one] == [each.arms.tolist() for each in two]


def test_reward_lost_counts_the_second_half_against_the_plan_that_is_best_now() -> None:
    rewards = np.array([[1.0, 0.0], [0.5, 0.0], [1.0, 0.0], [0.5, 0.0]])
    none = np.zeros((4, 2))
    matrix = Matrix(("a", "b", "c", "d"), ("a", "b", "c", "d"), ("x", "y", "x", "y"), ("good", "bad"), rewards, none, none)
    course = Course(matrix, {}, np.arange(4))
    served = Order(0, np.array([0, 1, 2, 3]), np.array([0, 0, 0, 1]), np.ones(4), np.zeros(4), np.zeros(4), 0)
    # From the third on `bad` is the good one: it gets 1 on x and 0.5 on y. `good` on x loses 1; `bad` on y loses nothing.
    assert online.reward_lost(course, served, (0, 1)) == 1.0


def test_categories_are_inferred_by_classifiers_that_did_not_see_the_prompt(course: Course) -> None:
    matrix = course.matrix
    random = np.random.default_rng(0)
    embedding = (online.one_hot(matrix.categories) + 0.05 * random.standard_normal((N, 2))).astype(np.float32)
    found = online.inferred(embedding, matrix, course.fresh, 100, 1.0, 0)
    assert found.overlap == 0
    assert found.accuracy == 1.0
    assert found.probabilities.sum(axis=1) == pytest.approx(np.ones(N), abs=1e-5)
    everything = online.inferred(embedding, matrix, np.arange(N), N - 1, 1.0, 0)
    assert everything.overlap > 0  # of the two prompts that are the same, one trains a classifier that the other is told apart by
