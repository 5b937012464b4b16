from __future__ import annotations

import math

import numpy as np
import pytest

from models.ridge import Batch, Posterior, Ridge, Sums

# Three models: the first with two plans, the last without any observation in most tests.
GROUPS = (0, 0, 1, 2)
DAY = 86_400.0


def ridge(features: int = 2, half_life: float | None = None, mean: float = 0.6) -> Ridge:
    return Ridge(GROUPS, features, half_life, noise=0.2, slopes=30.0, pool=2.0, intercept=1.5, residual=5.0, mean=mean)


def batch(n: int, features: int = 2, seed: int = 0, plans: int = 3, weights: bool = False) -> Batch:
    rng = np.random.default_rng(seed)
    x = np.ones((n, features + 1))
    x[:, 1:] = rng.normal(size=(n, features))
    weight = rng.choice([1.0, 4.0], n) if weights else np.ones(n)
    quality = rng.random(n)
    at = 1.7e9 + rng.uniform(0, 60 * DAY, n)
    return Batch(rng.integers(0, plans, n), x, np.ones(n), weight * quality, weight, at)


def picked(found: Batch, rows: object) -> Batch:
    return Batch(found.plan[rows], found.x[rows], found.count[rows], found.gain[rows], found.weight[rows], found.at[rows])


def close(one: Sums | Posterior, other: Sums | Posterior, tolerance: float = 1e-9) -> None:
    for name in one.__dataclass_fields__:
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=tolerance, atol=tolerance, err_msg=name)


def design(plan: int, x: np.ndarray) -> np.ndarray:
    """A row of the augmented design: shared, one block per group, one intercept per plan."""
    d, groups = len(x), max(GROUPS) + 1
    row = np.zeros(d * (1 + groups) + len(GROUPS))
    row[:d] = x
    row[d * (1 + GROUPS[plan]) : d * (2 + GROUPS[plan])] = x
    row[d * (1 + groups) + plan] = 1.0
    return row


@pytest.mark.parametrize("features", [0, 2, 5])
def test_the_posterior_is_that_of_one_ridge_regression_on_the_whole_design(features: int) -> None:
    model, seen = ridge(features), batch(200, features)
    d = features + 1
    pool, group = [2.0] + [30.0] * features, [1.5] + [30.0] * features
    precision = np.array(pool + 3 * group + [5.0] * 4)
    rows = np.array([design(plan, x) for plan, x in zip(seen.plan, seen.x, strict=True)])
    start = np.zeros(len(precision))
    start[0] = 0.6
    whole = np.diag(precision) + rows.T @ rows
    theta = np.linalg.solve(whole, precision * start + rows.T @ seen.gain)

    found = model.posterior(model.added(model.empty(), seen))

    for plan in range(4):
        select = np.array([design(plan, unit) for unit in np.eye(d)])
        select[1:, -4:] = 0.0  # a plan's own level is no slope
        np.testing.assert_allclose(found.mean[plan], select @ theta, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(found.cov[plan], 0.2 * select @ np.linalg.solve(whole, select.T), rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(found.evidence, np.bincount(seen.plan, minlength=4))


def test_before_anything_is_seen_the_prior_is_believed() -> None:
    found = ridge().posterior(ridge().empty())

    np.testing.assert_allclose(found.mean, [[0.6, 0.0, 0.0]] * 4, atol=1e-15)
    variance = 0.2 * (1 / 2.0 + 1 / 1.5 + 1 / 5.0)
    np.testing.assert_allclose(found.cov, [np.diag([variance, 0.2 * 2 / 30, 0.2 * 2 / 30])] * 4, atol=1e-15)


def test_a_new_plan_of_a_known_model_starts_from_the_model_and_a_new_model_from_all() -> None:
    model = Ridge(GROUPS, pool=1.0, intercept=1.0, residual=4.0, mean=0.5)
    n = 1_000
    plan = np.repeat([0, 2], n)
    gain = np.where(plan == 0, 0.9, 0.3)
    ones = np.ones(2 * n)

    found = model.posterior(model.added(model.empty(), Batch(plan, np.ones((2 * n, 1)), ones, gain, ones, ones)))

    first, sibling, second, stranger = found.mean[:, 0]
    assert first == pytest.approx(0.9, abs=0.002)
    assert second == pytest.approx(0.3, abs=0.002)
    # pool ~ N(.5, 1), groups N(., 1), plans N(., 1 / 4), in units of v: pool precision 1 + 2 / 1.25 from levels that are all but known
    pool = (0.5 + (0.9 + 0.3) / 1.25) / (1 + 2 / 1.25)
    assert stranger == pytest.approx(pool, abs=0.002)
    # the group lies between the pool and its plan: precisions 1 and 4
    assert sibling == pytest.approx((pool + 4 * 0.9) / 5, abs=0.002)
    spreads = np.sqrt(found.cov[:, 0, 0])
    assert spreads[0] < 0.02 < spreads[1] < spreads[3]


@pytest.mark.parametrize("half_life", [None, 7 * DAY])
def test_neither_the_order_nor_who_saw_it_matters(half_life: float | None) -> None:
    model, seen = ridge(half_life=half_life), batch(300, weights=True)
    whole = model.added(model.empty(), seen)
    backwards = model.empty()
    for row in range(299, -1, -1):
        backwards = model.added(backwards, picked(seen, [row]))
    odd, even = (model.added(model.empty(), picked(seen, slice(start, None, 2))) for start in (0, 1))

    for other in (backwards, model.merged(odd, even), model.merged(even, odd), model.added(odd, picked(seen, slice(1, None, 2)))):
        close(whole, other)
        close(model.posterior(whole), model.posterior(other))


def test_an_observation_counts_half_after_each_half_life() -> None:
    model = Ridge((0, 1), half_life=DAY, pool=1e9, intercept=1.0, residual=1e9, mean=0.0)
    start = 1.7e9
    at = start + DAY * np.array([0.0, 1.0, 3.0])
    seen = Batch(np.zeros(3, np.int64), np.ones((3, 1)), np.ones(3), np.array([1.0, 0.0, 1.0]), np.ones(3), at)

    found = model.posterior(model.added(model.empty(), seen))

    # as of the newest: weights 1/8, 1/4, 1, and the prior's 1
    assert found.evidence[0] == pytest.approx(1.375)
    assert found.mean[0, 0] == pytest.approx(1.125 / 2.375)
    assert found.cov[0, 0, 0] == pytest.approx(0.2 / 2.375)


def test_years_of_forgetting_keep_numbers_small_and_exact() -> None:
    model = Ridge((0,), half_life=DAY)
    sums = model.empty()
    for day in range(2_000):
        one = np.ones(1)
        sums = model.added(sums, Batch(np.zeros(1, np.int64), np.ones((1, 1)), one, 0.7 * one, one, np.array([1.7e9 + day * DAY])))

    assert model.posterior(sums).evidence[0] == pytest.approx(2.0)  # 1 + 1/2 + 1/4 + ...
    assert sums.gram[0, 0, 0] < 2.0**18
    late = model.added(sums, Batch(np.zeros(1, np.int64), np.ones((1, 1)), one, one, one, np.array([1.0])))
    close(sums, late)


@pytest.mark.parametrize("half_life", [None, 7 * DAY])
def test_what_is_corrected_or_taken_back_was_never_there(half_life: float | None) -> None:
    model, seen = ridge(half_life=half_life), batch(60, weights=True)
    seen.at[30] = seen.at.max() + 1.0  # the newest stays
    right = seen.gain.copy()
    right[:20] = seen.weight[:20] * 0.25
    expected = model.added(model.empty(), picked(Batch(seen.plan, seen.x, seen.count, right, seen.weight, seen.at), slice(0, 40)))

    sums = model.added(model.empty(), seen)
    corrected = Batch(seen.plan, seen.x, np.zeros(60), right - seen.gain, seen.weight, seen.at)
    sums = model.added(sums, picked(corrected, slice(0, 20)))
    withdrawn = Batch(seen.plan, seen.x, -np.ones(60), -seen.gain, seen.weight, seen.at)
    sums = model.added(sums, picked(withdrawn, slice(40, 60)))

    close(expected, sums)
    close(model.posterior(expected), model.posterior(sums))


def test_labels_that_stand_for_several_do_not_count_as_several() -> None:
    model = Ridge((0, 1), pool=1e9, intercept=1.0, residual=1e9, mean=0.0)
    weight = np.array([10.0] * 8 + [1.0, 3.0])
    plan = np.array([0] * 8 + [1] * 2)
    quality = np.array([1.0, 0.0] * 4 + [1.0, 0.0])

    found = model.posterior(model.added(model.empty(), Batch(plan, np.ones((10, 1)), np.ones(10), weight * quality, weight, np.zeros(10))))

    # 8 of weight 10 are worth 8; weights 1 and 3 are worth 16 / 10, with a mean of 1 / 4
    assert found.evidence == pytest.approx([8.0, 1.6])
    assert found.mean[:, 0] == pytest.approx([4.0 / 9.0, 0.4 / 2.6])
    assert found.cov[:, 0, 0] == pytest.approx([0.2 / 9.0, 0.2 / 2.6])


def test_taking_back_what_was_never_learned_is_refused() -> None:
    model = Ridge((0,), pool=1.0)
    many = np.ones(50)
    sums = model.added(model.empty(), Batch(np.zeros(50, np.int64), np.ones((50, 1)), -many, -many, many, many))

    with pytest.raises(ValueError, match="taken back"):
        model.posterior(sums)


def test_nothing_is_changed_in_place() -> None:
    model = ridge(half_life=DAY)
    before = model.added(model.empty(), batch(10))
    copy = Sums(before.gram.copy(), before.moment.copy(), before.squares.copy(), before.epoch, before.latest)

    after = model.added(before, batch(10, seed=1))
    model.merged(before, after)

    close(before, copy, 0.0)
    assert model.added(before, picked(batch(1), [])) is before
    assert math.isfinite(before.latest)
