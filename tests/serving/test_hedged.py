"""A hedged attempt, moment by moment: what two replicas do in the same turn of the loop, and who leaves when."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from gateway.pool.hedging import Hedging, size_of
from gateway.serving.begun import Begun
from gateway.serving.call import Receipt
from gateway.serving.hedged import hedged
from gateway.serving.patience import Patience
from gateway.serving.retry import Failure
from gateway.serving.state import RealModel, State
from gateway.wire.errors import ApiError
from tests.support.clock import run, timers
from tests.support.upstreams import EVENTS, OK, Does, Engines, breaker, errand, made_state, real, receipt

DELAY_S = 1.0
STREAM = Does(pieces=EVENTS, streams=True)


class Pair:
    """Two replicas a, b of `m`; a is asked, and hedged after a second."""

    def __init__(self, scripts: Mapping[str, Sequence[Does]], *, stream: bool = False, share: float = 1.0) -> None:
        self.engines = Engines(scripts)
        self.state: State = made_state({"a": "m", "b": "m"})
        self.model: RealModel = real(self.state, "m")
        self.errand = errand("m", stream=stream)
        self.hedging = Hedging(share=share, quantile=0.5)
        self.size = size_of(len(self.errand.prompt), None, streams=stream)
        for _ in range(64):
            self.hedging.waited(self.size, DELAY_S)
        self.receipt: Receipt = receipt()
        self.tried = {"a"}

    async def attempt(self, deadline: float | None = None) -> Begun | Failure:
        patience = Patience() if deadline is None else Patience(deadline)
        first = self.state.backends["a"]
        return await hedged(self.engines, patience, first, self.model, self.hedging, self.errand, self.receipt, self.tried)

    def calls(self) -> list[tuple[str, str | None, str | None]]:
        return [(call.backend, call.outcome, call.fault) for call in self.receipt.calls]

    def at_rest(self) -> None:
        """Nothing is left: no slot, no answer that is open, no task, no timer."""
        assert [each.in_flight for each in self.state.backends.values()] == [0, 0]
        assert [reply for reply in self.engines.replies if reply.open] == []
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert timers() == []


def now() -> float:
    return asyncio.get_running_loop().time()


def test_one_that_answers_in_time_is_not_hedged() -> None:
    async def main() -> None:
        it = Pair({"a": [Does(after_s=0.9)]})
        assert isinstance(await it.attempt(), Begun)
        assert (it.calls(), now()) == ([("a", "ok", None)], 0.9)
        assert it.tried == {"a"}
        it.at_rest()

    run(main())


def test_the_one_that_answers_first_is_taken_and_the_other_cancelled() -> None:
    async def main() -> None:
        for first_s, second_s, winner in ((9.0, 2.0, "b"), (1.5, 2.0, "a")):
            it = Pair({"a": [Does(after_s=first_s)], "b": [Does(after_s=second_s)]})
            begun = await it.attempt()
            assert isinstance(begun, Begun)
            assert begun.call.backend == winner
            assert it.engines.aborted == ["ab".replace(winner, "")]
            assert {name: outcome for name, outcome, _ in it.calls()} == {winner: "ok", it.engines.aborted[0]: "cancelled"}
            assert it.receipt.attempts == 2
            assert it.tried == {"a", "b"}
            it.at_rest()

    run(main())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_both_answer_in_the_same_turn(stream: bool) -> None:
    """One is taken, the first that was asked; the other, of which nobody will read another byte, is closed."""

    async def main() -> None:
        does = STREAM if stream else Does()
        it = Pair(
            {"a": [Does(after_s=3.0, pieces=does.pieces, streams=stream)], "b": [Does(after_s=2.0, pieces=does.pieces, streams=stream)]},
            stream=stream,
        )
        begun = await it.attempt()
        assert isinstance(begun, Begun)
        assert (begun.call.backend, now()) == ("a", 3.0)
        if begun.stream is not None:
            assert [each.in_flight for each in it.state.backends.values()] == [1, 0]
            assert it.engines.aborted == ["b"]
            assert [call.outcome for call in it.receipt.calls] == [None, "cancelled"]
            begun.stream.own(it.receipt, lambda _: None)
            assert [await begun.stream.next() for _ in range(3)] == [*EVENTS, b""]
            begun.stream.close()
        it.at_rest()

    run(main())


@pytest.mark.parametrize("ill", ["a", "b"])
def test_an_answer_is_better_than_a_failure_in_the_same_turn(ill: str) -> None:
    async def main() -> None:
        status = {name: 500 if name == ill else 200 for name in "ab"}
        it = Pair({"a": [Does(status["a"], after_s=3.0)], "b": [Does(status["b"], after_s=2.0)]})
        begun = await it.attempt()
        assert isinstance(begun, Begun)
        assert (begun.status, begun.body, begun.call.backend) == (200, OK, "ab".replace(ill, ""))
        it.at_rest()

    run(main())


def test_both_fail() -> None:
    async def main() -> None:
        it = Pair({"a": [Does(500, after_s=5.0)], "b": [Does(fails="connect", after_s=1.0)]})
        failure = await it.attempt()
        assert isinstance(failure, Failure)
        assert failure.elsewhere
        assert isinstance(failure.told, Begun)
        assert failure.told.call.backend == "a", "the last word"
        assert it.calls() == [("a", "backend_error", "status"), ("b", "backend_error", "connect")]
        it.at_rest()

    run(main())


def test_a_failure_before_the_hedge_is_the_end_of_the_attempt() -> None:
    async def main() -> None:
        it = Pair({"a": [Does(500, after_s=0.5)]})
        assert isinstance(await it.attempt(), Failure)
        assert (len(it.engines.sent), now()) == (1, 0.5)
        it.at_rest()

    run(main())


@pytest.mark.parametrize("ill", ["a", "b"])
def test_a_failure_waits_for_what_the_other_one_says(ill: str) -> None:
    async def main() -> None:
        well = "ab".replace(ill, "")
        it = Pair({ill: [Does(500, after_s=0.0 if ill == "b" else 1.5)], well: [Does(after_s=4.0)]})
        begun = await it.attempt()
        assert isinstance(begun, Begun)
        assert (begun.status, begun.call.backend) == (200, well)
        assert sorted(it.calls()) == sorted([(ill, "backend_error", "status"), (well, "ok", None)])
        it.at_rest()

    run(main())


def test_what_the_caller_got_wrong_is_an_answer() -> None:
    async def main() -> None:
        it = Pair({"a": [Does(fails="stall")], "b": [Does(400)]})
        begun = await it.attempt()
        assert isinstance(begun, Begun)
        assert begun.status == 400
        assert it.engines.aborted == ["a"]
        it.at_rest()

    run(main())


def test_the_deadline_ends_both() -> None:
    async def main() -> None:
        it = Pair({"a": [Does(fails="stall")], "b": [Does(fails="stall")]})
        with pytest.raises(ApiError) as error:
            await it.attempt(deadline=5.0)
        assert (error.value.status, error.value.code, now()) == (504, "gateway_deadline", 5.0)
        assert it.calls() == [("a", "cancelled", None), ("b", "cancelled", None)]
        assert sorted(it.engines.aborted) == ["a", "b"]
        it.at_rest()

    run(main())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("turns", range(12))
def test_a_caller_that_leaves_as_an_answer_comes_leaves_nothing(turns: int, stream: bool) -> None:
    """In whichever turn of the loop: also when one has been taken and the other is still being cancelled."""

    async def main() -> None:
        pieces = EVENTS if stream else (OK,)
        it = Pair({"a": [Does(fails="stall")], "b": [Does(after_s=2.0, pieces=pieces, streams=stream)]}, stream=stream)
        task = asyncio.create_task(it.attempt())
        loop = asyncio.get_running_loop()

        def leave(turns: int) -> None:
            if turns:
                loop.call_soon(leave, turns - 1)
            else:
                task.cancel()

        loop.call_at(3.0, leave, turns)  # when the answer comes
        try:
            begun = await task
        except asyncio.CancelledError:
            pass
        else:
            assert isinstance(begun, Begun)
            begun.drop()
        it.at_rest()

    run(main())


def test_one_that_is_cooling_down_is_no_hedge() -> None:
    async def main() -> None:
        it = Pair({"a": [Does(after_s=4.0)]})
        ill = breaker(it.state, "b")
        ill.faulted(ill.begin(), "connect")
        assert isinstance(await it.attempt(), Begun)
        assert len(it.engines.sent) == 1
        assert it.hedging.spend(), "and nothing was spent on it"
        it.at_rest()

    run(main())


def test_no_more_than_the_share() -> None:
    async def main() -> None:
        it = Pair({"a": [Does(after_s=4.0)]}, share=0.25)
        for _ in range(20):
            it.tried = {"a"}
            assert isinstance(await it.attempt(), Begun)
        assert len(it.engines.to("b")) == 5
        it.at_rest()

    run(main())
