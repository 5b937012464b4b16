"""One request, one worker, whoever else is asked to run it."""

from __future__ import annotations

import asyncio

from gateway.workers.claims import Claims
from gateway.workers.messages import Claim, Kept

CLAIM = Claim("dev", b"key", b"digest")
KEPT = Kept(200, [], b"answer")


class Workers:
    """What each has kept. A future: it still runs there."""

    def __init__(self) -> None:
        self.kept: dict[str, Kept | asyncio.Future[Kept | None] | None] = {}
        self.asked: list[str] = []

    async def ask(self, worker: str, claim: Claim) -> Kept | None:
        assert claim == CLAIM
        self.asked.append(worker)
        found = self.kept.get(worker)
        return await found if isinstance(found, asyncio.Future) else found


async def test_who_comes_first_runs_it_and_the_others_get_its_answer() -> None:
    workers = Workers()
    claims = Claims(workers.ask)
    assert await claims.claim("a", CLAIM) is None
    workers.kept["a"] = KEPT
    assert await claims.claim("b", CLAIM) == KEPT
    assert await claims.claim("c", CLAIM) == KEPT
    assert workers.asked == ["a", "a"]
    assert await claims.claim("a", CLAIM) is None, "it looks among its own first, and asks when it has none"


async def test_what_was_not_kept_is_run_again_by_whoever_asks_next() -> None:
    workers = Workers()
    claims = Claims(workers.ask)
    await claims.claim("a", CLAIM)
    assert await claims.claim("b", CLAIM) is None
    workers.kept["b"] = KEPT
    assert await claims.claim("a", CLAIM) == KEPT


async def test_of_several_that_waited_in_vain_one_runs_it() -> None:
    workers = Workers()
    claims = Claims(workers.ask)
    loop = asyncio.get_running_loop()
    running = workers.kept["a"] = loop.create_future()
    await claims.claim("a", CLAIM)
    waiting = [asyncio.create_task(claims.claim(worker, CLAIM)) for worker in "bc"]
    await asyncio.sleep(0)
    workers.kept["b"] = workers.kept["c"] = loop.create_future()
    running.set_result(None)
    done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result() for task in done] == [None]
    assert len(rest) == 1
    workers.kept["b"].set_result(KEPT)
    assert [await task for task in rest] == [KEPT]


async def test_who_runs_it_again_itself_is_waited_for_again() -> None:
    """Its first call was cancelled, and a second one of its own has begun, when another worker learns that nothing was kept."""
    workers = Workers()
    claims = Claims(workers.ask)
    loop = asyncio.get_running_loop()
    first = workers.kept["a"] = loop.create_future()
    await claims.claim("a", CLAIM)
    waiting = asyncio.create_task(claims.claim("b", CLAIM))
    await asyncio.sleep(0)
    second = workers.kept["a"] = loop.create_future()
    assert await claims.claim("a", CLAIM) is None
    first.set_result(None)
    second.set_result(KEPT)
    assert await waiting == KEPT


async def test_who_has_ended_is_not_asked() -> None:
    workers = Workers()
    claims = Claims(workers.ask)
    await claims.claim("a", CLAIM)
    claims.leave("a")
    assert await claims.claim("b", CLAIM) is None
    assert workers.asked == []


async def test_the_oldest_are_forgotten() -> None:
    claims = Claims(Workers().ask, most=2)
    for number in range(5):
        await claims.claim("a", Claim("dev", b"%d" % number, b""))
    assert len(claims) == 2
