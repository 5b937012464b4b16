"""What the decoding suite computes with: votes, pass counts, scores, the bootstrap; each against another way to work it out."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from policies.bench import bootstrap, passes, scores, scoring, voting
from policies.bench.answers import Answers
from policies.pricing.hazard import Prior
from policies.pricing.optscale import FirstGood
from policies.pricing.stopping import Fixed, Threshold


def answers(*rows: str, right: str = "a", tokens: float = 10.0) -> Answers:
    """A question a row, an answer a letter; `-` cannot be read, a space is none."""
    keys = np.array([["abcdef".find(letter) for letter in row] for row in rows])
    sizes = np.array([len(row.rstrip()) for row in rows])
    there = np.arange(keys.shape[1]) < sizes[:, None]
    return Answers(keys, (keys == "abcdef".index(right)) & there, np.where(there, tokens, 0.0), sizes)


def test_votes_in_their_course() -> None:
    seen = voting.course(answers("abba-", "cc   "))
    assert seen.first.tolist() == [[0, 1, 1, 2, 2, 2], [0, 1, 2, 2, 2, 2]]
    assert seen.second.tolist() == [[0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 0, 0]]
    assert seen.run.tolist() == [[0, 1, 1, 2, 1, 0], [0, 1, 2, 2, 2, 2]]
    assert seen.right.tolist() == [[0.0, 1.0, 0.5, 0.0, 0.5, 0.5], [0.0] * 6]
    assert seen.tokens.tolist() == [[0.0, 10.0, 20.0, 30.0, 40.0, 50.0], [0.0, 10.0, 20.0, 20.0, 20.0, 20.0]]
    assert seen.sizes.tolist() == [5, 2]


def test_a_rule_stops_where_it_says_and_where_answers_end() -> None:
    samples, rounds = voting.stops(voting.course(answers("aaaaaaaa", "aaabaaaa", "aab     ")), Threshold())
    assert samples.tolist() == [4, 6, 3]
    assert rounds.tolist() == [1, 2, 1]


def test_a_replay_is_the_mean_over_orders() -> None:
    one, two = voting.course(answers("ab")), voting.course(answers("ba"))
    replayed = voting.replay([one, two], Fixed(1))
    assert (replayed.right.tolist(), replayed.tokens.tolist(), replayed.waits.tolist()) == ([0.5], [10.0], [[1.0], [1.0]])


def test_one_price_spends_on_who_disagrees_and_never_more_than_there_is() -> None:
    seen = voting.course(answers("aaaaaaaaaa", "abababaaaa", "abcdefabcd", "aaaaaaaaab"))
    for budget in (40.0, 90.0, 120.0, 170.0):
        samples = voting.priced(seen, budget, 10.0)
        assert samples.min() >= 1
        assert 10 * samples.sum() <= budget
    spent = voting.priced(seen, 240.0, 10.0)
    assert spent[1] > spent[0]
    assert spent[2] > spent[0]
    assert voting.priced(seen, 1e9, 10.0)[1] > 8


def all_orders(n: int, c: int, cap: int) -> tuple[float, float]:
    """Calls and solved with a stop at the first pass, over all orders of n samples of which c pass."""
    calls = solved = total = 0
    for order in itertools.permutations([True] * c + [False] * (n - c)):
        tries = order.index(True) + 1 if c else n + 1
        calls, solved, total = calls + min(tries, cap), solved + (tries <= cap), total + 1
    return calls / total, solved / total


def test_the_frontier_is_the_mean_over_all_orders() -> None:
    found = passes.counts([(6, 0), (6, 1), (6, 3)])
    line = passes.frontier(found)
    for cap in range(1, 7):
        each = [all_orders(6, c, cap) for c in (0, 1, 3)]
        assert line.calls[cap] == pytest.approx(sum(calls for calls, _ in each) / 3)
        assert line.solved[cap] == pytest.approx(sum(solved for _, solved in each) / 3)
        assert passes.pass_at(found, cap) == pytest.approx(sum(solved for _, solved in each) / 3)
        assert line.fixed[cap] == cap
        spent, solved = passes.within(found, cap)
        assert list(zip(spent.tolist(), solved.tolist(), strict=True)) == [pytest.approx(one) for one in each]
    assert (line.solvable, line.uniform) == (pytest.approx(2 / 3), 6.0)
    assert line.cap(0.5) == next(cap for cap in range(1, 7) if line.solved[cap] >= 1 / 3 - 1e-12)
    calls, solved = passes.oracle(found)
    assert calls.tolist() == pytest.approx([0.0, 7 / 4 / 3, (7 / 4 + 7 / 2) / 3])  # (n + 1) / (c + 1)
    assert solved.tolist() == pytest.approx([0.0, 1 / 3, 2 / 3])
    assert passes.calls_interval(found).value == pytest.approx(line.calls_share(line.cap()))


def test_problems_with_fewer_samples_end_there() -> None:
    line = passes.frontier(passes.counts([(2, 0), (4, 1)]))
    assert line.calls.tolist() == pytest.approx([0.0, 1.0, 1.0 + (1 + 0.75) / 2 - 0.0, 1.875 + 0.5 / 2, 2.125 + 0.25 / 2])
    assert line.uniform == 3.0
    assert passes.pass_at(passes.counts([(2, 0), (4, 1)]), 3) is None


def test_the_published_counts() -> None:
    found = passes.published()
    assert {name: (len(each.samples), int((each.passes > 0).sum()), set(each.samples.tolist())) for name, each in found.items()} == {
        "humaneval": (164, 121, {100}),
        "game24_cot": (100, 49, {100}),
        "game24_direct": (100, 33, {100}),
    }


@pytest.mark.parametrize("family", scores.FAMILIES)
def test_scores_reach_a_level_as_often_as_they_say(family: str) -> None:
    made = scores.FAMILIES[family](400, 400, np.random.default_rng(2))
    assert made.values.min() >= 0.0
    assert made.values.max() <= 1.0
    for level in (0.5, 0.85, 0.95):
        assert np.abs((made.values >= level).mean(axis=1) - made.above(level)).mean() < 0.025
        assert (made.values >= level).mean() == pytest.approx(made.above(level).mean(), abs=0.005)


def test_nothing_cancels_where_the_mean_lies_outside() -> None:
    grid = (np.arange(200_000) + 0.5) / 200_000
    for mean, spread in ((-1.0, 0.1), (-0.5, 0.2), (0.5, 0.1), (2.0, 0.15)):
        density = np.exp(-((grid - mean) ** 2) / (2 * spread**2) + min(mean**2, (1 - mean) ** 2, key=abs) / (2 * spread**2))
        expected = density[grid < 0.2].sum() / density.sum()
        assert scores.below(np.array([mean]), np.array([spread]), 0.2)[0] == pytest.approx(expected, rel=1e-3)


def test_a_normal_is_found_again() -> None:
    made = scores._truncated(np.array([[0.7], [0.3]]), np.array([[0.1], [0.2]]), (2, 3_000), np.random.default_rng(1))
    mean, spread = scores.mle(made)
    assert mean.tolist() == pytest.approx([0.7, 0.3], abs=0.02)
    assert spread.tolist() == pytest.approx([0.1, 0.2], abs=0.02)


def test_no_normal_of_a_grid_is_more_likely() -> None:
    values = np.array([[0.5, 0.62, 0.71], [0.9, 0.97, 0.99], [0.2, 0.25, 0.7]])

    def likelihood(mean: float, spread: float, row: np.ndarray) -> float:
        mass = 0.5 * (math.erf((1 - mean) / (spread * 2**0.5)) + math.erf(mean / (spread * 2**0.5)))
        return float(-((row - mean) ** 2).sum() / (2 * spread**2) - 3 * math.log(spread * mass))

    for mean, spread, row in zip(*scores.mle(values), values, strict=True):
        best = max(likelihood(m, s, row) for m in np.linspace(0.05, 1.0, 60) for s in np.geomspace(0.02, 2.0, 60))
        assert likelihood(mean, spread, row) >= best - 1e-3


def test_n_star_of_many() -> None:
    below = np.array([0.5, 0.9, 0.0, 1.0])
    assert scores.needed(below, 0.9, 64).tolist() == [4, 22, 1, 64]


def test_rules_on_scores() -> None:
    values = np.array([[0.1, 0.9, 0.3, 0.2], [0.1, 0.2, 0.3, 0.4], [0.9, 0.1, 0.1, 0.1]])
    ours = scoring.by_rule(values, FirstGood(0.8, Prior(1.0, 1.0), cap=3))
    assert (ours.samples.tolist(), ours.reached.tolist(), ours.rounds.tolist()) == ([2, 3, 1], [True, False, True], [2, 3, 1])
    at_once = scoring.at_once(values, np.array([1, 4, 2]), 0.8)
    assert at_once.reached.tolist() == [False, False, True]
    until = scoring.until(values, np.array([4, 4, 4]), 0.8)
    assert (until.samples.tolist(), until.reached.tolist()) == ([2, 4, 1], [True, False, True])


def test_the_bootstrap() -> None:
    values = np.random.default_rng(1).random(400)
    found = bootstrap.mean(values)
    half = 1.96 * values.std() / 20.0
    assert found.value == pytest.approx(values.mean())
    assert found.high - found.value == pytest.approx(half, rel=0.15)
    assert found.value - found.low == pytest.approx(half, rel=0.15)
    same = bootstrap.mean(np.full(50, 3.0))
    assert (same.low, same.high) == (pytest.approx(3.0), pytest.approx(3.0))
    ratio = bootstrap.ratio(2.0 * values, values)
    assert (ratio.value, ratio.low, ratio.high) == (pytest.approx(2.0), pytest.approx(2.0), pytest.approx(2.0))
    other = np.random.default_rng(2).random(400)
    spread = bootstrap.ratio(other, values)
    deviation = (other - spread.value * values).std() / values.mean() / 20.0
    assert spread.high - spread.low == pytest.approx(2 * 1.96 * deviation, rel=0.15)
