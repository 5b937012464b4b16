from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gateway.telemetry import families
from gateway.telemetry.loop_lag import LoopLag
from gateway.telemetry.numbers import Histogram
from tests.support.clock import ClockLoop, run


class Late(ClockLoop):
    """A loop that is late on demand: its clock says nothing of it, as uvloop's does not."""

    late_s = 0.0

    def now(self) -> float:
        return self.time() + self.late_s


def on_late_loop(main: Callable[[Late, LoopLag, Histogram], Awaitable[None]]) -> None:
    async def body() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Late)
        delays = Histogram(families.LOOP_DELAY.bounds)
        lag = LoopLag(delays, loop.now)
        lag.start()
        try:
            await main(loop, lag, delays)
        finally:
            lag.stop()

    with asyncio.Runner(loop_factory=Late) as runner:
        runner.run(body())


def test_a_loop_that_is_in_time() -> None:
    async def main(loop: Late, lag: LoopLag, delays: Histogram) -> None:
        await asyncio.sleep(1.05)
        assert sum(delays.bins().counts) == 10
        assert lag.most_s == pytest.approx(0.0, abs=1e-9)

    on_late_loop(main)


def test_the_most_of_the_last_ten_seconds() -> None:
    async def main(loop: Late, lag: LoopLag, delays: Histogram) -> None:
        await asyncio.sleep(0.95)
        loop.late_s += 0.3
        await asyncio.sleep(0.1)
        assert lag.most_s == pytest.approx(0.3)
        await asyncio.sleep(9.0)
        assert lag.most_s == pytest.approx(0.3)
        await asyncio.sleep(1.5)
        assert lag.most_s == pytest.approx(0.0, abs=1e-9)
        assert delays.bins().total == pytest.approx(0.3)

    on_late_loop(main)


def test_what_is_late_now_shows_at_once() -> None:
    """Who asks right after a fault need not wait for the next tick."""

    async def main(loop: Late, lag: LoopLag, delays: Histogram) -> None:
        await asyncio.sleep(0.05)
        loop.late_s += 2.0
        assert lag.most_s == pytest.approx(1.95)

    on_late_loop(main)


def test_after_the_end_nothing_is_set() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ClockLoop)
        lag = LoopLag(Histogram(()), loop.time)
        lag.start()
        assert len(loop.timers()) == 1
        lag.stop()
        return loop.timers()

    assert run(main()) == []
