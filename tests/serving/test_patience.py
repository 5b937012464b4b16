from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from gateway.pool.transport import TimedOut
from gateway.serving.patience import DeadlinePassed, Patience
from tests.support.clock import run, timers


def clocked(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Runs a test on a loop whose clock only moves when everything waits: times are exact."""

    @functools.wraps(test)
    def wrapper() -> None:
        run(test())

    return wrapper


def now() -> float:
    return asyncio.get_running_loop().time()


async def wait(patience: Patience, bound: float, seconds: float) -> None:
    with patience.within(bound):
        await asyncio.sleep(seconds)


@clocked
async def test_a_wait_within_its_bound_passes() -> None:
    patience = Patience()

    for _ in range(10):
        await wait(patience, 2.0, 1.5)

    assert now() == 15.0
    patience.close()


@clocked
async def test_a_wait_past_its_bound_is_a_time_out() -> None:
    patience = Patience()
    await wait(patience, 8.0, 3.0)  # leaves a timer for the time 8

    with pytest.raises(TimedOut):
        await wait(patience, 2.0, 60.0)

    assert now() == 5.0
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
    patience.close()


@clocked
async def test_an_older_timer_does_not_cut_a_later_wait_short() -> None:
    patience = Patience()
    await wait(patience, 4.0, 3.0)

    with pytest.raises(TimedOut):
        await wait(patience, 4.0, 60.0)  # begins at 3; the timer of the first was due at 4

    assert now() == 7.0
    patience.close()


@clocked
async def test_the_deadline_ends_a_wait_before_its_bound() -> None:
    patience = Patience(deadline=5.0)
    await wait(patience, 100.0, 3.0)

    with pytest.raises(DeadlinePassed):
        await wait(patience, 100.0, 60.0)

    assert now() == 5.0
    patience.close()


@clocked
async def test_a_deadline_only_comes_nearer() -> None:
    patience = Patience()
    patience.bound(patience.now() + 5.0)
    patience.bound(9.0)
    patience.bound(math.inf)

    with pytest.raises(DeadlinePassed):
        await wait(patience, 100.0, 60.0)

    assert now() == 5.0
    patience.close()


@clocked
async def test_a_deadline_that_comes_nearer_between_waits_counts() -> None:
    patience = Patience()
    await wait(patience, 100.0, 1.0)
    patience.bound(3.0)

    with pytest.raises(DeadlinePassed):
        await wait(patience, 100.0, 60.0)

    assert now() == 3.0
    patience.close()


@clocked
async def test_nothing_begins_after_the_deadline_even_if_it_would_not_wait() -> None:
    patience = Patience(deadline=5.0)
    await wait(patience, 100.0, 1.0)
    await asyncio.sleep(4.0)  # as when the caller is slow to take what it is sent
    began = False

    with pytest.raises(DeadlinePassed), patience.within(100.0):
        began = True

    assert not began
    patience.close()


@clocked
async def test_time_that_is_not_spent_waiting_does_not_count() -> None:
    patience = Patience()
    await wait(patience, 2.0, 1.0)
    await asyncio.sleep(50.0)
    await wait(patience, 2.0, 1.5)

    assert now() == 52.5
    patience.close()


@clocked
async def test_a_cancellation_from_outside_passes_through() -> None:
    patience = Patience(deadline=100.0)
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_at(1.0, task.cancel)

    with pytest.raises(asyncio.CancelledError):
        await wait(patience, 50.0, 60.0)

    assert task.uncancel() == 0
    await wait(patience, 50.0, 2.0)  # and what follows is bounded as before
    assert now() == 3.0
    patience.close()


@clocked
async def test_a_cancellation_from_outside_at_the_very_same_time_is_not_swallowed() -> None:
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    patience = Patience()
    loop.call_at(2.0, task.cancel)

    with pytest.raises(asyncio.CancelledError):
        await wait(patience, 2.0, 60.0)

    assert task.cancelling() == 1
    task.uncancel()
    patience.close()


@clocked
async def test_another_error_at_the_bound_goes_on_and_leaves_no_cancellation_behind() -> None:
    async def converts() -> None:
        try:
            await asyncio.sleep(60.0)
        except asyncio.CancelledError:
            raise OSError("reset") from None

    task = asyncio.current_task()
    assert task is not None
    patience = Patience()
    with pytest.raises(OSError, match="reset"), patience.within(2.0):
        await converts()

    assert task.cancelling() == 0
    with pytest.raises(TimedOut):
        await wait(patience, 2.0, 60.0)
    assert now() == 4.0
    patience.close()


@clocked
async def test_an_error_passes_through() -> None:
    patience = Patience()
    with pytest.raises(ValueError, match="theirs"), patience.within(2.0):
        raise ValueError("theirs")
    patience.close()


@clocked
async def test_one_timer_serves_all_waits_and_closing_clears_it() -> None:
    patience = Patience(deadline=1_000.0)
    assert timers() == []
    for _ in range(5):
        with patience.within(10.0):
            assert len(timers()) == 1
    with patience.within(4.0):
        assert timers() == [4.0]

    patience.close()

    assert timers() == []
    patience.close()


@clocked
async def test_a_call_has_its_own_time_over_all_its_waits() -> None:
    patience = Patience(deadline=1_000.0)
    patience.begin_call(5.0)
    await wait(patience, 4.0, 3.0)
    assert not patience.call_is_over

    with pytest.raises(TimedOut):
        await wait(patience, 4.0, 60.0)

    assert (now(), patience.call_is_over) == (5.0, True)
    with pytest.raises(TimedOut):  # nothing more begins, not even what would not wait
        await wait(patience, 4.0, 0.0)
    patience.close()
    assert timers() == []


@clocked
async def test_a_wait_that_is_too_long_is_no_end_of_the_call() -> None:
    patience = Patience()
    patience.begin_call(5.0)
    with pytest.raises(TimedOut):
        await wait(patience, 2.0, 60.0)
    assert (now(), patience.call_is_over) == (2.0, False)
    patience.close()


@clocked
async def test_the_next_call_has_time_of_its_own() -> None:
    patience = Patience()
    patience.begin_call(5.0)
    await wait(patience, 100.0, 4.0)
    patience.close()
    assert not patience.call_is_over
    await wait(patience, 100.0, 50.0)  # between two calls, as in a queue: no call's time

    patience.begin_call(5.0)
    with pytest.raises(TimedOut):
        await wait(patience, 100.0, 60.0)
    assert now() == 59.0
    patience.close()


@clocked
async def test_a_call_that_begins_anew_need_not_be_closed_first() -> None:
    """Longer or shorter than what was left of the one before."""
    patience = Patience()
    patience.begin_call(10.0)
    await wait(patience, 100.0, 1.0)  # leaves a timer for the time 10
    patience.begin_call(2.0)
    with pytest.raises(TimedOut):
        await wait(patience, 100.0, 60.0)
    assert now() == 3.0
    patience.begin_call(20.0)
    await wait(patience, 100.0, 15.0)
    assert now() == 18.0
    patience.close()


@pytest.mark.parametrize("deadline", [3.0, 5.0])
def test_the_deadline_counts_before_the_call_s_time(deadline: float) -> None:
    async def main() -> None:
        patience = Patience(deadline)
        patience.begin_call(5.0)
        with pytest.raises(DeadlinePassed):
            await wait(patience, 100.0, 60.0)
        assert now() == deadline
        with pytest.raises(DeadlinePassed):
            await wait(patience, 100.0, 0.0)
        patience.close()

    run(main())


@clocked
async def test_another_task_goes_on_waiting() -> None:
    """It is cancelled from then on, and the one before no more; deadline and call stay what they were."""
    patience = Patience(deadline=9.0)
    patience.begin_call(6.0)
    await wait(patience, 100.0, 1.0)

    async def reads_on() -> list[float]:
        patience.adopt()
        ends = []
        for _ in range(2):
            with pytest.raises(TimedOut):
                await wait(patience, 2.0, 60.0)
            ends.append(now())
        with pytest.raises(TimedOut):
            await wait(patience, 100.0, 60.0)
        ends.append(now())
        patience.close()
        with pytest.raises(DeadlinePassed):
            await wait(patience, 100.0, 60.0)
        return [*ends, now()]

    task = asyncio.create_task(reads_on())
    await asyncio.sleep(20.0)  # not within the patience: nobody disturbs it
    assert await task == [3.0, 5.0, 6.0, 9.0]
    assert asyncio.current_task().cancelling() == task.cancelling() == 0  # type: ignore[union-attr]
    patience.close()


@clocked
async def test_without_any_bound_there_is_no_timer() -> None:
    """One that is never due would keep the task, and all that it holds, for ever."""
    patience = Patience()
    with patience.within(math.inf):
        assert timers() == []
    with patience.within(5.0):
        assert timers() == [5.0]
    await asyncio.sleep(1.0)
    with patience.within(math.inf):
        await asyncio.sleep(10.0)
    assert now() == 11.0
    assert timers() == []
    with pytest.raises(TimedOut):
        await wait(patience, 2.0, 60.0)
    assert now() == 13.0


@clocked
async def test_patience_of_one_task_does_not_touch_another() -> None:
    async def impatient() -> float:
        patience = Patience()
        with pytest.raises(TimedOut):
            await wait(patience, 1.0, 60.0)
        patience.close()
        return now()

    async def patient() -> float:
        patience = Patience()
        await wait(patience, 10.0, 5.0)
        patience.close()
        return now()

    assert await asyncio.gather(impatient(), patient()) == [1.0, 5.0]


def test_a_deadline_within_a_millisecond_on_the_product_s_loop() -> None:
    """uvloop counts in milliseconds, and makes something else of a timer that is due at once."""

    async def hurry() -> None:
        patience = Patience(now() + 0.0004)
        with pytest.raises(DeadlinePassed):
            while True:
                await wait(patience, 60.0, 0.0)
        patience.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(hurry())
