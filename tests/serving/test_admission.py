from __future__ import annotations

import asyncio
import functools
from collections import Counter
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.serving.admission import Admission, NotAdmitted, Priority, QueueFull, QueueTimeout, Slot
from tests.support.clock import run, timers


def clocked(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a test on a loop whose clock only moves when everything waits: times are exact."""

    @functools.wraps(test)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        run(test(*args, **kwargs))

    return wrapper


def now() -> float:
    return asyncio.get_running_loop().time()


def admission(*, slots: int = 1, room: int = 100, wait_s: float = 1_000.0, **more: Any) -> Admission:
    return Admission(now, slots=slots, room=room, wait_s=wait_s, **more)


async def settled() -> None:
    """Lets every task run that can."""
    for _ in range(5):
        await asyncio.sleep(0)


class Callers:
    """Calls that wait in the order they came, and what became of them."""

    def __init__(self, queue: Admission) -> None:
        self.queue = queue
        self.served: list[str] = []
        self.slots: list[Slot] = []
        self.refused: list[tuple[str, NotAdmitted]] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def call(self, tenant: str, priority: Priority = "interactive", name: str | None = None) -> asyncio.Task[None]:
        task = asyncio.create_task(self._run(tenant, priority, name or tenant))
        self.tasks.append(task)
        await settled()
        return task

    async def _run(self, tenant: str, priority: Priority, name: str) -> None:
        try:
            slot = await self.queue.enter(tenant, priority)
        except NotAdmitted as error:
            self.refused.append((name, error))
        else:
            self.served.append(name)
            self.slots.append(slot)

    async def next(self, times: int = 1) -> None:
        for _ in range(times):
            self.slots.pop(0).release()
            await settled()

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@clocked
async def test_free_slots_are_given_at_once() -> None:
    queue = admission(slots=2)

    with await queue.enter("t"), await queue.enter("t"):
        assert (queue.running, queue.waiting) == (2, 0)

    assert queue.running == 0


@clocked
async def test_a_call_waits_for_a_slot() -> None:
    queue = admission()
    slot = await queue.enter("t")
    asyncio.get_running_loop().call_later(5.0, slot.release)

    with await queue.enter("t"):
        assert now() == 5.0


@clocked
async def test_a_slot_is_given_back_once() -> None:
    queue = admission()
    slot = await queue.enter("t")

    slot.release()
    slot.release()

    assert queue.running == 0


@clocked
async def test_a_slot_is_given_back_when_the_call_fails() -> None:
    queue = admission()

    with pytest.raises(ZeroDivisionError), await queue.enter("t"):
        raise ZeroDivisionError

    assert queue.running == 0


@clocked
async def test_no_more_wait_than_there_is_room() -> None:
    queue = admission(room=2)
    callers = Callers(queue)
    for _ in range(4):
        await callers.call("t")

    assert (queue.running, queue.waiting, len(callers.refused)) == (1, 2, 1)
    assert isinstance(callers.refused[0][1], QueueFull)
    await callers.stop()


@clocked
async def test_without_room_nobody_waits() -> None:
    queue = admission(room=0)

    with await queue.enter("t"):
        for priority in ("interactive", "batch"):
            with pytest.raises(QueueFull):
                await queue.enter("other", priority)  # type: ignore[arg-type]


@clocked
async def test_nobody_waits_longer_than_allowed() -> None:
    queue = admission(wait_s=3.0)

    with await queue.enter("t"):
        with pytest.raises(QueueTimeout):
            await queue.enter("t")

        assert now() == 3.0
        assert (queue.running, queue.waiting) == (1, 0)
    with await queue.enter("t"):
        pass
    assert timers() == []


@clocked
async def test_a_slot_that_comes_with_the_deadline_is_not_lost() -> None:
    queue = admission(wait_s=3.0)
    slot = await queue.enter("t")
    asyncio.get_running_loop().call_later(3.0, slot.release)

    with await queue.enter("t"):
        assert now() == 3.0
    assert queue.running == 0


@clocked
async def test_interactive_goes_before_batch_and_batch_never_starves() -> None:
    queue = admission(batch_every=10)
    callers = Callers(queue)
    for _ in range(16):
        await callers.call("t", name="first")
    await callers.next(15)
    for _ in range(5):
        await callers.call("t", "batch", "batch")
    for _ in range(60):
        await callers.call("t", "interactive", "interactive")

    await callers.next(65)

    order = callers.served[16:]
    # Every tenth slot is batch's.
    assert [place for place, name in enumerate(order, 1) if name == "batch"] == [10, 20, 30, 40, 50]


@clocked
async def test_batch_runs_at_once_when_nobody_else_waits() -> None:
    queue = admission()
    callers = Callers(queue)
    await callers.call("t")
    await callers.call("t", "batch", "batch")
    await callers.call("t", "interactive", "interactive")

    await callers.next(2)

    assert callers.served[1:] == ["interactive", "batch"]


@clocked
async def test_tenants_with_weights_1_and_3_get_1_to_3() -> None:
    """Each always has 20 that wait; 8 slots; calls of random length."""
    random = Random(0)
    queue = admission(slots=8, weights={"three": 3.0})
    served: Counter[str] = Counter()

    async def caller(tenant: str) -> None:
        while True:
            with await queue.enter(tenant):
                served[tenant] += 1
                await asyncio.sleep(random.expovariate(1.0))

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(caller(tenant)) for tenant in ("one", "three") for _ in range(20)]
        await asyncio.sleep(500.0)
        for task in tasks:
            task.cancel()

    assert sum(served.values()) > 3_000
    assert 0.95 * 3 < served["three"] / served["one"] < 1.05 * 3
    assert (queue.running, queue.waiting) == (0, 0)


@clocked
async def test_a_flood_does_not_delay_another_tenants_first_call() -> None:
    queue = admission(room=2_000)
    callers = Callers(queue)
    await callers.call("flood")
    callers.tasks += [asyncio.create_task(callers._run("flood", "interactive", "flood")) for _ in range(1_000)]
    await settled()
    await callers.next(10)
    await callers.call("small")

    await callers.next(2)

    assert "small" in callers.served[-2:]
    await callers.stop()


@clocked
async def test_a_flood_does_not_shut_another_tenant_out() -> None:
    """The room is full of one tenant's calls: its newest makes way, until both have half of the room."""
    queue = admission(room=10)
    callers = Callers(queue)
    for number in range(11):
        await callers.call("flood", name=f"flood{number}")
    for number in range(7):
        await callers.call("small", name=f"small{number}")

    refused = [name for name, _ in callers.refused]
    assert refused == ["flood10", "flood9", "flood8", "flood7", "flood6", "small5", "small6"]
    assert all(isinstance(error, QueueFull) for _, error in callers.refused)
    assert (queue.running, queue.waiting) == (1, 10)
    await callers.stop()


@clocked
async def test_interactive_calls_take_batchs_places_but_one_in_ten() -> None:
    queue = admission(room=20, batch_every=10)
    callers = Callers(queue)
    await callers.call("t")
    for number in range(20):
        await callers.call("t", "batch", f"batch{number}")
    for number in range(19):
        await callers.call("t", "interactive", f"interactive{number}")

    assert [name for name, _ in callers.refused] == [f"batch{number}" for number in range(19, 1, -1)] + ["interactive18"]
    await callers.stop()


@clocked
async def test_the_only_place_is_interactives() -> None:
    queue = admission(room=1)
    callers = Callers(queue)
    await callers.call("t")
    for name in ("batch", "interactive", "batch"):
        await callers.call("t", name, name)  # type: ignore[arg-type]

    assert [name for name, _ in callers.refused] == ["batch", "batch"]
    await callers.stop()


@clocked
async def test_batch_has_a_place_in_a_room_full_of_interactive_calls() -> None:
    queue = admission(room=20, batch_every=10)
    callers = Callers(queue)
    for number in range(21):
        await callers.call("t", "interactive", f"interactive{number}")
    for number in range(3):
        await callers.call("t", "batch", f"batch{number}")

    assert [name for name, _ in callers.refused] == ["interactive20", "interactive19", "batch2"]
    await callers.stop()


@clocked
async def test_who_is_refused_hears_when_the_queue_will_have_been_served() -> None:
    """4 slots, calls of 2 s, 20 that wait: 21 turns of half a second. And so it is."""
    queue = admission(slots=4, room=20)

    async def call() -> None:
        with await queue.enter("t"):
            await asyncio.sleep(2.0)

    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(call())
        await asyncio.sleep(10.0)
        assert queue.running == 0
        for _ in range(24):
            group.create_task(call())
        await settled()
        begin = now()
        with pytest.raises(QueueFull) as refused:
            await queue.enter("t")
        assert refused.value.retry_after_s == 10.5
        await asyncio.sleep(refused.value.retry_after_s - 1.0)
        assert queue.waiting > 0
        await asyncio.sleep(1.0)
        assert now() == begin + 10.5
        assert queue.waiting == 0


@clocked
async def test_who_waited_in_vain_hears_it_too() -> None:
    queue = admission(slots=1, wait_s=30.0)
    slot = await queue.enter("t")
    await asyncio.sleep(5.0)
    slot.release()
    slot = await queue.enter("t")

    with pytest.raises(QueueTimeout) as refused:
        await queue.enter("t")

    # Calls took 5 s; the one that runs has taken 30 by now.
    assert refused.value.retry_after_s == 30.0
    slot.release()


@clocked
async def test_a_call_that_runs_for_long_is_seen_before_it_ends() -> None:
    """Of two that ran one has ended after 5 s; the other has had 20 s by now."""
    queue = admission(slots=2)
    await asyncio.sleep(5.0)
    first = await queue.enter("t")
    await asyncio.sleep(5.0)
    second = await queue.enter("t")
    first.release()
    await asyncio.sleep(20.0)

    assert queue.retry_after_s() == 20.0 / 2
    second.release()
    assert queue.retry_after_s() == (5.0 + 0.1 * (20.0 - 5.0)) / 2


@clocked
async def test_batch_is_told_that_interactive_goes_first() -> None:
    queue = admission(slots=1, batch_every=10)
    callers = Callers(queue)
    for _ in range(31):
        await callers.call("t")
    for _ in range(2):
        await callers.call("t", "batch")

    assert queue.retry_after_s("interactive") == 30 + 2 + 1  # 1 s each is assumed at first
    assert queue.retry_after_s("batch") == 2 + 27 + 1  # 2 batch calls and its own turn, 9 others before each
    await callers.stop()


@clocked
async def test_idle_hours_do_not_make_calls_look_slow() -> None:
    queue = admission(slots=2)
    for _ in range(20):
        with await queue.enter("t"):
            await asyncio.sleep(1.0)
        await asyncio.sleep(3_600.0)

    assert queue.retry_after_s() == pytest.approx(0.5)


@clocked
async def test_callers_that_leave_at_once_do_not_make_calls_look_fast() -> None:
    queue = admission(slots=1)
    slot = await queue.enter("t")
    await asyncio.sleep(8.0)
    slot.release()
    for _ in range(50):
        slot = await queue.enter("t")
        waiter = asyncio.create_task(queue.enter("t"))
        await settled()
        slot.release(used=False)
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)

    assert queue.running == 0
    assert queue.retry_after_s() == 8.0


@clocked
async def test_more_slots_serve_at_once_and_fewer_wait_for_the_rest() -> None:
    queue = admission(slots=1)
    callers = Callers(queue)
    for _ in range(6):
        await callers.call("t")

    queue.resize(slots=3, room=100, wait_s=60.0, weights={})
    await settled()
    assert (queue.running, queue.waiting) == (3, 3)

    queue.resize(slots=1, room=100, wait_s=60.0, weights={})
    await callers.next(2)
    assert (queue.running, queue.waiting) == (1, 3)
    await callers.next(4)
    assert (queue.running, queue.waiting) == (0, 0)
    with pytest.raises(ValueError, match="slots"):
        queue.resize(slots=0, room=1, wait_s=60.0, weights={})


@clocked
async def test_all_bounds_can_be_changed_and_calls_that_wait_stay() -> None:
    queue = admission(slots=1, room=5, wait_s=10.0)
    callers = Callers(queue)
    for number in range(6):
        await callers.call("t", name=f"t{number}")

    queue.resize(slots=1, room=3, wait_s=4.0, weights={"u": 3.0})
    await settled()
    assert (queue.running, queue.waiting, callers.refused) == (1, 5, [])
    await callers.call("t", name="late")
    assert [name for name, _ in callers.refused] == ["late"]
    await callers.next(3)
    assert (queue.running, queue.waiting) == (1, 2)
    await callers.call("u", name="u")
    await asyncio.sleep(4.0)
    assert [name for name, _ in callers.refused] == ["late", "u"], "it came after the change, and had 4 s"
    await asyncio.sleep(6.0)
    assert [name for name, _ in callers.refused] == ["late", "u", "t4", "t5"], "they came before it, and had 10 s"
    assert all(isinstance(error, QueueTimeout) for _, error in callers.refused[1:])
    await callers.next()
    assert queue.running == 0


@clocked
async def test_new_weights_share_the_slots() -> None:
    queue = admission(slots=1)
    callers = Callers(queue)
    for _ in range(50):
        await callers.call("a")
        await callers.call("b")
    await callers.next(9)
    assert Counter(callers.served) == {"a": 5, "b": 5}

    queue.resize(slots=1, room=100, wait_s=60.0, weights={"b": 4.0})
    await callers.next(50)

    # Whose turn it is next was settled by the weights before.
    assert 39 <= Counter(callers.served[10:])["b"] <= 41
    await callers.stop()


@pytest.mark.parametrize("wrong", [{"slots": 0}, {"room": -1}, {"weights": {"t": 0.0}}, {"weights": {"t": float("nan")}}], ids=str)
@clocked
async def test_bounds_that_cannot_be_change_nothing(wrong: dict[str, Any]) -> None:
    queue = admission(slots=1, room=1)
    callers = Callers(queue)
    await callers.call("t")
    bounds: dict[str, Any] = {"slots": 3, "room": 9, "wait_s": 1.0, "weights": {}}

    with pytest.raises(ValueError, match=r"slots|weight"):
        queue.resize(**bounds | wrong)

    for _ in range(2):
        await callers.call("t")
    assert (queue.running, queue.waiting, len(callers.refused)) == (1, 1, 1)
    await asyncio.sleep(2.0)
    assert queue.waiting == 1
    await callers.stop()


@clocked
async def test_a_slot_given_as_the_caller_leaves_goes_to_the_next() -> None:
    queue = admission()
    callers = Callers(queue)
    await callers.call("a")
    leaving = await callers.call("b")
    await callers.call("c")

    callers.slots.pop().release()  # b's turn is set, and its task has not run yet
    leaving.cancel()
    await settled()

    assert callers.served == ["a", "c"]
    assert (queue.running, queue.waiting) == (1, 0)


@clocked
async def test_who_left_is_passed_over_though_its_task_has_not_run_yet() -> None:
    queue = admission()
    callers = Callers(queue)
    await callers.call("a")
    leaving = await callers.call("b")
    await callers.call("c")

    leaving.cancel()
    callers.slots.pop().release()
    await settled()

    assert callers.served == ["a", "c"]
    assert (queue.running, queue.waiting) == (1, 0)


@pytest.mark.parametrize("first", ["leaves", "is refused"])
@clocked
async def test_who_leaves_as_another_takes_its_place_is_no_matter(first: str) -> None:
    queue = admission(room=2)
    callers = Callers(queue)
    await callers.call("a")
    await callers.call("a")
    leaving = await callers.call("a")
    other = asyncio.create_task(callers._run("b", "interactive", "b"))
    if first == "is refused":
        await asyncio.sleep(0)  # its turn is set to the refusal, and its task has not run yet
    leaving.cancel()
    await settled()
    assert leaving.cancelled()
    assert (queue.running, queue.waiting) == (1, 2)

    await callers.next(3)
    await other

    assert sorted(callers.served) == ["a", "a", "b"]
    assert callers.refused == []
    assert (queue.running, queue.waiting) == (0, 0)


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["enter", "enter", "release", "cancel", "tick", "pass"]), st.integers(0, 2**16)), min_size=10, max_size=120
)


@settings(max_examples=200, deadline=None)
@given(slots=st.integers(1, 4), room=st.integers(0, 8), actions=ACTIONS)
def test_slots_are_conserved_whoever_leaves_when(slots: int, room: int, actions: list[tuple[str, int]]) -> None:
    """Whatever is cancelled at whatever moment: never more run than there are slots, nobody waits while a slot is free, and in the end all
    slots are free."""

    async def main() -> None:
        queue = admission(slots=slots, room=room, wait_s=5.0, weights={"a": 3.0})
        held: list[Slot] = []
        tasks: list[asyncio.Task[None]] = []
        outcomes: Counter[str] = Counter()

        async def call(tenant: str, priority: Priority) -> None:
            try:
                slot = await queue.enter(tenant, priority)
            except NotAdmitted as error:
                outcomes[type(error).__name__] += 1
                raise
            held.append(slot)
            assert len(held) <= slots

        for action, draw in actions:
            if action == "enter":
                priority: Priority = "batch" if draw % 3 == 0 else "interactive"
                tasks.append(asyncio.create_task(call("abc"[draw % 7 % 3], priority)))
            elif action == "release" and held:
                held.pop(draw % len(held)).release()
            elif action == "cancel" and tasks:
                tasks[draw % len(tasks)].cancel()
            elif action == "tick":
                await asyncio.sleep(0)
            elif action == "pass":
                await asyncio.sleep(draw % 4)
            assert queue.running <= slots
        await settled()
        assert queue.running == len(held)
        assert queue.waiting == 0 or queue.running == slots
        assert queue.waiting <= room
        assert queue.waiting == sum(not task.done() for task in tasks)

        for task in tasks[::2]:
            task.cancel()
        while held or queue.waiting:
            for slot in held:
                slot.release()
            held.clear()
            await settled()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(end is None or isinstance(end, (NotAdmitted, asyncio.CancelledError)) for end in ends)
        assert (queue.running, queue.waiting) == (0, 0)
        with await queue.enter("last"):
            assert queue.running == 1
        assert timers() == []

    run(main())
