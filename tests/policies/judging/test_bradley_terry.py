"""Strengths from games."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from policies.judging.bradley_terry import strengths

Floats = NDArray[np.float64]


def by_newton(won: Floats, ours: Floats, theirs: Floats) -> tuple[Floats, Floats]:
    """The maximum of the log-posterior by Newton's method with halved steps, and the inverse of minus its second derivatives."""

    def density(x: Floats) -> float:
        games = -(won * np.logaddexp(0.0, x[None, :] - x[:, None])).sum()
        return float(games - (ours * np.logaddexp(0.0, -x) + theirs * np.logaddexp(0.0, x)).sum())

    x = np.zeros(len(won))
    bend = np.eye(len(won))
    for _ in range(200):
        beats = 1.0 / (1.0 + np.exp(x[None, :] - x[:, None]))
        alone = 1.0 / (1.0 + np.exp(-x))
        slope = ours - (ours + theirs) * alone + (won * (1.0 - beats) - won.T * beats).sum(axis=1)
        spread = (won + won.T) * beats * (1.0 - beats)
        bend = np.diag(spread.sum(axis=1) + (ours + theirs) * alone * (1.0 - alone)) - spread
        step = np.linalg.solve(bend, slope)
        while density(x + step) < density(x) - 1e-9:
            step /= 2.0
        x = x + step
        if np.abs(step).max() < 1e-13:
            break
    return x, np.asarray(np.linalg.inv(bend), dtype=np.float64)


def season(seed: int, players: int, games: int, spread: float = 1.5) -> Floats:
    """Games between players drawn at random; some end in a tie."""
    random = np.random.default_rng(seed)
    true = random.normal(size=players) * spread
    won = np.zeros((players, players))
    for _ in range(games):
        i, j = random.choice(players, 2, replace=False)
        result = 0.5 if random.random() < 0.1 else float(random.random() < 1.0 / (1.0 + math.exp(true[j] - true[i])))
        won[i, j] += result
        won[j, i] += 1.0 - result
    return won


@pytest.mark.parametrize(
    ("players", "games", "spread"),
    [(2, 1, 1.0), (3, 40, 1.0), (8, 12, 1.5), (16, 32, 3.0), (30, 900, 1.5), (64, 192, 1.0), (64, 5_000, 2.0)],
)
def test_the_same_maximum_as_another_method_finds(players: int, games: int, spread: float) -> None:
    won = season(players * games, players, games, spread)
    found = strengths(won)
    logs, covariance = by_newton(won, np.ones(players), np.ones(players))
    assert found.converged
    assert found.logs == pytest.approx(logs, abs=1e-8)
    assert found.covariance == pytest.approx(covariance, abs=1e-8)


def test_the_same_with_a_prior_that_differs() -> None:
    won, random = season(5, 12, 60), np.random.default_rng(6)
    ours, theirs = random.uniform(0.2, 9.0, 12), random.uniform(0.2, 9.0, 12)
    found = strengths(won, ours.tolist(), theirs.tolist())
    logs, covariance = by_newton(won, ours, theirs)
    assert found.logs == pytest.approx(logs, abs=1e-8)
    assert found.covariance == pytest.approx(covariance, abs=1e-8)


def test_two_players_of_whom_one_won_all() -> None:
    """With w games won, p of the winner and 1/p of the loser: (p - 1)(p^2 + 1) = w (p + 1). So w = 5 gives p = 3."""
    found = strengths([[0, 5], [0, 0]])
    assert found.logs == pytest.approx((math.log(3), -math.log(3)), abs=1e-8)
    # Information: 2 * 3/4 * 1/4 of each alone, 5 * 9/10 * 1/10 between them.
    assert found.error(0, 1) == pytest.approx(math.sqrt(2 / (0.375 + 2 * 0.45)), abs=1e-8)
    assert found.error(0, 1) == found.error(1, 0)


def test_who_did_not_play_is_the_prior_s() -> None:
    """One against strength 1: p = a / b, and 1 / variance = a b / (a + b)."""
    found = strengths([[0.0]], [3.0], [1.5])
    assert found.logs == pytest.approx((math.log(2),), abs=1e-8)
    assert found.covariance[0, 0] == pytest.approx(1.0)
    assert strengths(np.zeros((3, 3))).logs == pytest.approx((0.0, 0.0, 0.0))


def test_a_tie_is_half_a_game_for_each() -> None:
    assert strengths([[0, 0.5], [0.5, 0]]).logs == pytest.approx((0.0, 0.0), abs=1e-9)
    tied, untied = strengths([[0, 1.5], [0.5, 0]]), strengths([[0, 1], [0, 0]])
    assert 0.0 < tied.logs[0] < untied.logs[0]


def test_the_undefeated_and_the_beaten_are_finite() -> None:
    order = [[float(i < j) for j in range(64)] for i in range(64)]
    found = strengths(order)
    assert all(map(math.isfinite, found.logs))
    assert list(found.logs) == sorted(found.logs, reverse=True)
    assert found.logs[0] == pytest.approx(-found.logs[-1], abs=1e-8)


def test_nothing_is_normalised() -> None:
    """Two strong players that also beat the prior's: the scale is theirs, and the mean of the logs is not 0."""
    assert strengths([[0, 1], [1, 0]], [4.0, 4.0], [1.0, 1.0]).logs == pytest.approx((math.log(4), math.log(4)), abs=1e-8)


def test_few_sweeps_are_enough_and_too_few_are_told() -> None:
    won = season(1, 30, 900)
    assert strengths(won).sweeps < 40
    cut = strengths(won, most_sweeps=2)
    assert (cut.sweeps, cut.converged) == (2, False)
    assert all(map(math.isfinite, cut.logs))


def test_nobody() -> None:
    assert strengths([]).logs == ()


@given(st.integers(0, 2**32), st.integers(2, 9), st.integers(0, 40), st.data())
def test_names_do_not_matter(seed: int, players: int, games: int, data: st.DataObject) -> None:
    won = season(seed, players, games)
    order = data.draw(st.permutations(range(players)))
    logs = strengths(won).logs
    assert strengths(won[np.ix_(order, order)]).logs == pytest.approx([logs[each] for each in order], abs=1e-8)


@pytest.mark.parametrize(
    ("wins", "ours", "theirs"),
    [
        ([[0, 1]], None, None),
        ([[0, -1], [0, 0]], None, None),
        ([[0, math.nan], [0, 0]], None, None),
        ([[1, 0], [0, 0]], None, None),
        ([[0, 1], [0, 0]], [1.0], None),
        ([[0, 1], [0, 0]], None, [1.0, 0.0]),
        ([[0, 1], [0, 0]], [1.0, math.inf], None),
    ],
)
def test_what_is_no_count(wins: list[list[float]], ours: list[float] | None, theirs: list[float] | None) -> None:
    with pytest.raises(ValueError):
        strengths(wins, ours, theirs)
