"""The slow check. A stand-in takes the place of math-verify, which is no dependency."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from policies.answers import algebra


class StandIn(ModuleType):
    """Reads texts of letters; equal by their letters in any order."""

    def __init__(self) -> None:
        super().__init__("math_verify")
        self.limits: list[int | None] = []

    def parse(self, text: str, parsing_timeout: int | None) -> list[str]:
        self.limits.append(parsing_timeout)
        if "?" in text:
            raise RecursionError
        return [] if "#" in text else ["".join(sorted(text))]

    def verify(self, gold: list[str], target: list[str], timeout_seconds: int | None) -> bool:
        self.limits.append(timeout_seconds)
        return gold == target


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn()
    monkeypatch.setitem(sys.modules, "math_verify", stand_in)
    return stand_in


def test_without_the_library_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "math_verify", None)
    assert algebra.equal("x+1", "1+x") == "unknown"


def test_verdicts(library: StandIn) -> None:
    assert algebra.equal("x+1", "1+x") == "equal"
    assert algebra.equal("x+1", "$1+x$") == "equal"
    assert algebra.equal("x+1", "x+2") == "different"
    assert algebra.equal("x+1", "#") == "unknown"
    assert algebra.equal("x+1", "?") == "unknown"


def test_the_limit_is_handed_on(library: StandIn) -> None:
    algebra.equal("x", "y", seconds=3)
    assert library.limits == [3, 3, 3]


@pytest.mark.parametrize(
    "text", ["", " ", "x" * 201, "100000!", "2^{9^{9}}", "2^9^9", "10^{1000}", r"\binom{90}{45}", r"\sum x", "1e1000", "9" * 40]
)
def test_what_may_take_for_ever_is_not_asked(library: StandIn, text: str) -> None:
    assert algebra.equal(text, "x") == algebra.equal("x", text) == "unknown"
    assert library.limits == []
