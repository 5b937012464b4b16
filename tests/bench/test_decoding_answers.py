"""Simulated answers, against the moments that their numbers say."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from policies.bench.answers import PROFILES, Answers, Profile, numbered, simulate

ALWAYS_WRONG = Profile(
    "", (1.0, 0.0, 0.0, 0.0), (1.0, 1.0), (1.0, 1.0), (0.25, math.log(2.0), 0.0, 0.0, 0.0), (0.0, 0.0), (3.0, 0, 0.5, 0, 0)
)


@pytest.mark.parametrize("name", PROFILES)
def test_as_many_are_right_as_the_mixture_says(name: str) -> None:
    profile = PROFILES[name]
    one, a, b = profile.weights[1], profile.weights[2], profile.weights[3]
    means = [first / (first + second) for first, second in (profile.first, profile.second)]
    expected = (one + a * means[0] + b * means[1]) / sum(profile.weights)
    made = simulate(profile, 4_000, 20, np.random.default_rng(3))
    assert made.right.mean() == pytest.approx(expected, abs=0.02)  # 3 standard errors: 0.5 / sqrt(4,000)
    assert made.keys.shape == made.tokens.shape == (4_000, 20)


def test_wrong_answers_agree_as_the_urn_says() -> None:
    """Two: with (1 - d) / (1 + theta); the third, when two agreed: with (2 - d) / (2 + theta)."""
    made = simulate(ALWAYS_WRONG, 40_000, 3, np.random.default_rng(1))
    two = made.keys[:, 0] == made.keys[:, 1]
    assert not made.right.any()
    assert two.mean() == pytest.approx(0.75 / 3, abs=0.01)
    assert (made.keys[two, 2] == 0).mean() == pytest.approx(1.75 / 4, abs=0.02)


def test_right_answers_have_other_spellings_and_are_never_a_wrong_one() -> None:
    profile = dataclasses.replace(ALWAYS_WRONG, weights=(0.0, 0.0, 1.0, 0.0))
    made = simulate(profile, 20_000, 3, np.random.default_rng(2))
    both = made.right[:, 0] & made.right[:, 1]
    assert (made.keys[both, 0] == made.keys[both, 1]).mean() == pytest.approx(0.5, abs=0.02)  # 1 / (1 + theta), theta = 1
    mixed = made.right[:, 0] != made.right[:, 1]
    assert (made.keys[mixed, 0] != made.keys[mixed, 1]).all()


def test_lengths() -> None:
    made = simulate(ALWAYS_WRONG, 10, 4, np.random.default_rng(1))
    assert made.tokens == pytest.approx(np.full((10, 4), math.exp(3.0)))
    right = simulate(dataclasses.replace(ALWAYS_WRONG, weights=(0.0, 1.0, 0.0, 0.0)), 10, 4, np.random.default_rng(1))
    assert right.tokens == pytest.approx(np.full((10, 4), math.exp(3.5)))


def test_answers_are_numbered_as_they_appear() -> None:
    assert numbered(np.array([[7, 3, 7, -5, 9], [2, 2, 2, 2, 1]])).tolist() == [[0, 1, 0, -1, 2], [0, 0, 0, 0, 1]]


def test_a_shuffle_keeps_samples_whole_and_padding_last() -> None:
    keys, sizes = np.array([[0, 1, 2, -1], [0, 0, 1, 2]]), np.array([3, 4])
    given = Answers(keys, keys == 1, np.where(keys >= 0, keys + 10.0, 0.0), sizes)
    made = given.shuffled(np.random.default_rng(4))
    assert sorted(made.keys[0, :3].tolist()) == [0, 1, 2]
    assert made.keys[0, 3] == -1
    assert (made.right == (made.keys == 1)).all()
    assert (made.tokens == np.where(made.keys >= 0, made.keys + 10.0, 0.0)).all()
