"""The loop over models and replicas, on a clock that a test moves: whatever the backends do, it keeps to its bounds and leaves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.pool.hedging import size_of
from gateway.serving.call import Answer, Receipt, Stream
from gateway.serving.relay import relay
from gateway.serving.state import State
from gateway.wire.errors import ApiError
from tests.support.clock import run, timers
from tests.support.upstreams import EVENTS, Does, Engines, Sent, breaker, errand, made_state, real, receipt, way

DEADLINES = st.none() | st.floats(0.01, 60.0)
NAMES = "ABCD"
# No wait is bounded by more than the first byte's time: a minute per call, so that a stall ends.
TIMEOUTS = {"first_byte_s": 20.0, "idle_s": 20.0, "total_s": 60.0}


@dataclass(frozen=True)
class House:
    """A topology and what its backends do. replicas: how many of each model. full: models whose queue has no room."""

    replicas: tuple[int, ...]
    fallbacks: tuple[tuple[int, ...], ...]
    attempts: int
    retry_wait_s: float
    scripts: Mapping[str, Sequence[Does]]
    full: frozenset[int]
    stream: bool

    @property
    def names(self) -> dict[str, str]:
        """Replica -> model."""
        return {f"{NAMES[each].lower()}{k}": NAMES[each] for each, count in enumerate(self.replicas) for k in range(count)}

    @property
    def chain(self) -> list[str]:
        """The models in the order in which they are to be asked: nearer ones first."""
        found = [0]
        for each in found:
            found += [further for further in self.fallbacks[each] if further not in found]
        return [NAMES[each] for each in found]

    def state(self, hedge: bool = False) -> State:
        models: dict[str, Any] = {
            NAMES[each]: {
                "fallbacks": [NAMES[further] for further in self.fallbacks[each]],
                "attempts": self.attempts,
                "retry_wait_s": self.retry_wait_s,
                "queue": {"slots": 1, "room": 0},
                **({"hedge": {"share": 1.0, "quantile": 0.5}} if hedge else {}),
            }
            for each in range(len(self.replicas))
        }
        return made_state(self.names, {"timeouts": TIMEOUTS}, models=models)


def replies(stream: bool) -> st.SearchStrategy[Does]:
    when = st.sampled_from([0.0, 0.1, 1.0, 7.0])
    good = st.builds(Does, after_s=when, each_s=when, streams=st.just(stream), pieces=st.just(EVENTS if stream else Does().pieces))
    asking = st.builds(Does, st.sampled_from([429, 503]), when, retry_after_s=st.sampled_from([0.0, 0.5, 3.0, 10.0, 1_000.0]))
    refusing = st.builds(Does, st.sampled_from([400, 404, 500, 502, 429]), when)
    failing = st.builds(Does, after_s=when, fails=st.sampled_from(["connect", "reset", "untouched", "stall"]))
    return st.one_of(good, asking, asking, refusing, failing)


@st.composite
def houses(draw: st.DrawFn) -> House:
    count = draw(st.integers(1, 4))
    replicas = tuple(draw(st.integers(1, 3)) for _ in range(count))
    # To models further on only, so that there is no circle.
    fallbacks = tuple(tuple(draw(st.permutations(range(each + 1, count)))[: draw(st.integers(0, 3))]) for each in range(count))
    stream = draw(st.booleans())
    house = House(replicas, fallbacks, draw(st.integers(1, 6)), draw(st.sampled_from([0.0, 1.0, 5.0])), {}, frozenset(), stream)
    scripts = {name: draw(st.lists(replies(stream), min_size=1, max_size=3)) for name in house.names}
    return replace(house, scripts=scripts, full=draw(st.frozensets(st.integers(0, count - 1), max_size=2)))


@dataclass
class Served:
    """What came of a request, once its stream, if it was one, was read to the end."""

    house: House
    state: State
    engines: Engines
    receipt: Receipt
    answer: Answer | ApiError
    body: bytes
    ended: float

    @property
    def replays(self) -> list[Sent]:
        """Sends that only repeat, on a fresh connection, what a kept one did not take."""
        return [sent for sent in self.engines.sent if sent.fresh]

    @property
    def tries(self) -> list[Sent]:
        """All others."""
        return [sent for sent in self.engines.sent if not sent.fresh]

    @property
    def asked(self) -> list[str]:
        """The models, in the order in which they were sent to."""
        return [model for model, _ in groupby(self.house.names[sent.backend] for sent in self.engines.sent)]

    @property
    def good(self) -> bool:
        return isinstance(self.answer, Answer) and self.answer.status == 200 and not self.late

    @property
    def final(self) -> bool:
        """Whether it is the caller's fault."""
        return isinstance(self.answer, Answer) and self.answer.status in (400, 404)

    @property
    def late(self) -> bool:
        """Whether the deadline cut it short, a stream also in its midst."""
        if isinstance(self.answer, Answer):
            return b'"gateway_deadline"' in self.body
        return self.answer.code == "gateway_deadline"

    @property
    def last(self) -> Sent:
        return self.engines.sent[-1]


async def served(house: House, deadline: float | None, hedge: bool = False, leaves_at: float | None = None) -> Served:
    """One request, all queues but the full ones free. leaves_at: when the caller leaves, loop time."""
    state = house.state(hedge)
    held = []
    for each in house.full:
        admission = real(state, NAMES[each]).admission
        assert admission is not None
        held.append(await admission.enter("other"))
    asks = errand("A", stream=house.stream)
    if hedge:
        for model in house.chain:
            hedging = real(state, model).hedging
            assert hedging is not None
            for _ in range(64):
                hedging.begin(size := size_of(len(asks.prompt), None, streams=house.stream))
                hedging.waited(size, 0.5)
    engines, bill = Engines(house.scripts), receipt()
    settled: list[Receipt] = []
    streams: list[Stream] = []
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(_read(relay(way(engines, deadline, settled), real(state, "A"), asks, bill), streams))
    if leaves_at is not None:
        loop.call_at(leaves_at, task.cancel)
    answer: Answer | ApiError
    body = b""
    try:
        answer, body = await task
    except ApiError as error:
        answer = error
    except asyncio.CancelledError:
        answer = ApiError(503, "gateway_draining", "The caller left.")
    ended = loop.time()
    if bill.slot is not None:
        bill.slot.release()
    for slot in held:
        slot.release()
    if leaves_at is not None and leaves_at > ended:  # its timer is this test's own
        await asyncio.sleep(leaves_at - ended)
    assert len(settled) == len(streams), "told once of the end of a stream"
    return Served(house, state, engines, bill, answer, body, ended)


async def _read(answers: Coroutine[Any, Any, Answer], streams: list[Stream]) -> tuple[Answer, bytes]:
    answer = await answers
    if answer.stream is None:
        return answer, answer.body
    streams.append(answer.stream)
    body = b""
    try:
        while data := await answer.stream.next():
            body += data
    finally:
        answer.stream.close()
    return answer, body


def check_nothing_is_left(it: Served) -> None:
    assert {name: each.in_flight for name, each in it.state.backends.items() if each.in_flight} == {}
    assert [reply.sent.backend for reply in it.engines.replies if reply.open] == []
    for model in it.house.chain:
        admission = real(it.state, model).admission
        assert admission is not None
        assert (admission.running, admission.waiting) == (0, 0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert timers() == []
    assert all(call.ended is not None and call.outcome is not None for call in it.receipt.calls)


def check_the_budget(it: Served) -> None:
    assert it.receipt.attempts == len(it.engines.sent)
    assert len(it.tries) <= it.house.attempts
    assert len(it.engines.sent) <= it.house.attempts + len(it.replays)


def check_the_order(it: Served) -> None:
    """Each model once, in order; and none whose queue is full."""
    order = iter(it.house.chain)
    assert all(model in order for model in it.asked), (it.asked, it.house.chain)
    assert not {NAMES[each] for each in it.house.full} & set(it.asked)


def check_the_waits(it: Served) -> None:
    """A replica is only tried again after a wait for what the last failure asked for, and only of the last model."""
    rounds: set[str] = set()
    for before, sent in zip([None, *it.tries], it.tries, strict=False):
        if sent.backend not in rounds:
            rounds.add(sent.backend)
            if before is not None and it.house.names[before.backend] == it.house.names[sent.backend] and not it.receipt.waited:
                assert sent.at == before.ended
            continue
        assert before is not None and before.ended is not None
        asked_s = before.does.retry_after_s
        assert asked_s is not None
        assert asked_s <= it.house.retry_wait_s
        over_s = sent.at - before.ended - before.does.each_s * len(before.does.pieces) - asked_s
        assert -1e-6 <= over_s <= 0.1 + 0.1 * asked_s + 1e-6
        assert it.house.names[sent.backend] == it.house.chain[-1], "where nothing stands in"
        rounds = {sent.backend}


def check_what_is_told(it: Served) -> None:
    """An answer, a refusal, or that time is up; else what the model that was asked for said."""
    own = [sent for sent in it.engines.sent if it.house.names[sent.backend] == "A"]
    if it.good:
        assert it.body == (b"".join(EVENTS) if it.house.stream else Does().pieces[0])
        assert it.receipt.served_model == it.house.names[it.last.backend]
        assert (it.receipt.outcome, it.receipt.backend) == ("ok", it.last.backend)
        return
    if it.final:
        assert isinstance(it.answer, Answer)
        assert it.answer.status == it.last.does.status
        assert it.receipt.outcome == "caller_error"
        return
    if it.late:
        return
    assert it.receipt.served_model == "A"
    if not own:
        assert isinstance(it.answer, ApiError)
        assert (it.answer.status, it.answer.code, it.receipt.backend) == (503, "gateway_overloaded", None)
        assert 0 in it.house.full
        return
    said = own[-1].does
    assert it.receipt.backend == own[-1].backend
    if said.fails is None and said.status != 200:
        assert isinstance(it.answer, Answer)
        assert it.answer.status == said.status
    else:
        code = {"connect": "backend_unreachable", "stall": "backend_timeout"}.get(str(said.fails), "backend_error")
        assert isinstance(it.answer, ApiError)
        assert it.answer.code == code


def check_nobody_was_left_out(it: Served) -> None:
    """It was given up only for want of attempts, or of anybody to ask: one attempt is kept for each model."""
    if it.good or it.final or it.late:
        return
    open_ = [model for model in it.house.chain if NAMES.index(model) not in it.house.full]
    if len(it.tries) < it.house.attempts and not it.house.full:
        refused = {call.model for call in it.receipt.calls if call.outcome == "caller_error"}  # by one of its replicas, for all of them
        everybody = {name for name, model in it.house.names.items() if model in open_ and model not in refused}
        assert {sent.backend for sent in it.tries if it.house.names[sent.backend] not in refused} == everybody
    if it.house.attempts >= len(it.house.chain):
        assert it.asked == open_


def check_the_verdicts(it: Served) -> None:
    """One success for an answer. A stream that was a trial tells of it twice: as it begins, for others wait for that, and at its end."""
    successes = {name: count for name in it.house.names if (count := breaker(it.state, name).successes)}
    assert successes.keys() == ({it.last.backend} if it.good else set())
    assert all(count <= 1 + it.house.stream for count in successes.values())
    faults = sum(len(breaker(it.state, name).faults) for name in it.house.names)
    refusals = sum(call.outcome == "caller_error" for call in it.receipt.calls)
    assert faults == len(it.tries) - it.good - refusals - _cut_short(it)


def _cut_short(it: Served) -> int:
    """Tries that the deadline ended: they say nothing of the backend."""
    return sum(call.outcome == "cancelled" for call in it.receipt.calls) if it.late else 0


@settings(max_examples=120, deadline=None)
@given(house=houses(), deadline=DEADLINES)
def test_whatever_the_backends_do(house: House, deadline: float | None) -> None:
    async def main() -> None:
        it = await served(house, deadline)
        check_nothing_is_left(it)
        check_the_budget(it)
        check_the_order(it)
        check_the_waits(it)
        check_what_is_told(it)
        check_nobody_was_left_out(it)
        check_the_verdicts(it)
        if deadline is not None:
            assert it.ended <= deadline + 1e-6

    run(main())


@settings(max_examples=60, deadline=None)
@given(house=houses(), deadline=DEADLINES)
def test_whatever_the_backends_do_with_hedging(house: House, deadline: float | None) -> None:
    async def main() -> None:
        it = await served(house, deadline, hedge=True)
        check_nothing_is_left(it)
        check_the_budget(it)
        check_the_order(it)
        if deadline is not None:
            assert it.ended <= deadline + 1e-6
        if it.good:
            assert any(breaker(it.state, name).successes for name in it.house.names)
            assert it.receipt.outcome == "ok"
            assert sum(call.outcome == "ok" for call in it.receipt.calls) >= 1

    run(main())


@settings(max_examples=60, deadline=None)
@given(house=houses(), hedge=st.booleans(), leaves_at=st.floats(0.0, 30.0))
def test_whenever_the_caller_leaves_nothing_is_left(house: House, hedge: bool, leaves_at: float) -> None:
    async def main() -> None:
        it = await served(house, None, hedge, leaves_at)
        check_nothing_is_left(it)
        check_the_budget(it)
        assert it.ended <= leaves_at + 1e-6 or not it.engines.aborted

    run(main())


# -- one by one


async def ask(state: State, engines: Engines, deadline: float | None = None, bill: Receipt | None = None) -> Answer:
    return await relay(way(engines, deadline), real(state, "A"), errand("A"), bill or receipt())


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("asked_s", [0.0, 2.0])
def test_a_replica_that_asks_for_patience_is_tried_again_in_its_own_time(asked_s: float) -> None:
    async def main() -> None:
        state, engines = made_state({"a": "A"}), Engines({"a": [Does(429, retry_after_s=asked_s), Does()]})
        bill = receipt()
        assert (await ask(state, engines, bill=bill)).status == 200
        assert asked_s <= now() <= asked_s * 1.1 + 0.1
        assert bill.waited >= asked_s, "which is no overhead of the gateway's"

    run(main())


@pytest.mark.parametrize("change", ["drained", "asked to wait again"])
def test_when_none_may_serve_after_the_wait_there_is_no_other(change: str) -> None:
    """Without a deadline it would go on for ever."""

    async def main() -> None:
        state, engines = made_state({"a": "A"}), Engines({"a": [Does(429, retry_after_s=2.0)]})
        one = state.backends["a"]

        def happen() -> None:
            if change == "drained":
                one.draining = True
            else:
                one.breaker.faulted(one.breaker.begin(early=True), "rate_limit", 60.0)

        asyncio.get_running_loop().call_later(1.0, happen)
        async with asyncio.timeout(100.0):
            answer = await ask(state, engines)
        assert (answer.status, len(engines.sent)) == (429, 1)
        assert now() <= 2.3

    run(main())


def test_while_a_model_cools_down_the_one_that_stands_in_serves_at_once() -> None:
    """One that hangs would cost each caller the whole wait for a first byte. When its pause is over it is tried, or it never came back."""

    async def main() -> None:
        state = made_state({"a": "A", "b": "B"}, models={"A": {"fallbacks": ["B"], "attempts": 1}})
        engines = Engines()
        cooling = state.backends["a"].breaker
        for _ in range(3):
            cooling.faulted(cooling.begin(), "timeout")
        bill = receipt()
        assert (await ask(state, engines, bill=bill)).status == 200
        assert (bill.served_model, [sent.backend for sent in engines.sent]) == ("B", ["b"])
        await asyncio.sleep(cooling.wait_s)
        await ask(state, engines)
        assert engines.sent[-1].backend == "a"

    run(main())


def test_while_all_models_cool_down_the_one_that_was_asked_for_is_tried() -> None:
    async def main() -> None:
        state, engines = made_state({"a": "A", "b": "B"}, models={"A": {"fallbacks": ["B"]}}), Engines()
        for each in state.backends.values():
            for _ in range(3):
                each.breaker.faulted(each.breaker.begin(), "timeout")
        assert (await ask(state, engines)).status == 200
        assert [sent.backend for sent in engines.sent] == ["a"]

    run(main())


def test_a_wait_that_the_deadline_would_cut_is_not_begun() -> None:
    async def main() -> None:
        state, engines = made_state({"a": "A"}), Engines({"a": [Does(429, retry_after_s=2.0)]})
        assert ((await ask(state, engines, deadline=1.9)).status, now()) == (429, 0.0)

    run(main())


def test_every_call_has_its_own_time_and_the_request_s_deadline_is_over_all() -> None:
    async def main() -> None:
        state = made_state({"a": "A", "b": "B"}, {"timeouts": {"total_s": 4.0}}, models={"A": {"fallbacks": ["B"]}})
        for deadline, code, ended in ((None, "backend_timeout", 8.0), (14.0, "gateway_deadline", 14.0)):
            with pytest.raises(ApiError) as error:
                await ask(state, Engines({name: [Does(fails="stall")] for name in "ab"}), deadline)
            assert (error.value.status, error.value.code, now()) == (504, code, ended)

    run(main())


def test_the_bound_on_connecting_is_that_of_the_narrowest_place() -> None:
    async def main() -> None:
        seen: list[float] = []

        class Noting(Engines):
            async def send(self, method: str, url: str, headers: Any, body: bytes, connect_s: float, *, fresh: bool = False) -> Any:
                seen.append(connect_s)
                return await super().send(method, url, headers, body, connect_s, fresh=fresh)

        for model, expected in (({}, 7.0), ({"timeouts": {"connect_s": 9.0}}, 9.0), ({"timeouts": {"idle_s": 1.0}}, 7.0)):
            await ask(made_state({"a": "A"}, {"timeouts": {"connect_s": 7.0}}, models={"A": model}), Noting())
            assert seen.pop() == expected

    run(main())


def test_a_caller_that_leaves_the_queue_leaves_no_timer() -> None:
    """Not even one that is never due: it would keep the whole request in memory."""

    async def main() -> None:
        state = made_state({"a": "A"}, models={"A": {"queue": {"slots": 1}}})
        admission = real(state, "A").admission
        assert admission is not None
        for deadline in (None, 1_000.0):
            with await admission.enter("other"):
                task = asyncio.create_task(ask(state, Engines(), deadline))
                await asyncio.sleep(1.0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert timers() == []

    run(main())


def test_hedged_calls_that_waited_in_a_queue_leave_no_timer() -> None:
    async def main() -> None:
        state = made_state({"a": "A", "a2": "A"}, models={"A": {"queue": {"slots": 1}, "hedge": {}}})
        bill = receipt()
        await ask(state, Engines(), 1_000.0, bill)
        assert timers() == []

    run(main())
