"""Thresholds learnt under a limit: by hand, and on simulated requests."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from policies.pricing.thresholds import Search, Seen

HALVES = (0.0, 0.5, 1.0)


def seen(score: float, escalated: bool = False, worth: float | None = None, price: float = 1.0, at: float = 0.0) -> Seen:
    return Seen(score, price, escalated, worth, at)


def test_nothing_is_escalated_before_anything_is_known() -> None:
    search = Search(0.5)
    state = search.begin()
    assert search.choose(state) == 0.0
    assert search.costs(state)[0] == 0.0 and np.isinf(search.costs(state)[1:]).all()


def test_what_a_threshold_costs() -> None:
    """1,000 requests, of which 200 have scores below 0.5: share 0.2, variance 0.16 x 1000/999; l = ln(2 x 3 / 0.05) = 4.7875."""
    search = Search(0.5, grid=HALVES)
    state = search.fold(search.begin(), [seen(0.1)] * 200 + [seen(0.5)] * 700 + [seen(1.0)] * 100)
    expected = 0.2 + math.sqrt(2 * 0.16 * 4.7874917 / 999) + 7 * 4.7874917 / (3 * 999)
    assert search.costs(state)[1] == pytest.approx(expected)
    assert search.costs(state)[2] > 0.9  # a certain answer is escalated by none


def test_prices_count_by_what_they_are() -> None:
    """0 and 4: their variance is 4."""
    search = Search(0.5, most=4.0, grid=HALVES)
    state = search.fold(search.begin(), [seen(0.1, price=4.0), seen(0.1, price=0.0)] * 500)
    expected = 2.0 + math.sqrt(2 * 4.0 * 4.7874917 / 999) + 7 * 4.0 * 4.7874917 / (3 * 999)
    assert search.costs(state)[1] == pytest.approx(expected)


def test_what_a_threshold_is_worth() -> None:
    """Below 0.5: 4 in 10 requests, escalated, right half the time; above: 6 in 10, kept, right 3 in 4 times. Each mean may be off by
    sqrt(4.7875 / 2n). What was never tried may always be right."""
    search = Search(1.0, grid=HALVES)
    below = [seen(0.2, True, float(n % 2)) for n in range(400)]
    above = [seen(0.7, False, float(n % 4 > 0)) for n in range(600)]
    worths = search.worths(search.fold(search.begin(), below + above))
    escalated, kept = 0.5 + math.sqrt(4.7874917 / 800), 0.75 + math.sqrt(4.7874917 / 1_200)
    assert list(worths) == pytest.approx([0.4 + 0.6 * kept, 0.4 * escalated + 0.6 * kept, 0.4 * escalated + 0.6])


def test_of_equals_the_least() -> None:
    """All scores are 1: no threshold escalates anything."""
    search = Search(1.0)
    assert search.choose(search.fold(search.begin(), [seen(1.0)] * 100)) == 0.0


def test_outcomes_that_nobody_told_of_count_for_the_cost_alone() -> None:
    search = Search(0.5, grid=HALVES)
    state = search.fold(search.begin(), [seen(0.1)] * 100)
    assert search.costs(state)[1] < math.inf
    assert list(search.worths(state)) == [1.0, 1.0, 1.0]


def test_the_order_does_not_matter_and_replicas_add() -> None:
    chance = Random(3)
    search = Search(0.3, half_life_s=60.0)
    requests = [
        seen(chance.random(), chance.random() < 0.5, chance.choice((None, 0.0, 1.0)), chance.random(), at=chance.uniform(0, 1_000))
        for _ in range(300)
    ]
    whole = search.fold(search.begin(), requests)
    one_by_one = search.begin()
    for each in reversed(requests):
        one_by_one = search.fold(one_by_one, [each])
    two = search.added(search.fold(search.begin(), requests[:100]), search.fold(search.begin(), requests[100:]))
    for other in (one_by_one, two):
        assert other.landmark == whole.landmark
        assert np.allclose(other.sums, whole.sums, rtol=1e-9, atol=1e-12)
    assert search.fold(whole, []) is whole


def test_what_is_old_is_forgotten_evidence_too() -> None:
    """After ten half-lives 1,000 requests weigh one: too little to be sure of anything."""
    search = Search(0.5, half_life_s=60.0, grid=HALVES)
    before = search.fold(search.begin(), [seen(0.9)] * 1_000)
    assert search.costs(before)[1] < 0.05
    after = search.fold(before, [seen(0.1, at=600.0)] * 10)
    assert search.costs(after)[1] > 0.9


def test_a_burst_counts_as_many_as_it_is() -> None:
    """Weights within a half-life grow up to twice; what is known does not."""
    forgetting, not_ = Search(0.5, half_life_s=60.0, grid=HALVES), Search(0.5, grid=HALVES)
    burst = [seen(0.1, at=59.0), seen(0.9, at=59.0)] * 100
    assert forgetting.costs(forgetting.fold(forgetting.begin(), burst))[1] == pytest.approx(not_.costs(not_.fold(not_.begin(), burst))[1])


@pytest.mark.parametrize(
    "bad",
    [
        lambda: Search(-1.0),
        lambda: Search(0.5, most=0.0),
        lambda: Search(0.5, confidence=1.0),
        lambda: Search(0.5, grid=(0.0,)),
        lambda: Search(0.5, grid=(0.1, 0.5)),
        lambda: Search(0.5, grid=(0.0, 0.5, 0.5)),
        lambda: Search(0.5).fold(Search(0.5).begin(), [seen(1.1)]),
        lambda: Search(0.5).fold(Search(0.5).begin(), [seen(0.1, price=1.5)]),
        lambda: Search(0.5).fold(Search(0.5).begin(), [seen(0.1, worth=math.nan)]),
    ],
)
def test_what_cannot_be(bad: Callable[[], object]) -> None:
    with pytest.raises(ValueError):
        bad()


def _simulated(search: Search, strong: float, seed: int, batches: int = 200, of: int = 100) -> tuple[list[float], list[float]]:
    """Scores are uniform; the cheap answer is right with the chance that the score says, the strong one with a constant. Thresholds and
    shares of escalations, batch by batch."""
    chance, state = Random(seed), search.begin()
    thresholds, shares = [], []
    for _ in range(batches):
        threshold = search.choose(state)
        batch = []
        for _ in range(of):
            score = chance.random()
            escalated = score < threshold
            batch.append(seen(score, escalated, float(chance.random() < (strong if escalated else score))))
        state = search.fold(state, batch)
        thresholds.append(threshold)
        shares.append(sum(each.escalated for each in batch) / of)
    return thresholds, shares


@pytest.mark.parametrize("seed", range(3))
def test_the_limit_is_kept_and_the_best_threshold_within_it_is_found(seed: int) -> None:
    """Escalating pays up to scores of 0.8, but a third of the requests is all that may be: 0.30 is the last of the grid that does."""
    thresholds, shares = _simulated(Search(0.33), 0.8, seed)
    assert max(thresholds) <= 0.3
    assert all(math.fsum(shares[:n]) / n <= 0.33 for n in range(20, len(shares) + 1))
    assert thresholds[-50:] == [0.3] * 50


@pytest.mark.parametrize("seed", range(3))
def test_where_the_limit_does_not_bind_it_goes_no_further_than_pays(seed: int) -> None:
    """The strong model is right half the time, so from scores of 0.5 on the cheap one is better."""
    thresholds, _ = _simulated(Search(0.95), 0.5, seed, batches=400)
    last = thresholds[-100:]
    assert abs(math.fsum(last) / len(last) - 0.5) <= 0.08
    lost = [abs(each - 0.5) ** 2 / 2 for each in last]  # the integral of |score - 0.5| between the two
    assert math.fsum(lost) / len(lost) < 0.01
