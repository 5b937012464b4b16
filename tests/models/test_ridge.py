from __future__ import annotations

import math

import numpy as np
import pytest

from models import ridge as module
from models.response import ONCE, Response, headroom
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


# Two models with a plain plan, votes and checks, and one plan that has no curve.
CURVED = (0, 0, 0, 0, 1, 1, 1, 2)
VOTE, CHECK = "vote", "check"
CURVES = (
    ONCE,
    Response(CHECK, 4, 0.9),
    Response(CHECK, 16, 0.9),
    Response(VOTE, 7),
    ONCE,
    Response(CHECK, 8, 0.9),
    Response(VOTE, 3),
    None,
)
KINDS = {CHECK: 0.9, VOTE: 0.3}


def curved(features: int = 0, half_life: float | None = None) -> Ridge:
    return Ridge(
        CURVED,
        features,
        half_life,
        0.2,
        slopes=30.0,
        pool=2.0,
        intercept=1.5,
        residual=5.0,
        mean=0.6,
        efficiency=3.0,
        misfit=50.0,
        curves=CURVES,
    )


def outcomes(n: int, features: int = 0, seed: int = 0, plans: tuple[int, ...] = tuple(range(8))) -> Batch:
    """Of models that are right in 0.45, 0.7 and 0.5, a check of efficiency 0.8 and a vote of 0.25; the features move nothing."""
    rng = np.random.default_rng(seed)
    truth = []
    for group, curve in zip(CURVED, CURVES, strict=True):
        p = (0.45, 0.7, 0.5)[group]
        truth.append(p if curve is None else p + {CHECK: 0.8, VOTE: 0.25}.get(curve.kind, 0.0) * headroom(p, curve.tries)[0])
    plan = rng.choice(plans, n)
    x = np.ones((n, features + 1))
    x[:, 1:] = rng.normal(0.2, 0.5, size=(n, features))
    gain = (rng.random(n) < np.array(truth)[plan]).astype(float)
    return Batch(plan, x, np.ones(n), gain, np.ones(n), 1.7e9 + np.arange(n))


def unknowns(plan: int, x: np.ndarray, slope: float, head: float) -> np.ndarray:
    """A row of the whole design: pool, one block per group, one level per plan, one rho per kind."""
    d = len(x)
    row = np.zeros(d * 4 + len(CURVED) + len(KINDS))
    row[:d] = slope * x
    row[d * (1 + CURVED[plan]) : d * (2 + CURVED[plan])] = slope * x
    row[d * 4 + plan] = 1.0
    curve = CURVES[plan]
    if curve is not None and curve.tries > 1:
        row[d * 4 + len(CURVED) + list(KINDS).index(curve.kind)] = head
    return row


@pytest.mark.parametrize("features", [0, 3])
@pytest.mark.parametrize("n", [0, 40, 2_000])
def test_with_curves_it_is_the_regression_on_their_tangents(features: int, n: int) -> None:
    model, seen = curved(features), outcomes(n, features)
    d, x_mean = features + 1, seen.x.mean(axis=0) if n else np.eye(features + 1)[0]
    own = [50.0] * 7 + [5.0]
    precision = np.array([2.0] + [30.0] * features + 3 * ([1.5] + [30.0] * features) + own + [3.0, 3.0])
    start = np.zeros(len(precision))
    start[0], start[-2:] = 0.6, list(KINDS.values())
    theta = start
    for number in range(module.ROUNDS):
        tangents = []
        for plan, curve in enumerate(CURVES):
            block = theta[d * (1 + CURVED[plan]) : d * (2 + CURVED[plan])]
            p = float(np.clip((theta[:d] + block) @ x_mean if number else 0.6, 0.0, 1.0))
            head, bend = (0.0, 0.0) if curve is None else headroom(p, curve.tries)
            rho = 0.0 if curve is None or curve is ONCE else float(np.clip(theta[-2:][list(KINDS).index(curve.kind)], -1.0, 1.0))
            tangents.append((1.0 + rho * bend, head, -rho * bend * p))
        rows = np.array([unknowns(plan, x, *tangents[plan][:2]) for plan, x in zip(seen.plan, seen.x, strict=True)]).reshape(
            n, len(precision)
        )
        known = np.array([gain - tangents[plan][2] for plan, gain in zip(seen.plan, seen.gain, strict=True)])
        whole = np.diag(precision) + rows.T @ rows
        theta = np.linalg.solve(whole, precision * start + rows.T @ known)

    sums = model.added(model.empty(), seen)
    found = model.posterior(sums)

    for plan, (slope, head, offset) in enumerate(tangents):
        select = np.array([unknowns(plan, unit, slope, head) for unit in np.eye(d)])
        select[1:, d * 4 :] = 0.0  # only the level has these
        expected = select @ theta
        expected[0] += offset
        np.testing.assert_allclose(found.mean[plan], expected, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(found.cov[plan], 0.2 * select @ np.linalg.solve(whole, select.T), rtol=1e-8, atol=1e-10)
    spreads = np.sqrt(0.2 * np.diag(np.linalg.inv(whole))[-2:])
    for at, (kind, (mean, sd)) in enumerate(model.efficiencies(sums).items()):
        assert kind == list(KINDS)[at]
        assert (mean, sd) == pytest.approx((theta[-2:][at], spreads[at]), rel=1e-8)


def test_what_is_believed_is_where_the_curves_themselves_fit_best() -> None:
    """The likeliest pool, models, levels and efficiencies, by steps down the squared error of the curves as they are, by differences."""
    model, seen = curved(), outcomes(3_000, plans=(0, 1, 3, 4, 5, 7))
    sums = model.added(model.empty(), seen)
    precision = np.array([2.0, 1.5, 1.5, 1.5, *[50.0] * 7, 5.0, 3.0, 3.0])
    start = np.array([0.6, *[0.0] * 11, 0.9, 0.3])
    counts = np.bincount(seen.plan, minlength=8)
    means = np.bincount(seen.plan, seen.gain, minlength=8) / np.maximum(1, counts)

    def qualities(theta: np.ndarray) -> np.ndarray:
        found = []
        for plan, curve in enumerate(CURVES):
            q = theta[0] + theta[1 + CURVED[plan]]
            rho = 0.0 if curve is None or curve is ONCE else theta[12 + list(KINDS).index(curve.kind)]
            found.append(q + rho * (headroom(q, curve.tries)[0] if curve is not None else 0.0) + theta[4 + plan])
        return np.array(found)

    theta = start
    for _ in range(100):
        slopes = np.array([(qualities(theta + 1e-6 * unit) - qualities(theta - 1e-6 * unit)) / 2e-6 for unit in np.eye(14)]).T
        down = slopes.T @ (counts * (means - qualities(theta))) - precision * (theta - start)
        theta = theta + np.linalg.solve(np.diag(precision) + slopes.T @ (counts[:, None] * slopes), down)
    assert np.abs(down).max() < 1e-6

    np.testing.assert_allclose(model.posterior(sums).mean[:, 0], qualities(theta), atol=2e-4)


def test_what_is_learned_of_one_number_of_tries_is_known_of_others_and_of_other_models() -> None:
    """Of the first model one answer and a check of 4 were seen, of the other one answer. How well it checks was not what was expected."""
    model = curved()
    before, after = (model.posterior(model.added(model.empty(), outcomes(6_000, plans=plans))) for plans in ((0, 4), (0, 1, 4)))

    for plan, p, tries in ((2, 0.45, 16), (5, 0.7, 8)):
        truth = p + 0.8 * headroom(p, tries)[0]
        assert after.mean[plan, 0] == pytest.approx(truth, abs=0.025)
        assert abs(after.mean[plan, 0] - truth) < abs(before.mean[plan, 0] - truth)
        assert after.cov[plan, 0, 0] < before.cov[plan, 0, 0]
    assert after.mean[3, 0] == pytest.approx(before.mean[3, 0], abs=0.02)  # a vote is no check


def test_an_untried_plan_of_an_unknown_kind_is_as_doubtful_as_its_efficiency() -> None:
    """Everything is known of the model but what a check or a vote is worth."""
    model = curved()
    found = model.posterior(model.added(model.empty(), outcomes(200_000, plans=(0,))))

    for plan, kind in ((2, CHECK), (3, VOTE)):
        curve = CURVES[plan]
        assert curve is not None
        head, bend = headroom(0.45, curve.tries)
        slope = 1.0 + KINDS[kind] * bend
        # of the model: what its plain plan leaves open, its own level and the noise of its mean
        variance = 0.2 * (head**2 / 3.0 + 1 / 50.0 + slope**2 / 50.0)
        assert found.cov[plan, 0, 0] == pytest.approx(variance, rel=0.1)


@pytest.mark.parametrize("half_life", [None, 7 * DAY])
def test_curves_change_nothing_of_order_merging_and_taking_back(half_life: float | None) -> None:
    model, seen = curved(2, half_life), outcomes(200, 2)
    whole = model.added(model.empty(), seen)
    odd, even = (model.added(model.empty(), picked(seen, slice(start, None, 2))) for start in (0, 1))
    more = outcomes(60, 2, seed=1)
    back = Batch(more.plan, more.x, -more.count, -more.gain, more.weight, more.at)
    taken = model.added(model.added(whole, more), back)
    backwards = model.added(model.empty(), picked(seen, slice(None, None, -1)))

    for other in (model.merged(odd, even), model.merged(even, odd), backwards, taken):
        close(model.posterior(whole), model.posterior(other), 1e-8)


def test_a_better_model_is_never_the_worse_for_a_choice_that_harms() -> None:
    """A check that picks the worst of 64 answers of a weak model: nothing is left, however good the model is."""
    model = Ridge((0, 0), 1, mean=0.1, curves=(ONCE, Response(CHECK, 64, -1.0)))
    rng = np.random.default_rng(0)
    plan = rng.integers(0, 2, 10_000)
    x = np.column_stack([np.ones(10_000), rng.choice([-1.0, 1.0], 10_000)])
    gain = (rng.random(10_000) < np.where(plan == 0, 0.1 + 0.1 * x[:, 1], 0.0)).astype(float)

    found = model.posterior(model.added(model.empty(), Batch(plan, x, np.ones(10_000), gain, np.ones(10_000), np.ones(10_000))))

    assert found.mean[0] == pytest.approx([0.1, 0.1], abs=0.01)
    assert found.mean[1] == pytest.approx([0.0, 0.0], abs=0.01)
