"""When a call is hedged, and how many are."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pool.hedging import Hedging, size_of

SIZE = size_of(100, None, streams=True)


def learned(hedging: Hedging, *waits: float, size: tuple[bool, int, int] = SIZE) -> float | None:
    """After how long a call of that size may be hedged, once these waits are known."""
    for wait_s in waits:
        hedging.waited(size, wait_s)
    return hedging.begin(size)


# -- after how long


def test_few_waits_tell_nothing() -> None:
    hedging = Hedging(share=0.1)
    assert learned(hedging, *[1.0] * 63) is None
    assert learned(hedging, 1.0) == 1.0


@pytest.mark.parametrize(("quantile", "delay_s"), [(0.5, 50.0), (0.95, 95.0), (0.99, 99.0), (0.501, 51.0)])
def test_the_quantile_of_the_waits(quantile: float, delay_s: float) -> None:
    """Of 1 to 100, in whatever order: the smallest that at least this share of all do not exceed. Worked out anew after the 64th and then
    each 16th wait: at the 112th there are 12 more that say nothing new."""
    waits = [float(1 + (37 * number) % 100) for number in range(100)]
    hedging = Hedging(share=0.1, quantile=quantile)
    assert learned(hedging, *waits) is not None
    middle = math.ceil(quantile * 112) - 1
    assert learned(hedging, *[delay_s] * 12) == sorted([*waits, *[delay_s] * 12])[middle] == delay_s


@given(waits=st.lists(st.floats(0.0, 1_000.0), min_size=64, max_size=64), quantile=st.floats(0.5, 0.999))
def test_no_more_than_so_many_have_waited_longer(waits: list[float], quantile: float) -> None:
    delay_s = learned(Hedging(share=0.1, quantile=quantile, least_s=1e-9), *waits)
    assert delay_s is not None
    assert sum(wait_s > delay_s for wait_s in waits) <= (1.0 - quantile) * 64
    assert delay_s in waits or delay_s == 1e-9


def test_never_sooner_than_so_many_seconds() -> None:
    assert learned(Hedging(share=0.1, least_s=0.2), *[0.01] * 64) == 0.2
    assert learned(Hedging(share=0.1, least_s=0.2), *[0.3] * 64) == 0.3


def test_what_is_long_past_is_forgotten() -> None:
    hedging = Hedging(share=0.1)
    assert learned(hedging, *[9.0] * 300) == 9.0
    assert learned(hedging, *[2.0] * 256) == 2.0


def test_sizes_are_apart() -> None:
    """Streams from whole answers, each power of two of prompt bytes, and for whole answers of what may be sampled."""
    hedging = Hedging(share=0.1)
    assert learned(hedging, *[1.0] * 64, size=size_of(100, None, streams=True)) == 1.0
    for size in (size_of(200, None, streams=True), size_of(100, None, streams=False), size_of(100, 100, streams=False)):
        assert hedging.begin(size) is None
    assert hedging.begin(size_of(127, 5, streams=True)) == 1.0


@given(prompt=st.integers(0, 10**9), most=st.none() | st.floats(0, 1e300) | st.integers(-10, 2**70), streams=st.booleans())
def test_every_call_has_a_size(prompt: int, most: float | None, streams: bool) -> None:
    size = size_of(prompt, most, streams=streams)
    assert size == size_of(prompt, None if streams else most, streams=streams)
    assert size != size_of(2 * prompt + 1, most, streams=streams)


def test_no_more_sizes_are_remembered_than_64() -> None:
    """The one that is used least of late goes first."""
    hedging = Hedging(share=0.1)
    sizes = [size_of(1 << number, None, streams=streams) for number in range(40) for streams in (False, True)]
    for size in sizes[:64]:
        assert learned(hedging, *[1.0] * 64, size=size) == 1.0
    hedging.waited(sizes[0], 1.0)
    for size in sizes[64:70]:
        hedging.waited(size, 1.0)
    assert [hedging.begin(size) is None for size in sizes[:8]] == [False, *[True] * 6, False]


# -- how many


@given(share=st.floats(0.001, 1.0), calls=st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=300))
def test_no_more_than_the_share_of_the_calls(share: float, calls: list[tuple[bool, int]]) -> None:
    """Whoever asks for a hedge when, and how often."""
    hedging = Hedging(share=share)
    begun = hedges = 0
    for begins, asks in calls:
        if begins:
            hedging.begin(SIZE)
            begun += 1
        for _ in range(asks):
            hedges += hedging.spend()
            assert hedges <= share * begun + 1e-6


@pytest.mark.parametrize("share", [0.01, 0.05, 0.1, 0.25, 0.3, 1.0])
def test_when_all_want_one_the_share_is_used_up(share: float) -> None:
    hedging = Hedging(share=share)
    hedges = 0
    for _ in range(1_000):
        hedging.begin(SIZE)
        hedges += hedging.spend()
    assert share * 1_000 - 1 <= hedges <= share * 1_000


def test_a_pause_of_all_replicas_is_not_answered_by_a_wave() -> None:
    """However many calls went well before."""
    hedging = Hedging(share=0.5)
    for _ in range(10_000):
        hedging.begin(SIZE)
    assert [hedging.spend() for _ in range(6)] == [True] * 4 + [False] * 2
