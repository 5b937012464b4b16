"""Off-policy estimates, against sums by hand and against all logs that there can be."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from policies.offpolicy.estimators import (
    Sample,
    codes,
    differences,
    direct,
    dr,
    effective,
    estimates,
    gain,
    ips,
    snips,
    spread,
    switch_dr,
)
from policies.offpolicy.student import quantile


def small() -> Sample:
    """4 rows, 2 plans, logged with (0.8, 0.2), the target takes plan 1 except in the last row."""
    return Sample(
        chosen=np.array([0, 1, 1, 0]),
        propensities=np.array([0.8, 0.2, 0.2, 0.8]),
        logging=np.array([[0.8, 0.2]] * 4),
        target=np.array([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]),
        rewards=np.array([1.0, 0.5, 1.0, 0.0]),
        labelling=np.ones(4),
        predicted=np.array([[0.5, 0.6]] * 4),
        units=np.arange(4),
    )


def many(n: int = 400, seed: int = 1, per_unit: int = 1) -> Sample:
    """Plan 1 is better: 0.7 against 0.4. Logged evenly; the target takes plan 1."""
    generator = np.random.default_rng(seed)
    chosen = generator.integers(2, size=n)
    return Sample(
        chosen=chosen,
        propensities=np.full(n, 0.5),
        logging=np.full((n, 2), 0.5),
        target=np.tile([0.0, 1.0], (n, 1)),
        rewards=(generator.random(n) < np.where(chosen == 1, 0.7, 0.4)).astype(np.float64),
        labelling=np.ones(n),
        predicted=np.tile([0.45, 0.6], (n, 1)),
        units=np.arange(n) // per_unit,
    )


def test_the_values_are_those_of_the_formulas_by_hand() -> None:
    # w = 0, 5, 5, 1.25
    sample = small()
    assert direct(sample).value == pytest.approx((0.6 + 0.6 + 0.6 + 0.5) / 4)
    assert ips(sample).value == pytest.approx((5 * 0.5 + 5 * 1.0) / 4)
    assert ips(sample, clip=2.0).value == pytest.approx((2 * 0.5 + 2 * 1.0) / 4)
    assert snips(sample).value == pytest.approx((5 * 0.5 + 5 * 1.0) / 11.25)
    assert dr(sample).value == pytest.approx((2.3 + 5 * (0.5 - 0.6) + 5 * (1.0 - 0.6) + 1.25 * (0 - 0.5)) / 4)
    assert switch_dr(sample, threshold=2.0).value == pytest.approx((2.3 + 1.25 * (0 - 0.5)) / 4)
    assert dr(sample).ess == pytest.approx(11.25**2 / (25 + 25 + 1.25**2))


def test_the_gain_is_paired_row_by_row() -> None:
    terms, corrections = differences(small())
    # own: 0.8 * 0.5 + 0.2 * 0.6 = 0.52; w - 1 = -1, 4, 4, 0.25
    assert terms == pytest.approx([0.08 - 0.5, 0.08 + 4 * -0.1, 0.08 + 4 * 0.4, -0.02 + 0.25 * -0.5])
    assert corrections == pytest.approx([-0.5, -0.4, 1.6, -0.125])
    sample = many()
    log_dr = dr(replace(sample, target=sample.logging)).value
    target_dr = dr(sample).value
    assert log_dr is not None and target_dr is not None
    assert gain(sample).value == pytest.approx(target_dr - log_dr)


def test_a_policy_gains_nothing_over_itself() -> None:
    sample = many()
    same = gain(replace(sample, target=sample.logging))
    assert (same.value, same.low, same.high) == (0.0, 0.0, 0.0)


def test_a_label_counts_for_those_that_were_not_made() -> None:
    sample = replace(small(), rewards=np.array([np.nan, 0.5, 1.0, np.nan]), labelling=np.array([0.5, 0.5, 0.25, 0.5]))
    # v = 0, 2, 4, 0
    assert ips(sample).value == pytest.approx((2 * 5 * 0.5 + 4 * 5 * 1.0) / 4)
    assert snips(sample).value == pytest.approx((2 * 5 * 0.5 + 4 * 5 * 1.0) / (2 * 5 + 4 * 5))
    assert dr(sample).value == pytest.approx((2.3 + 2 * 5 * -0.1 + 4 * 5 * 0.4) / 4)
    assert dr(sample).labels == 2


@pytest.mark.parametrize("labelled", [1.0, 0.5])
def test_over_all_logs_that_there_can_be_the_mean_is_the_truth(labelled: float) -> None:
    """2 contexts, 2 plans, 2 rows: every context, choice, reward and labelling with its probability. The reward model is wrong."""
    logging = {0: (0.9, 0.1), 1: (0.3, 0.7)}
    target = {0: (0.2, 0.8), 1: (1.0, 0.0)}
    success = {(0, 0): 0.3, (0, 1): 0.9, (1, 0): 0.6, (1, 1): 0.1}
    truth = sum(0.5 * target[x][a] * success[x, a] for x in (0, 1) for a in (0, 1))
    own = sum(0.5 * logging[x][a] * success[x, a] for x in (0, 1) for a in (0, 1))
    labels = ((True, labelled), (False, 1 - labelled)) if labelled < 1 else ((True, 1.0),)
    rows = [
        (x, a, float(r) if told else np.nan, 0.5 * logging[x][a] * (success[x, a] if r else 1 - success[x, a]) * p)
        for x, a, r, (told, p) in product((0, 1), (0, 1), (0, 1), labels)
    ]
    means = {"ips": 0.0, "dr": 0.0, "gain": 0.0}
    total = 0.0
    for one, other in product(rows, rows):
        probability = one[3] * other[3]
        contexts = [one[0], other[0]]
        sample = Sample(
            chosen=np.array([one[1], other[1]]),
            propensities=np.array([logging[one[0]][one[1]], logging[other[0]][other[1]]]),
            logging=np.array([logging[x] for x in contexts]),
            target=np.array([target[x] for x in contexts]),
            rewards=np.array([one[2], other[2]]),
            labelling=np.full(2, labelled),
            predicted=np.array([[0.8, 0.1]] * 2),
            units=np.arange(2),
        )
        total += probability
        means["gain"] += probability * float(differences(sample)[0].mean())
        if np.isnan(sample.rewards).all():
            # Nothing is known: IPS sums to 0, DR to its reward model.
            means["dr"] += probability * float((sample.target * sample.predicted).sum(axis=1).mean())
            continue
        for name, estimator in (("ips", ips), ("dr", dr)):
            value = estimator(sample).value
            assert value is not None
            means[name] += probability * value
    assert total == pytest.approx(1.0)
    assert means == pytest.approx({"ips": truth, "dr": truth, "gain": truth - own}, abs=1e-12)


def test_the_interval_is_t_with_the_degrees_of_the_largest_corrections() -> None:
    terms = np.array([0.2, 0.4, 0.9, 0.5])
    corrections = np.array([0.0, 1.0, 2.0, 0.0])
    se, df = spread(terms, corrections, np.arange(4))
    assert se == pytest.approx(np.std(terms, ddof=1) / 2)
    assert df == pytest.approx((1 + 4) ** 2 / (1 + 16))
    sample = many()
    made = dr(sample)
    assert made.value is not None and made.low is not None and made.high is not None and made.df is not None and made.se is not None
    assert made.high - made.value == pytest.approx(quantile(0.975, made.df) * made.se)
    assert made.low < 0.7 < made.high


def test_rows_of_one_session_do_not_count_as_many() -> None:
    """Each row 4 times over: the value stays, and so does the interval, if they are known to belong together."""
    sample = many(100)
    copies = {
        name: np.repeat(getattr(sample, name), 4, axis=0)
        for name in ("chosen", "propensities", "logging", "target", "rewards", "labelling", "predicted", "units")
    }
    together = dr(Sample(**copies))
    apart = dr(Sample(**{**copies, "units": np.arange(400)}))
    once = dr(sample)
    assert together.value == pytest.approx(once.value)
    assert (together.se, together.df, together.ess) == pytest.approx((once.se, once.df, once.ess))
    assert apart.se is not None and once.se is not None and apart.se < 0.6 * once.se
    assert (together.units, together.rows) == (100, 400)


def test_sessions_are_told_apart_and_rows_without_one_stand_alone() -> None:
    assert codes(["a", "", "b", "a", ""]).tolist() == [0, 1, 2, 0, 3]
    assert effective(np.array([1.0, 1.0, 2.0]), np.array([0, 0, 1])) == pytest.approx(16 / 8)


def test_without_support_there_is_no_value() -> None:
    sample = many()
    never = replace(sample, chosen=np.zeros(400, dtype=np.int64), propensities=np.ones(400), logging=np.tile([1.0, 0.0], (400, 1)))
    for made in (*estimates(never), gain(never)):
        assert made.value is None and made.low is None
        assert made.refused is not None and "no support: 100.0%" in made.refused
        assert made.uncovered == 1.0


def test_little_overlap_gets_a_value_without_an_interval() -> None:
    sample = many()
    rare = np.where(sample.chosen == 1, 0.01, 0.99)
    hardly = replace(sample, propensities=rare, chosen=np.where(np.arange(400) < 10, 1, 0))
    hardly = replace(hardly, propensities=np.where(hardly.chosen == 1, 0.01, 0.99), logging=np.tile([0.99, 0.01], (400, 1)))
    made = dr(hardly)
    assert made.ess == pytest.approx(10.0)
    assert made.value is not None and (made.low, made.high, made.half_width) == (None, None, None)
    assert made.refused is not None and "effective sample size is 10.0" in made.refused


def test_few_labels_are_too_few() -> None:
    sample = many()
    rewards = sample.rewards.copy()
    rewards[29:] = np.nan
    made = dr(replace(sample, rewards=rewards))
    assert made.low is None and made.refused is not None and "too few labels: 29 of 400" in made.refused
    none = snips(replace(sample, rewards=np.full(400, np.nan)))
    assert none.value is None and none.refused is not None


def test_one_session_is_no_sample() -> None:
    made = dr(replace(many(), units=np.zeros(400, dtype=np.int64)))
    assert made.low is None and made.refused == "all rows belong to one unit"


def test_the_direct_method_has_no_interval() -> None:
    made = direct(many())
    assert made.value == pytest.approx(0.6) and made.low is None
    assert made.refused is not None and "no valid interval" in made.refused


def test_switch_keeps_the_corrections_that_cost_less_variance_than_they_save_bias() -> None:
    sample = many(2000)
    # All weights are 0 or 2: without the correction the bias could be 1, so it is kept.
    assert switch_dr(sample).value == dr(sample).value
    # One row in 400 has a weight of 1,000 on a choice that is 0.1 % of the target's: its correction is left out.
    odd = np.zeros(2000, dtype=np.int64)
    odd[::400] = 1
    wild = replace(
        sample,
        chosen=odd,
        propensities=np.where(odd == 1, 1e-6, 1 - 1e-6),
        logging=np.tile([1 - 1e-6, 1e-6], (2000, 1)),
        target=np.tile([0.999, 0.001], (2000, 1)),
    )
    switched, whole = switch_dr(wild), dr(wild)
    assert switched.value is not None and whole.value is not None
    assert abs(switched.value - whole.value) > 0.1
    assert 0.0 < switched.value < 1.0
