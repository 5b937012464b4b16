"""Student's t, against printed tables."""

from __future__ import annotations

from statistics import NormalDist

import pytest

from policies.offpolicy.student import incomplete_beta, quantile, tail


@pytest.mark.parametrize(
    ("p", "df", "printed"),
    [
        (0.975, 1, 12.706),
        (0.975, 2, 4.303),
        (0.975, 5, 2.571),
        (0.975, 10, 2.228),
        (0.975, 30, 2.042),
        (0.975, 120, 1.980),
        (0.95, 3, 2.353),
        (0.995, 4, 4.604),
        (0.9995, 1, 636.619),
        (0.9, 60, 1.296),
    ],
)
def test_quantiles_are_those_of_the_tables(p: float, df: float, printed: float) -> None:
    assert quantile(p, df) == pytest.approx(printed, abs=6e-4)
    assert quantile(1 - p, df) == pytest.approx(-printed, abs=6e-4)


def test_two_degrees_of_freedom_have_a_closed_form() -> None:
    for p in (0.6, 0.8, 0.975, 0.999):
        a = 2 * p - 1
        assert quantile(p, 2) == pytest.approx(a * (2 / (1 - a * a)) ** 0.5, rel=1e-9)


def test_a_broken_number_of_degrees_lies_between_its_neighbours() -> None:
    assert quantile(0.975, 4) < quantile(0.975, 3.5) < quantile(0.975, 3)
    assert tail(quantile(0.975, 0.7), 0.7) == pytest.approx(0.025, rel=1e-9)


def test_with_many_degrees_it_is_normal() -> None:
    assert quantile(0.975, 1e9) == pytest.approx(NormalDist().inv_cdf(0.975), rel=1e-9)
    assert quantile(0.975, 1e6) == pytest.approx(NormalDist().inv_cdf(0.975), rel=1e-5)
    assert quantile(0.5, 3) == 0.0


def test_the_incomplete_beta_function_of_whole_numbers_is_binomial() -> None:
    # I_x(2, 3) = P(at least 2 of 4 successes).
    x = 0.3
    assert incomplete_beta(2, 3, x) == pytest.approx(6 * x**2 * (1 - x) ** 2 + 4 * x**3 * (1 - x) + x**4, rel=1e-12)
    assert (incomplete_beta(2, 3, 0.0), incomplete_beta(2, 3, 1.0)) == (0.0, 1.0)


@pytest.mark.parametrize(("p", "df"), [(0.0, 3), (1.0, 3), (0.5, 0.0)])
def test_what_has_no_quantile_is_said(p: float, df: float) -> None:
    with pytest.raises(ValueError, match="no quantile"):
        quantile(p, df)
