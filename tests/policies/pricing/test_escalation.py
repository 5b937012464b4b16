"""Escalation and its slow check, by hand."""

from __future__ import annotations

import math
from random import Random

import pytest

from policies.pricing.escalation import Escalation, SlowCheck, prism, unit_normal_loss, z_star


@pytest.mark.parametrize(
    ("false_alarm", "missed", "need", "threshold"),
    [(1, 1, 1, 0.5), (1, 3, 1, 0.25), (1, 3, 0.5, 0.4), (2, 1, 0, 1.0), (0, 1, 1, 0.0), (0, 0, 1, 1.0)],
)
def test_prism(false_alarm: float, missed: float, need: float, threshold: float) -> None:
    """1 / (1 + 3) = 0.25; 1 / (1 + 0.5 x 3) = 0.4."""
    assert prism(false_alarm, missed, need) == pytest.approx(threshold)


def test_intervening_pays_from_the_threshold_on() -> None:
    for need in (0.2, 0.7):
        accept = prism(1.5, 4.0, need)
        assert accept * need * 4.0 == pytest.approx((1 - accept) * 1.5)


@pytest.mark.parametrize(
    ("value", "price", "strong", "least"),
    [(1, 0.2, 0.8, 0.75), (10, 1, 1, 0.9), (1, 0, 0.5, 1.0), (1, 0.5, 0.5, 0.0), (1, 0.6, 0.5, 0.0), (1, 2, 1, 0.0), (1, 0.1, 0, 0.0)],
)
def test_a_cheap_answer_that_is_right_enough(value: float, price: float, strong: float, least: float) -> None:
    """(1 - right) 0.8 = 0.2 at right = 3/4. Who is right half the time is never worth more than half a right answer."""
    assert Escalation(value, price, strong).least == pytest.approx(least, abs=1e-12)


def test_escalating_is_worth_its_price_exactly_below_that() -> None:
    rule = Escalation(2.0, 0.3, 0.7)
    assert rule.worth(rule.least) == pytest.approx(0.0, abs=1e-12)
    assert rule.worth(rule.least - 0.01) == pytest.approx(0.014)
    assert rule.worth(rule.least + 0.01) == pytest.approx(-0.014)


@pytest.mark.parametrize(("ratio", "z"), [(0.02, 1.66), (0.05, 1.26), (0.1, 0.90), (0.2, 0.49), (0.3, 0.22)])
def test_z_star(ratio: float, z: float) -> None:
    assert z_star(ratio) == pytest.approx(z, abs=0.005)


@pytest.mark.parametrize("ratio", [1e-12, 1e-6, 0.001, 0.15, 0.39, 0.39894])
def test_z_star_solves_its_equation(ratio: float) -> None:
    z = z_star(ratio)
    assert z is not None and z >= 0
    assert unit_normal_loss(z) == pytest.approx(ratio, rel=1e-9)


def test_a_check_that_costs_nothing_and_one_that_costs_too_much() -> None:
    assert z_star(0.0) == math.inf
    assert z_star(0.399) is None and z_star(math.inf) is None


def test_what_a_check_is_worth_is_what_it_brings() -> None:
    """Acting on a chance p is worth 2 (p - 0.3), not acting 0; the check moves 0.25 by N(0, 0.1^2)."""
    chance = Random(7)
    after = [chance.gauss(0.25, 0.1) for _ in range(200_000)]
    gained = math.fsum(max(0.0, 2.0 * (p - 0.3)) for p in after) / len(after)
    assert SlowCheck(0.0, 0.1).worth(0.25, 0.3, 2.0) == pytest.approx(gained, abs=0.001)


def test_the_margin_is_where_the_check_is_worth_its_price() -> None:
    """c / (K s) = 0.02 / (2 x 0.1) = 0.1, so 0.9 s."""
    check = SlowCheck(0.02, 0.1)
    margin = check.margin(2.0)
    assert margin == pytest.approx(0.090, abs=0.0005)
    assert margin is not None and check.worth(0.5 + margin, 0.5, 2.0) == pytest.approx(0.02)
    assert check.pays(0.42, 0.5, 2.0) and check.pays(0.58, 0.5, 2.0)
    assert not check.pays(0.4, 0.5, 2.0) and not check.pays(0.6, 0.5, 2.0)


@pytest.mark.parametrize(("check", "stake"), [(SlowCheck(0.01, 0.0), 1.0), (SlowCheck(0.01, 0.1), 0.0), (SlowCheck(0.08, 0.1), 2.0)])
def test_a_check_that_is_never_worth_it(check: SlowCheck, stake: float) -> None:
    """It moves nothing; nothing is at stake; 0.08 is more than 0.399 x 2 x 0.1."""
    assert check.margin(stake) is None
    assert not check.pays(0.5, 0.5, stake)
