"""A minute that slides, whatever the steps it is counted in."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from gateway.access.meters import STEP_S, Minute, Running

# Seconds between two uses; most often less than a step, now and then more than a minute.
pauses = st.one_of(st.floats(0, 0.5), st.floats(0, 10), st.sampled_from((0.0, 0.1, 0.2, 29.9, 59.7, 59.8, 59.9, 60.0)))
uses = st.lists(st.tuples(pauses, st.integers(1, 6)), max_size=120)


@given(uses=uses, most=st.integers(1, 10), start=st.floats(0, 1e6))
def test_no_60_seconds_hold_more_than_the_limit_and_nobody_waits_a_step_too_long(
    uses: list[tuple[float, int]], most: int, start: float
) -> None:
    minute, now = Minute(), start
    taken: list[tuple[float, int]] = []
    for pause, amount in uses:
        now += pause
        within = sum(each for at, each in taken if at > now - 60)
        within_more = sum(each for at, each in taken if at > now - 60 - 2 * STEP_S)
        fits = minute.used(now) + amount <= most
        assert within <= minute.used(now) <= within_more
        assert fits == (minute.wait_s(amount, most, now) == 0)
        if fits:
            assert within + amount <= most
            minute.add(amount, now)
            taken.append((now, amount))


@given(uses=uses, most=st.integers(1, 10), amount=st.integers(1, 12), start=st.floats(0, 1e6))
def test_after_the_wait_there_is_enough_and_not_before(uses: list[tuple[float, int]], most: int, amount: int, start: float) -> None:
    minute, now = Minute(), start
    for pause, used in uses:
        now += pause
        if minute.used(now) + used <= most:
            minute.add(used, now)
    wait_s = minute.wait_s(amount, most, now)
    if amount > most:
        assert wait_s == math.inf
    elif wait_s > 0:
        assert wait_s <= 60 + STEP_S
        assert minute.used(now + wait_s - 1e-3) + amount > most
        assert minute.used(now + wait_s + 1e-3) + amount <= most


def test_it_is_empty_after_the_reset_and_not_before() -> None:
    minute = Minute()
    assert minute.reset_s(10.0) == 0
    minute.add(1, 10.0)
    minute.add(1, 30.1)

    reset_s = minute.reset_s(40.0)
    assert reset_s == 30.25 + 60 - 40  # the end of the step in which the last was used, and a minute
    assert minute.used(40.0 + reset_s - 1e-6) == 1
    assert minute.used(40.0 + reset_s) == 0
    assert minute.idle(40.0 + reset_s)


def test_what_is_given_back_is_free_at_once_but_only_once() -> None:
    minute = Minute()
    step = minute.add(7, 0.0)
    minute.give_back(step, 3)
    assert minute.used(1.0) == 4
    assert minute.used(61.0) == 0
    minute.give_back(step, 4)  # it counts no more, so nothing comes back
    assert minute.used(61.0) == 0
    assert minute.wait_s(5, 5, 61.0) == 0


def test_memory_does_not_grow_with_use() -> None:
    minute = Minute()
    for n in range(100_000):
        minute.add(1, n / 1e3)
        minute.used(n / 1e3)
    assert len(minute._steps) <= 241
    assert minute.used(100.0) <= 60_250


def test_what_runs_is_counted_until_it_is_given_back() -> None:
    running = Running()
    first = running.add(1, 0.0)
    running.add(1, 0.0)
    assert (running.used(1e9), running.wait_s(1, 2, 0.0) > 0, running.idle(0.0)) == (2, True, False)
    running.give_back(first, 1)
    assert (running.used(0.0), running.wait_s(1, 2, 0.0)) == (1, 0)
