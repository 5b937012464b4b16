"""The share of faults among the last calls, beside a list of all of them."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pool.window import Window


@given(size=st.integers(1, 9), outcomes=st.lists(st.booleans(), max_size=60))
def test_it_is_what_the_last_calls_were(size: int, outcomes: list[bool]) -> None:
    window = Window(size)
    for count, fault in enumerate(outcomes, 1):
        window.add(fault)
        last = outcomes[:count][-size:]
        assert (window.calls, window.faults) == (len(last), sum(last))
        assert window.steady == (last == [False] * size)


@given(size=st.integers(1, 9), past=st.lists(st.booleans(), max_size=20), outcomes=st.lists(st.booleans(), max_size=20))
def test_one_that_was_cleared_is_as_a_new_one(size: int, past: list[bool], outcomes: list[bool]) -> None:
    cleared, new = Window(size), Window(size)
    for fault in past:
        cleared.add(fault)
    cleared.clear()
    for fault in outcomes:
        cleared.add(fault)
        new.add(fault)
        assert (cleared.calls, cleared.faults, cleared.steady) == (new.calls, new.faults, new.steady)


@given(size=st.integers(1, 5), outcomes=st.lists(st.booleans(), max_size=40))
def test_a_success_that_is_not_told_while_it_is_steady_makes_no_difference(size: int, outcomes: list[bool]) -> None:
    told, spared = Window(size), Window(size)
    for fault in outcomes:
        told.add(fault)
        if fault or not spared.steady:
            spared.add(fault)
        assert (told.calls, told.faults, told.steady) == (spared.calls, spared.faults, spared.steady)


@pytest.mark.parametrize(
    ("outcomes", "share", "least", "reached"),
    [
        ("x", 0.5, 2, False),
        (".x", 0.5, 2, True),
        ("..x", 0.5, 2, False),
        ("x" * 7 + "." * 18, 0.28, 10, True),  # 0.28 * 25 is a little more than 7 to a computer
        ("x" * 30, 1.0, 10, True),
        ("x" * 29 + ".", 1.0, 10, False),
        ("x" * 30, 1.0, 1_000, True),  # it holds no more than 30
        ("", 0.5, 0, True),
    ],
)
def test_whether_a_share_is_reached(outcomes: str, share: float, least: int, reached: bool) -> None:
    window = Window(30)
    for each in outcomes:
        window.add(each == "x")

    assert window.reaches(share, least) == reached


def test_it_takes_a_byte_per_call_that_it_holds() -> None:
    window = Window(10_000)
    before = sys.getsizeof(window._ring)
    for _ in range(100_000):
        window.add(True)

    assert sys.getsizeof(window._ring) == before < 10_100
