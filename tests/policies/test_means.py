from __future__ import annotations

import math
import random

import numpy as np
import pytest

from policies.means import Means, estimates, folded, interval, nothing
from policies.values.outcome import Observation

PLANS = {"a": 0, "b": 1}
DAY = 86_400.0
NOW = 1_700_000_000.0


def seen(plan: str, quality: float | None, at: float = NOW, before: float | None = None, weight: float = 1.0) -> Observation:
    return Observation("d", plan, {}, quality, at, before, weight)


def same(one: Means, other: Means) -> bool:
    return one.landmark == other.landmark and all(
        np.allclose(getattr(one, name), getattr(other, name), rtol=1e-12, atol=1e-12) for name in ("number", "squares", "gained")
    )


def test_a_mean_is_shrunk_to_the_prior_by_its_strength() -> None:
    means = folded(nothing(2), [seen("a", q) for q in (1.0, 1.0, 0.0, 1.0)], PLANS, 1e9)

    a, b = estimates(means, NOW, 1e9, 0.5, 2.0)

    assert a.mean == pytest.approx((2 * 0.5 + 3) / (2 + 4), rel=1e-6)
    assert a.evidence == pytest.approx(4.0, rel=1e-6)
    assert (b.mean, b.evidence) == (0.5, 0.0)


def test_an_interval_is_that_of_a_beta() -> None:
    # Beta(12, 8): mean 0.6, variance 12 * 8 / (20^2 * 21)
    assert interval(0.6, 20.0) == pytest.approx((0.6 - 1.96 * math.sqrt(96 / 8_400), 0.6 + 1.96 * math.sqrt(96 / 8_400)))
    assert interval(0.5, 0.1) == (0.0, 1.0)


def test_old_observations_count_less_than_new_ones() -> None:
    old, new = seen("a", 0.0, NOW - 2 * DAY), seen("a", 1.0, NOW)

    (a, _) = estimates(folded(nothing(2), [old, new], PLANS, DAY), NOW, DAY, 0.5, 1e-9)

    assert a.mean == pytest.approx(1 / (1 + 0.25))
    assert a.evidence == pytest.approx(1.25)


def test_what_is_known_fades_with_time() -> None:
    means = folded(nothing(2), [seen("a", 1.0)] * 8, PLANS, DAY)

    assert estimates(means, NOW, DAY, 0.5, 2.0)[0].evidence == pytest.approx(8.0)
    assert estimates(means, NOW + 3 * DAY, DAY, 0.5, 2.0)[0].evidence == pytest.approx(1.0)
    assert estimates(means, NOW + 10_000 * DAY, DAY, 0.5, 2.0)[0].mean == 0.5


def test_labels_for_ten_like_them_are_no_ten_labels() -> None:
    means = folded(nothing(2), [seen("a", 1.0, weight=10.0), seen("a", 0.0, weight=1.0)], PLANS, 1e9)

    a = estimates(means, NOW, 1e9, 0.5, 1e-9)[0]

    assert a.mean == pytest.approx(10 / 11)
    assert a.evidence == pytest.approx(11**2 / 101, rel=1e-6)


def test_a_correction_is_as_if_it_had_been_so_at_once_and_a_retraction_as_if_it_had_never_been() -> None:
    others = [seen("a", 0.3, NOW - DAY), seen("b", 0.9, NOW + DAY)]
    corrected = folded(nothing(2), [seen("a", 0.2), *others, seen("a", 0.7, before=0.2)], PLANS, DAY)
    retracted = folded(corrected, [seen("a", None, before=0.7)], PLANS, DAY)

    assert same(corrected, folded(nothing(2), [*others, seen("a", 0.7)], PLANS, DAY))
    assert same(retracted, folded(nothing(2), others, PLANS, DAY))
    alone = folded(folded(nothing(2), [seen("a", 0.3)], PLANS, DAY), [seen("a", None, before=0.3)], PLANS, DAY)
    assert estimates(alone, NOW, DAY, 0.5, 2.0)[0].mean == 0.5


def test_neither_order_nor_grouping_matters() -> None:
    observations = [seen("ab"[i % 2], (i * 7 % 10) / 10, NOW + i * DAY / 3, weight=1 + i % 3) for i in range(40)]
    at_once = folded(nothing(2), observations, PLANS, DAY)
    shuffled = random.Random(1).sample(observations, len(observations))
    one_by_one = nothing(2)
    for each in shuffled:
        one_by_one = folded(one_by_one, [each], PLANS, DAY)

    assert same(at_once, one_by_one)
    assert same(at_once, folded(folded(nothing(2), shuffled[:11], PLANS, DAY), shuffled[11:], PLANS, DAY))


def test_a_plan_that_is_gone_teaches_nothing() -> None:
    means = nothing(2)

    assert folded(means, [seen("z", 1.0)], PLANS, DAY) is means


def test_a_state_is_never_changed() -> None:
    before = folded(nothing(2), [seen("a", 1.0)], PLANS, DAY)
    copy = before.number.copy()
    folded(before, [seen("a", 1.0)], PLANS, DAY)

    assert (before.number == copy).all()
