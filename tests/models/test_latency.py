"""How long a call would take: calls of a made-up engine, whose times follow the formula, teach it."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from models.latency import Latency


class Engine:
    """0.08 s to the first token, 0.25 ms for each prompt token that is not cached, 4 ms for each call beside it; 12 ms for each further
    token, 0.6 ms more for each call beside it. Noise: 15 %."""

    def __init__(self, seed: int = 1) -> None:
        self._draws = random.Random(seed)
        self.slower = 1.0

    def times(self, inflight: int, uncached: float, tokens: float) -> tuple[float, float]:
        """To the first token, and to the end."""
        first = self.slower * (0.08 + 0.00025 * uncached + 0.004 * inflight)
        return first, first + self.slower * (tokens - 1) * (0.012 + 0.0006 * inflight)

    def teach(self, latency: Latency, calls: int, *, streams: bool = True, most: int = 24) -> None:
        draws = self._draws
        for _ in range(calls):
            inflight, prompt = draws.randrange(most), int(draws.lognormvariate(6, 1)) + 1
            cached, tokens = draws.choice((0, prompt // 2)), int(draws.lognormvariate(5, 0.8)) + 1
            first, total = self.times(inflight, prompt - cached, tokens)
            first, rest = first * draws.lognormvariate(0, 0.15), (total - first) * draws.lognormvariate(0, 0.15)
            latency.observe(inflight, prompt, cached, first if streams else None, tokens, first + rest)


@pytest.fixture
def taught() -> Latency:
    latency = Latency()
    Engine().teach(latency, 3_000)
    return latency


PLACES = list(itertools.product((0, 4, 20), (50, 500, 4_000), (1, 50, 800)))


@pytest.mark.parametrize(("inflight", "uncached", "tokens"), PLACES)
def test_the_engine_s_times_are_found(taught: Latency, inflight: int, uncached: int, tokens: int) -> None:
    first, total = Engine().times(inflight, uncached, tokens)
    assert taught.first_token(inflight, 0, uncached + 100, 100) == pytest.approx(first, rel=0.12)
    assert taught.predict(inflight, 0, uncached + 100, 100, tokens) == pytest.approx(total, rel=0.12)


@pytest.mark.parametrize(("inflight", "uncached", "tokens"), [place for place in PLACES if place[2] > 1])
def test_of_calls_that_are_no_streams_the_whole_is_found(inflight: int, uncached: int, tokens: int) -> None:
    latency = Latency()
    Engine().teach(latency, 5_000, streams=False)
    _, total = Engine().times(inflight, uncached, tokens)
    assert latency.predict(inflight, 0, uncached, 0, tokens) == pytest.approx(total, rel=0.25)


def test_thirty_calls_are_enough_for_a_good_guess() -> None:
    latency = Latency()
    Engine().teach(latency, 30)
    assert latency.count == 30
    assert latency.predict(10, 0, 500, 0, 200) == pytest.approx(Engine().times(10, 500, 200)[1], rel=0.2)


def test_before_the_first_call_it_is_a_sane_guess() -> None:
    assert 0.1 < Latency().predict(0, 0, 500, 0, 100) < 10
    assert Latency().predict(0, 0, 500, 0, 100) < Latency().predict(50, 0, 500, 0, 100)


def test_an_engine_that_became_slower_is_believed() -> None:
    latency, engine = Latency(), Engine()
    engine.teach(latency, 1_000)
    engine.slower = 4.0
    engine.teach(latency, 120)
    assert latency.predict(10, 0, 500, 0, 200) == pytest.approx(engine.times(10, 500, 200)[1], rel=0.2)


def test_calls_that_are_sent_before_it_are_waited_for() -> None:
    """Eight run at once, each for 2 s: every quarter of a second one ends."""
    latency = Latency()
    for _ in range(500):
        latency.observe(7, 100, 0, 0.1, 100, 2.0)
    free = latency.predict(8, 0, 100, 0, 100)
    assert free == pytest.approx(2.0, rel=0.1)
    assert [latency.predict(8, waiting, 100, 0, 100) - free for waiting in (1, 2, 40)] == pytest.approx([0.25, 0.5, 10.0], rel=0.01)
    assert latency.first_token(8, 4, 100, 0) - latency.first_token(8, 0, 100, 0) == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("seed", range(5))
def test_more_never_looks_quicker(seed: int) -> None:
    """More load, a longer prompt, a longer answer, less of it cached: whatever it was taught."""
    latency, draws = Latency(), random.Random(seed)
    for _ in range(300):
        first = draws.expovariate(2)
        latency.observe(draws.randrange(30), draws.randrange(5_000), 0, first, draws.randrange(500), first + draws.expovariate(0.3))
        inflight, waiting, prompt, cached, tokens = (draws.randrange(most) for most in (30, 5, 5_000, 5_000, 500))
        here = latency.predict(inflight, waiting, prompt, cached, tokens)
        assert here >= 0
        assert latency.predict(inflight + 5, waiting, prompt, cached, tokens) >= here
        assert latency.predict(inflight, waiting + 1, prompt, cached, tokens) >= here
        assert latency.predict(inflight, waiting, prompt + 500, cached, tokens) >= here
        assert latency.predict(inflight, waiting, prompt, cached / 2, tokens) >= here
        assert latency.predict(inflight, waiting, prompt, cached, tokens + 50) >= here


def test_calls_that_hung_change_little(taught: Latency) -> None:
    before = taught.predict(10, 0, 500, 0, 200)
    for _ in range(5):
        taught.observe(10, 500, 0, 300.0, 200, 3_600.0)
        taught.observe(10, 500, 0, None, 200, 3_600.0)
    assert taught.predict(10, 0, 500, 0, 200) == pytest.approx(before, rel=0.35)


@pytest.mark.parametrize(
    ("first", "total"),
    [(0.1, math.nan), (math.nan, 1.0), (0.1, math.inf), (None, math.inf), (-0.1, 1.0), (None, -1.0), (2.0, 1.0), (math.inf, math.inf)],
)
def test_times_that_cannot_be_are_left_out(taught: Latency, first: float | None, total: float) -> None:
    before, count = taught.predict(10, 2, 500, 0, 200), taught.count
    taught.observe(10, 500, 0, first, 200, total)
    assert (taught.predict(10, 2, 500, 0, 200), taught.count) == (before, count)


def test_an_answer_of_one_token_or_none_tells_of_the_first_one_only() -> None:
    latency = Latency()
    pace = latency.predict(0, 0, 0, 0, 101) - latency.predict(0, 0, 0, 0, 1)
    for tokens in (0, 1) * 50:
        latency.observe(0, 100, 100, 0.5, tokens, 0.5)
        latency.observe(0, 100, 100, None, tokens, 0.5)
    assert latency.predict(0, 0, 100, 100, 1) == latency.predict(0, 0, 100, 100, 0) == pytest.approx(0.5, rel=0.02)
    assert latency.predict(0, 0, 0, 0, 101) - latency.predict(0, 0, 0, 0, 1) == pytest.approx(pace)


def test_more_cached_than_there_is_is_all_of_it(taught: Latency) -> None:
    assert taught.predict(1, 0, 100, 5_000, 10) == taught.predict(1, 0, 100, 100, 10)
