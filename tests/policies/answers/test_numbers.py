"""Numbers, as exact rationals."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.answers.numbers import number
from policies.answers.plain import plain


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", "7"),
        ("+7", "7"),
        ("-7", "-7"),
        ("\u22127", "-7"),
        ("0.5", "1/2"),
        (".50", "1/2"),
        ("12.", "12"),
        ("1,234.5", "2469/2"),
        ("1,234,567", "1234567"),
        ("1 234", "1234"),
        ("1\u00a0234\u00a0567", "1234567"),
        ("1\u202f234", "1234"),
        ("1.234,5", "2469/2"),
        ("-3/4", "-3/4"),
        ("3 1/2", "7/2"),
        ("3\u00bd", "7/2"),
        ("\u00bd", "1/2"),
        (r"\frac{1}{2}", "1/2"),
        (r"\dfrac{1}{2}", "1/2"),
        (r"\tfrac12", "1/2"),
        (r"\frac{-3}{4}", "-3/4"),
        (r"-\frac{3}{4}", "-3/4"),
        (r"3\frac{1}{2}", "7/2"),
        ("1e3", "1000"),
        ("1.5E-3", "3/2000"),
        (r"1.5 \times 10^{-3}", "3/2000"),
        ("2 x 10^3", "2000"),
        ("2\u00d710\u00b3", "2000"),
        ("25%", "1/4"),
        (r"25\%", "1/4"),
        ("25 percent", "1/4"),
        ("$5", "5"),
        ("$1,234", "1234"),
        ("-$5.50", "-11/2"),
        ("5 EUR", "5"),
        ("\u20ac1,234", "1234"),
        ("35 cm", "35"),
        ("35cm", "35"),
        (r"35\text{ cm}^2", "35"),
        ("5 m/s", "5"),
        ("5 km/h", "5"),
        ("90\u00b0", "90"),
        (r"90^\circ", "90"),
        ("20 \u00b0C", "20"),
        ("90 degrees", "90"),
        ("18 apples", "18"),
        ("18 apples left", "18"),
        ("3 million", "3000000"),
        ("3 times", "3"),
        ("\u0661\u0662", "12"),
    ],
)
def test_spellings(text: str, value: str) -> None:
    read = number(plain(text))
    assert read is not None
    assert (read.value, read.doubtful) == (Fraction(value), False)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "x",
            "-",
            ".",
            "2x",
            r"2\pi",
            "2 pi",
            "5!",
            "5\u00b2",
            "1/0",
            r"\frac{1}{0}",
            "1,5",
            "1,23",
            "0,123",
            "1.2.3",
            "12:30",
            "3-4",
        ),
        *("1 2", "3 and 4", "7 pm", "44 BC", "5 or more", "5 times x", "1. First", "1e9999", "--3", "v2", "3D", "5 + 2", "1,2345"),
        "9" * 401,
    ],
)
def test_what_is_no_number(text: str) -> None:
    assert number(plain(text)) is None


def test_a_comma_that_may_be_either() -> None:
    read = number("1,234")
    assert read is not None
    assert read.doubtful
    assert (read.value, read.otherwise) == (Fraction(1234), Fraction(617, 500))


@given(st.fractions())
def test_every_fraction_is_read_back(value: Fraction) -> None:
    read = number(str(value))
    assert read is not None
    assert read.value == value


@given(st.integers(min_value=-(10**15), max_value=10**15), st.integers(min_value=0, max_value=99))
def test_every_price_is_read_back(units: int, cents: int) -> None:
    sign = "-" if units < 0 else ""
    read = number(plain(f"{sign}${abs(units):,}.{cents:02}"))
    assert read is not None
    assert read.value == (-1 if units < 0 else 1) * (abs(units) + Fraction(cents, 100))


@given(st.text(alphabet="0123456789.,/ -+e%$x^{}\\frac", max_size=30))
def test_any_text_is_read_or_not(text: str) -> None:
    number(text)
