"""Plain characters."""

from __future__ import annotations

import pytest

from policies.answers.plain import normal, plain


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("**Paris**.", "Paris"),
        (r"\text{Paris}", "Paris"),
        (r"\textbf{\text{Paris}}", "Paris"),
        ("$x + 1$", "x + 1"),
        (r"\(x\)", "x"),
        (r"\left(1,\,2\right)", "(1, 2)"),
        ("5\u00b2", "5^2"),
        ("10\u207b\u00b3", "10^-3"),
        ("3\u00bd", "3 1/2"),
        ("\u22123", "-3"),
        ("\uff11\uff12", "12"),
        ("\ufb01ne", "fine"),
        (r"90^{\circ}", "90\u00b0"),
        (r"50\%", "50%"),
        ("$5", "USD 5"),
        (r"\$5", "USD 5"),
        ("$5$", "5"),
        ("-.5.", "-.5"),
        (".5", ".5"),
        ("...", ""),
        (" a \n b ", "a b"),
    ],
)
def test_form_goes_and_meaning_stays(text: str, bare: str) -> None:
    assert plain(text) == bare


def test_ascii_is_normal() -> None:
    assert normal("x^2 ~ `y`") == "x^2 ~ `y`"
