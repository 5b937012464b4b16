"""How long a plan's answers are."""

from __future__ import annotations

import math
import random

import pytest

from models.output_length import HALF_LIFE, OutputLength

M, S = 5.0, 0.8


def lengths(count: int, seed: int = 1, m: float = M, s: float = S) -> list[int]:
    draws = random.Random(seed)
    return [max(1, round(draws.lognormvariate(m, s))) for _ in range(count)]


@pytest.fixture
def taught() -> OutputLength:
    length = OutputLength()
    for tokens in lengths(3_000):
        length.observe(tokens)
    return length


def test_the_mean_of_what_was_answered(taught: OutputLength) -> None:
    assert taught.count == 3_000
    assert taught.expected() == pytest.approx(math.exp(M + S**2 / 2), rel=0.12)


@pytest.mark.parametrize("cap", [10, 100, 200, 1_000, 100_000])
def test_of_what_a_cap_cuts_off(taught: OutputLength, cap: int) -> None:
    """Not the lesser of mean and cap: the mean of the lesser."""
    draws = lengths(50_000, 2)
    assert taught.expected(cap) == pytest.approx(sum(min(each, cap) for each in draws) / len(draws), rel=0.1)


def test_a_cap_is_never_passed_and_more_is_never_less(taught: OutputLength) -> None:
    found = [taught.expected(cap) for cap in range(1, 3_000, 7)]
    assert found == sorted(found)
    assert all(1 <= each <= cap for each, cap in zip(found, range(1, 3_000, 7), strict=True))
    assert found[-1] <= taught.expected()
    assert taught.expected(0) == taught.expected(1) == 1


def test_answers_that_were_cut_off_do_not_make_a_plan_terse() -> None:
    """Caps of 50 to 400, which cut off more than half: the mean of whole answers is known all the same."""
    length, draws = OutputLength(), random.Random(3)
    for tokens in lengths(3_000):
        cap = draws.choice((50, 100, 200, 400))
        length.observe(min(tokens, cap), cap)
    assert length.expected() == pytest.approx(math.exp(M + S**2 / 2), rel=0.2)


def test_a_cap_far_above_the_usual_is_believed() -> None:
    """An answer that ran on to a large cap is a long one, not an unknown one."""
    length = OutputLength()
    for _ in range(500):
        length.observe(10)
    length.observe(30_000, 30_000)
    assert 10 < length.expected() < 20


def test_before_the_first_answer_the_prior_and_soon_the_answers() -> None:
    length = OutputLength(300)
    assert length.expected() == pytest.approx(300)
    for _ in range(40):
        length.observe(50)
    assert length.expected() == pytest.approx(50, rel=0.35)
    for _ in range(400):
        length.observe(50)
    assert length.expected() == pytest.approx(50, rel=0.1)


def test_a_change_is_followed(taught: OutputLength) -> None:
    for tokens in lengths(int(5 * HALF_LIFE), 4, m=M - 2):
        taught.observe(tokens)
    assert taught.expected() == pytest.approx(math.exp(M - 2 + S**2 / 2), rel=0.3)


def test_one_endless_answer_is_one_answer(taught: OutputLength) -> None:
    before = taught.expected()
    taught.observe(10**9)
    assert taught.expected() < 1.5 * before


def test_no_answer_is_no_length(taught: OutputLength) -> None:
    before = taught.expected()
    taught.observe(0)
    taught.observe(-1)
    assert (taught.expected(), taught.count) == (before, 3_000)
