"""The reward model, against ridge regressions written out."""

from __future__ import annotations

import numpy as np
import pytest

from policies.offpolicy.reward_model import cross_fitted, fitted, fold_of, progressive


def test_it_is_a_ridge_regression_for_each_plan_around_shrunk_means() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(60, 3))
    chosen = generator.integers(2, size=60)
    rewards = 0.5 + 0.2 * x[:, 0] * chosen
    model = fitted(x, chosen, rewards, plans=3, ridge=5.0, prior=2.0)
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    of = chosen == 1
    mean = (rewards[of].sum() + 2 * rewards.mean()) / (of.sum() + 2)
    theta = np.linalg.inv(z[of].T @ z[of] + 5 * np.eye(3)) @ z[of].T @ (rewards[of] - mean)
    assert model.predict(x)[:, 1] == pytest.approx(mean + z @ theta)
    # Nobody ever served with plan 2: it is expected to be as all are.
    assert model.predict(x)[:, 2] == pytest.approx(np.full(60, rewards.mean()))


def test_unlabelled_rows_and_constant_features_do_no_harm() -> None:
    x = np.concatenate([np.arange(6.0)[:, None], np.ones((6, 1))], axis=1)
    rewards = np.array([0.0, 1.0, np.nan, 1.0, 0.0, np.nan])
    chosen = np.array([0, 1, 0, 1, 0, 1])
    told = ~np.isnan(rewards)
    whole, part = fitted(x, chosen, rewards, 2), fitted(x[told], chosen[told], rewards[told], 2)
    assert whole.predict(x) == pytest.approx(part.predict(x))
    assert np.isfinite(whole.predict(x)).all()
    none = fitted(x, chosen, np.full(6, np.nan), 2)
    assert none.predict(x) == pytest.approx(np.zeros((6, 2)))


def test_without_features_it_is_the_means() -> None:
    model = fitted(np.zeros((4, 0)), np.array([0, 0, 1, 1]), np.array([1.0, 0.0, 1.0, 1.0]), 2, prior=0.0)
    assert model.predict(np.zeros((1, 0))) == pytest.approx(np.array([[0.5, 1.0]]))


def test_a_row_has_no_part_in_what_is_predicted_of_it_nor_has_its_session() -> None:
    generator = np.random.default_rng(3)
    x, chosen = generator.normal(size=(90, 2)), generator.integers(2, size=90)
    rewards, units = generator.random(90), np.arange(90) // 3
    before = cross_fitted(x, chosen, rewards, units, 2)
    changed = rewards.copy()
    changed[units == 7] = 50.0
    after = cross_fitted(x, chosen, changed, units, 2)
    same = fold_of(units) == fold_of(np.array([7]))[0]
    assert (after[same] == before[same]).all()
    assert (after[~same] != before[~same]).all()
    assert sorted(np.unique(fold_of(np.arange(30))).tolist()) == [0, 1, 2]


def test_progressive_predictions_know_only_the_past() -> None:
    generator = np.random.default_rng(4)
    x, chosen, rewards = generator.normal(size=(300, 2)), generator.integers(2, size=300), generator.random(300)
    made = progressive(x, chosen, rewards, 2, begin=64)
    assert (made[:64] == 0).all()
    assert made[64:128] == pytest.approx(fitted(x[:64], chosen[:64], rewards[:64], 2).predict(x[64:128]))
    assert made[256:] == pytest.approx(fitted(x[:256], chosen[:256], rewards[:256], 2).predict(x[256:]))
    later = rewards.copy()
    later[200:] = 9.0
    assert (progressive(x, chosen, later, 2)[:256] == made[:256]).all()
