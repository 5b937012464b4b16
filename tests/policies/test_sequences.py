from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from policies.offpolicy.sequences import BETS, LINES, Betting, Gaussian, Importance, Moments, radius, share_evidence
from policies.states import arrays, restored

RUNS, LENGTH, ALPHA = 400, 2_000, 0.05
# Looked at after so many observations; a sequence that fails does so early or near these.
LOOKS = (*range(1, 20), *(int(20 * 1.15**k) for k in range(33)), LENGTH)
# 20 wrong runs are allowed on average; 34 or more have probability 0.2 % at that
MOST = 33


def failures(runs: Callable[[np.random.Generator], Callable[[int], tuple[float, float, float]]]) -> int:
    """How many of the runs are wrong at any look. runs: of a generator, what says truth, low and high after n observations."""
    wrong = 0
    for seed in range(RUNS):
        at = runs(np.random.default_rng(seed))
        wrong += any(not low - 1e-9 <= truth <= high + 1e-9 for truth, low, high in map(at, LOOKS))
    return wrong


@pytest.mark.parametrize("law", ["coin", "rare", "graded"])
def test_betting_covers_at_all_times(law: str) -> None:
    def run(rng: np.random.Generator) -> Callable[[int], tuple[float, float, float]]:
        x = {"coin": rng.random(LENGTH) < 0.7, "rare": rng.random(LENGTH) < 0.03, "graded": rng.beta(4, 2, LENGTH)}[law].astype(float)
        truth = {"coin": 0.7, "rare": 0.03, "graded": 2 / 3}[law]
        # The two one-sided tests at the truth are what decides whether it is inside, and quicker than the ends.
        level = math.log(2 / ALPHA)

        def at(n: int) -> tuple[float, float, float]:
            state = Betting.empty().update(x[:n])
            return (truth, 0.0, 1.0) if max(state.above(truth), state.below(truth)) < level else (truth, 1.0, 0.0)

        return at

    assert failures(run) <= MOST


def test_importance_weighted_rewards_are_covered_at_all_times() -> None:
    def run(rng: np.random.Generator) -> Callable[[int], tuple[float, float, float]]:
        taken = rng.random(LENGTH) < 0.1
        weights = np.where(taken, 9.1, 0.1)  # the target takes with 0.91 what the log took with 0.1; 0.09 / 0.9
        rewards = (rng.random(LENGTH) < np.where(taken, 0.8, 0.3)).astype(float)
        truth, level = 0.91 * 0.8 + 0.09 * 0.3, math.log(2 / ALPHA)

        def at(n: int) -> tuple[float, float, float]:
            state = Importance.empty().update(weights[:n], rewards[:n])
            return (truth, 0.0, 1.0) if max(state.above(truth), state.below(truth)) < level else (truth, 1.0, 0.0)

        return at

    assert failures(run) <= MOST


@pytest.mark.parametrize("kind", [Moments(scale=0.5), Gaussian()])
def test_the_running_average_is_covered_while_it_drifts(kind: Moments | Gaussian) -> None:
    def run(rng: np.random.Generator) -> Callable[[int], tuple[float, float, float]]:
        p = 0.5 + 0.4 * np.sin(np.arange(LENGTH) / 300)
        x, truths = (rng.random(LENGTH) < p) - 0.5, np.cumsum(p - 0.5) / np.arange(1, LENGTH + 1)

        def at(n: int) -> tuple[float, float, float]:
            return float(truths[n - 1]), *kind.update(x[:n]).interval(ALPHA)

        return at

    assert failures(run) <= MOST


@pytest.mark.parametrize("kind", [Betting.empty(), Moments(scale=1.0), Gaussian()])
def test_widths_shrink_as_they_should(kind: Betting | Moments | Gaussian) -> None:
    x = (np.random.default_rng(0).random(40_000) < 0.7).astype(float)

    widths = [high - low for low, high in (kind.update(x[:n]).interval(0.05) for n in (100, 1_000, 10_000, 40_000))]

    assert widths == sorted(widths, reverse=True)
    # At 10,000 an interval for that n alone has 0.018.
    assert 0.018 < widths[2] < (0.08 if isinstance(kind, Moments) else 0.036)
    assert widths[3] < 0.6 * widths[2]


def test_betting_on_one_success_by_hand() -> None:
    theta = float(np.mean(BETS))
    low, high = Betting.empty().update([1.0]).interval(0.05)

    # 1 + theta (1 / m - 1) = 2 / 0.05; the other bet, 1 - theta at m = 1 - 1, never wins
    assert low == pytest.approx(theta / (39 + theta))
    assert high == 1.0


def test_betting_on_two_coins_by_hand() -> None:
    state = Betting.empty().update([1.0, 0.0])

    m = 0.2
    assert state.above(m) == pytest.approx(math.log(sum((1 + b * 4) * (1 - b) for b in BETS) / len(BETS)))
    assert state.below(m) == pytest.approx(math.log(sum((1 - b) * (1 + b * (1 / 0.8 - 1)) for b in BETS) / len(BETS)))


def test_betting_within_other_ends() -> None:
    x = np.random.default_rng(1).random(500)

    low, high = Betting.empty().update(x).interval(0.05)

    assert Betting.empty(-1.0, 3.0).update(4 * x - 1).interval(0.05) == pytest.approx((4 * low - 1, 4 * high - 1))
    differences = Betting.empty(-1.0, 1.0).update(x - 0.3)
    assert differences.above(0.0) == pytest.approx(Betting.empty().update((x + 0.7) / 2).above(0.5))


def test_the_grid_costs_almost_nothing_and_never_overstates() -> None:
    x = np.random.default_rng(2).beta(3, 2, 300)
    exact = [float(np.log1p(b * (x / 0.5 - 1)).sum()) for b in BETS]
    capital = math.log(np.mean(np.exp(exact)))

    assert capital - 0.02 < Betting.empty().update(x).above(0.5) <= capital + 1e-9


def test_a_mean_difference_that_is_not_positive_is_rarely_called_so_and_one_that_is_is_found() -> None:
    rng = np.random.default_rng(3)
    called = [0, 0]
    for _ in range(200):
        for which, gain in enumerate((0.0, 0.1)):
            x = (rng.random(LENGTH) < 0.5 + gain).astype(float) - (rng.random(LENGTH) < 0.5)
            called[which] += any(Betting.empty(-1.0, 1.0).update(x[:n]).above(0.0) >= math.log(1 / ALPHA) for n in LOOKS)

    assert called[0] <= 19  # 10 on average at most; 20 or more have probability 0.3 %
    assert called[1] >= 195


def test_radius_and_moments_by_hand() -> None:
    state = Moments(scale=0.5).update([0.5, -0.25, 0.25])

    assert (state.n, state.total, state.squares) == (3, 0.5, 0.375)
    variance = 0.375 / 0.25
    reach = 0.5 * min((math.log(2 * 14 / 0.1) + (-math.log(1 - 2.0**-j) - 2.0**-j) * variance) * 2.0**j for j in range(1, 15))
    assert radius(0.375, 0.1, 0.5) == pytest.approx(reach)
    assert len(LINES) == 14
    assert state.interval(0.1) == (-0.5, 0.5)  # three say nothing yet
    long = Moments(1000.0, 100.0, 250.0, 0.5)
    assert long.interval(0.1) == pytest.approx((0.1 - radius(250.0, 0.1, 0.5) / 1000, 0.1 + radius(250.0, 0.1, 0.5) / 1000))


def test_the_normal_mixture_by_hand() -> None:
    low, high = Gaussian(sigma=1.0, rho=4.0).update([1.0, 2.0]).interval(0.05)

    # 2 + 4 = 6: sqrt(6 log(6 / (4 * 0.0025))) = sqrt(6 log 600)
    assert (low, high) == pytest.approx(((3 - math.sqrt(6 * math.log(600))) / 2, (3 + math.sqrt(6 * math.log(600))) / 2))


def test_nothing_is_known_before_anything_is() -> None:
    assert Betting.empty().interval(0.05) == (0.0, 1.0)
    assert Importance.empty().interval(0.05) == (0.0, 1.0)
    assert Moments(scale=0.5).interval(0.05) == (-0.5, 0.5)
    assert Gaussian().interval(0.05) == (-math.inf, math.inf)
    assert share_evidence(0, 0, 0.1) == pytest.approx(0.0)
    assert Betting.empty().above(0.5) == 0.0


@pytest.mark.parametrize("kind", [Betting.empty(), Moments(), Gaussian()])
def test_order_and_batches_do_not_matter_and_observations_are_taken_back(kind: Betting | Moments | Gaussian) -> None:
    x = np.random.default_rng(5).random(400)
    whole = kind.update(x).interval(0.05)

    assert kind.update(x[250:]).update(x[:250][::-1]).interval(0.05) == pytest.approx(whole, abs=1e-9)
    assert kind.update(x).update([0.1, 0.9]).update([0.9, 0.1], -1.0).interval(0.05) == pytest.approx(whole, abs=1e-9)
    assert restored(kind, arrays(kind.update(x))).interval(0.05) == whole


@pytest.mark.parametrize("kind", ["betting", "importance"])
def test_the_ends_are_where_the_tests_at_them_are_just_not_lost(kind: str) -> None:
    rng = np.random.default_rng(9)
    weights, rewards = rng.choice([0.0, 2.0], 600), rng.random(600)
    state = Betting.empty().update(rewards) if kind == "betting" else Importance.empty().update(weights, rewards)

    low, high = state.interval(0.05)

    assert low < 0.5 < high
    assert (state.above(low), state.below(high)) == pytest.approx((math.log(40), math.log(40)), abs=1e-6)


def test_importance_is_taken_back_and_a_weight_beyond_the_grid_counts_as_the_last() -> None:
    rng = np.random.default_rng(6)
    weights, rewards = rng.choice([0.0, 2.0], 400), rng.random(400)
    state = Importance.empty().update(weights, rewards)

    assert state.update([3.0], [0.5]).update([3.0], [0.5], -1.0).interval(0.05) == pytest.approx(state.interval(0.05), abs=1e-9)
    assert state.update([1e9], [1.0]).above(0.5) == state.update([2.0**18], [1.0]).above(0.5) > state.above(0.5)


def test_on_its_own_log_importance_is_betting() -> None:
    rewards = (np.random.default_rng(7).random(1_000) < 0.6).astype(float)

    assert Importance.empty().update(np.ones(1_000), rewards).interval(0.05) == pytest.approx(
        Betting.empty().update(rewards).interval(0.05), abs=1e-6
    )


@pytest.mark.parametrize(
    "update",
    [
        lambda: Betting.empty().update([1.1]),
        lambda: Betting.empty().update([float("nan")]),
        lambda: Moments(scale=0.5).update([0.6]),
        lambda: Importance.empty().update([1.0], [1.5]),
        lambda: Importance.empty().update([-1.0], [0.5]),
    ],
)
def test_what_is_out_of_range_is_refused(update: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"range|within"):
        update()


def test_evidence_on_a_share_by_hand() -> None:
    # Beta(5, 5): after a hit and a miss (5 / 10) (5 / 11), against 1/4
    assert share_evidence(1, 2, 0.5) == pytest.approx(math.log(25 / 110 * 4))
    assert share_evidence(2, 2, 0.5) == pytest.approx(math.log(30 / 110 * 4))


def test_a_share_that_is_right_is_rarely_doubted_and_one_that_is_wrong_is() -> None:
    rng = np.random.default_rng(8)

    def doubted(truth: float) -> int:
        runs = 0
        for _ in range(RUNS):
            hits = np.cumsum(rng.random(LENGTH) < truth)
            runs += any(share_evidence(float(hits[n - 1]), n, 0.1) >= math.log(1 / ALPHA) for n in LOOKS)
        return runs

    assert doubted(0.1) <= MOST
    assert doubted(0.14) >= 390
