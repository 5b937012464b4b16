"""Rules that stop a vote, against chances counted by hand and votes played out one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from math import comb

import pytest

from policies.pricing.stopping import Fixed, Priced, Stop, Threshold, Votes, Window, ahead, look_ahead, settled


def votes_of(answers: Sequence[str], tokens: float = 0.0) -> Votes:
    """`-` is an answer that cannot be read."""
    ranked = [count for _, count in Counter(answer for answer in answers if answer != "-").most_common()] + [0, 0]
    last = answers[-1] if answers else "-"
    run = 0 if last == "-" else next((n for n, answer in enumerate(reversed(answers)) if answer != last), len(answers))
    return Votes(ranked[0], ranked[1], len(answers), tokens * len(answers), run)


def rounds(rule: Stop, answers: str) -> list[int]:
    """How many answers a rule draws, round by round, when they come in this order."""
    found: list[int] = []
    while more := rule.more(votes_of(answers[: sum(found)])):
        found.append(more)
    return found


def beta_above_half(first: int, second: int) -> Fraction:
    """The integral of the density from 1/2 to 1, term by term."""
    terms = (Fraction(comb(second, k) * (-1) ** k, first + k + 1) * (1 - Fraction(1, 2) ** (first + k + 1)) for k in range(second + 1))
    return sum(terms, Fraction(0)) * (first + second + 1) * comb(first + second, first)


@pytest.mark.parametrize(
    ("first", "second", "chance"), [(3, 1, 26 / 32), (4, 0, 31 / 32), (5, 1, 120 / 128), (4, 2, 99 / 128), (2, 2, 0.5)]
)
def test_who_is_ahead_by_hand(first: int, second: int, chance: float) -> None:
    """3 to 1: a fair coin shows at most one head in five throws 1 + 5 times of 32."""
    assert ahead(first, second) == pytest.approx(chance, rel=1e-15)
    assert ahead(second, first) == pytest.approx(1.0 - chance, rel=1e-15)


def test_who_is_ahead_is_the_integral_of_the_beta_density() -> None:
    for first in range(15):
        for second in range(15):
            assert ahead(first, second) == pytest.approx(float(beta_above_half(first, second)), rel=1e-12)
    assert ahead(900, 700) == pytest.approx(float(beta_above_half(900, 700)), rel=1e-12)


def gain(first: int, second: int, h: int) -> Fraction:
    """E max(P', 1 - P') after h further votes for one of the two, each drawn by what is known then."""
    if h == 0:
        return max(beta_above_half(first, second), beta_above_half(second, first))
    leader = Fraction(first + 1, first + second + 2)
    return leader * gain(first + 1, second, h - 1) + (1 - leader) * gain(first, second + 1, h - 1)


@pytest.mark.parametrize("votes", [(1, 0), (1, 1), (2, 0), (3, 1), (3, 3), (5, 2), (9, 8), (6, 0)])
def test_the_look_ahead_is_the_best_of_all_votes_played_out(votes: tuple[int, int]) -> None:
    now = beta_above_half(*votes)
    worth = max((gain(*votes, h) - now) / h for h in range(1, 9))
    assert look_ahead(*votes) == pytest.approx(float(worth), rel=1e-9, abs=1e-15)


def test_the_look_ahead_by_hand() -> None:
    """1 to 0: two votes for the other, (1/3)(2/4), make 1 to 2, where P' = 5/16: 1/6 x 6/16 in two votes. 8 to 0: out of sight."""
    assert look_ahead(1, 0) == pytest.approx(1 / 32)
    assert look_ahead(1, 0, reach=1) == 0.0
    assert look_ahead(8, 0) == 0.0


def test_a_vote_is_settled_when_the_runner_up_cannot_catch_up() -> None:
    assert settled(Votes(11, 0, 11), 20)
    assert not settled(Votes(10, 0, 10), 20)
    assert settled(Votes(6, 2, 17), 20)
    assert not settled(Votes(5, 2, 17), 20)


@pytest.mark.parametrize(
    ("answers", "drawn"),
    [
        ("aaaa", [4]),
        ("aaabaa", [4, 2]),
        ("aabbaaaa", [4, 2, 2]),
        ("abcd" * 5, [4] + [2] * 8),
        ("----aa------aaaaaaaa", [4, 2, 2, 2, 2, 2]),
    ],
)
def test_the_default_draws_four_then_two(answers: str, drawn: list[int]) -> None:
    """3 to 1 has 0.81, 5 to 1 0.94, 4 to 2 0.77, 6 to 2 0.91, 2 to 0 0.875, 4 to 0 0.97."""
    assert rounds(Threshold(), answers) == drawn


def test_a_rule_stops_when_settled_whatever_confidence_it_wants() -> None:
    assert sum(rounds(Threshold(confidence=1.0, first=1, then=1), "a" * 20)) == 11
    assert sum(rounds(Priced(price=0.0, first=1, then=1, reach=20), "a" * 20)) == 11
    assert sum(rounds(Window(size=30, cap=20), "ab" * 10)) == 20


def test_no_rule_draws_more_than_its_cap() -> None:
    for rule in (Threshold(cap=7), Priced(price=0.0, cap=7), Window(cap=7), Fixed(7), Threshold(first=9, cap=7)):
        assert sum(rounds(rule, "abcdefg")) == 7


def test_a_window_has_to_agree() -> None:
    assert rounds(Window(), "aaab" + "bbbb") == [4, 4]
    assert rounds(Window(size=3), "aaa") == [3]
    assert rounds(Window(), "aabb" + "bbaa" + "aaaa") == [4, 4, 4]
    assert rounds(Window(size=2), "----aa") == [2, 2, 2]


def test_what_is_missing_of_a_round_is_drawn_again() -> None:
    assert Threshold().more(Votes(1, 0, 3)) == 1
    assert Window().more(Votes(3, 0, 5, run=1)) == 3
    assert Fixed(5).more(Votes(2, 1, 4)) == 1


def test_the_price_decides() -> None:
    """3 to 1 is worth 0.00703 a vote, 1 to 1 of 4 answers 0.1875 / 2."""
    assert look_ahead(3, 1) == pytest.approx(0.00703125)
    assert Priced(0.007).more(Votes(3, 1, 4)) == 4
    assert Priced(0.0071).more(Votes(3, 1, 4)) == 0
    assert Priced(0.093).more(Votes(1, 1, 4)) == 4
    assert Priced(0.094).more(Votes(1, 1, 4)) == 0


def test_longer_answers_cost_more() -> None:
    rule = Priced(0.007, tokens=100.0)
    assert rule.more(Votes(3, 1, 4, tokens=400.0)) == 4
    assert rule.more(Votes(3, 1, 4, tokens=480.0)) == 0
    assert rule.index(Votes(3, 1, 4, tokens=200.0)) == pytest.approx(2 * 0.00703125)


def test_while_nobody_has_a_vote_any_price_is_paid() -> None:
    assert Priced(0.9).more(Votes(0, 0, 6)) == 4
    assert Threshold(0.6).more(Votes(0, 0, 6)) == 2
