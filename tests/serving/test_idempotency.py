"""A repeated request with the same `Idempotency-Key` gets the first answer again."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from gateway.mock import Behaviour, MockBackend
from gateway.serving.call import Answer
from gateway.serving.idempotency import Idempotency
from gateway.wire.errors import ApiError
from tests.support.running import Running

CHAT = {"model": "mock-model", "messages": [{"role": "user", "content": "hi"}]}


async def test_a_repeat_gets_the_first_answer_and_the_backend_one_request(client: httpx.AsyncClient, mock: MockBackend) -> None:
    first = await client.post("/v1/chat/completions", json=CHAT, headers={"Idempotency-Key": "k1"})
    again = await client.post("/v1/chat/completions", json=CHAT, headers={"Idempotency-Key": "k1"})
    assert again.content == first.content
    assert again.headers["x-trilemma-replayed"] == "true"
    assert again.headers["x-trilemma-decision-id"] == first.headers["x-trilemma-decision-id"]
    assert len(mock.requests_to("/v1/chat/completions")) == 1
    other = await client.post("/v1/chat/completions", json=CHAT, headers={"Idempotency-Key": "k2"})
    assert "x-trilemma-replayed" not in other.headers


async def test_a_repeat_while_the_first_runs_waits_for_it(client: httpx.AsyncClient, mock: MockBackend) -> None:
    mock.script(Behaviour(delay_headers_s=0.2))
    answers = await asyncio.gather(*(client.post("/v1/chat/completions", json=CHAT, headers={"Idempotency-Key": "k"}) for _ in range(5)))
    assert len({answer.content for answer in answers}) == 1
    assert len(mock.requests_to("/v1/chat/completions")) == 1


async def test_the_key_with_another_request_is_refused(client: httpx.AsyncClient) -> None:
    await client.post("/v1/chat/completions", json=CHAT, headers={"Idempotency-Key": "k"})
    other = await client.post("/v1/chat/completions", json=CHAT | {"max_tokens": 3}, headers={"Idempotency-Key": "k"})
    assert other.status_code == 409
    assert other.json()["error"]["code"] == "caller_idempotency_conflict"


async def test_a_failure_is_not_kept(client: httpx.AsyncClient, mock: MockBackend) -> None:
    mock.script(Behaviour(status=500))
    failed = await client.post("/v1/chat/completions", json=CHAT, headers={"Idempotency-Key": "k"})
    assert failed.status_code == 500
    again = await client.post("/v1/chat/completions", json=CHAT, headers={"Idempotency-Key": "k"})
    assert again.status_code == 200


async def test_a_client_that_leaves_does_not_take_the_answer_from_the_one_that_waits(
    gateway: Running, client: httpx.AsyncClient, mock: MockBackend
) -> None:
    mock.script(Behaviour(never_answer=True))
    first = asyncio.create_task(client.post("/v1/chat/completions", json=CHAT, headers={"Idempotency-Key": "k"}))
    await mock.wait_for(lambda m: bool(m.requests_to("/v1/chat/completions")))
    second = asyncio.create_task(client.post("/v1/chat/completions", json=CHAT, headers={"Idempotency-Key": "k"}))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).status_code == 200
    assert gateway.in_flight() == 0


async def test_bounds() -> None:
    runs = 0

    async def run() -> Answer:
        nonlocal runs
        runs += 1
        return Answer(200, [], b"x" * 10)

    kept = Idempotency(entries=2, max_bytes=25)
    for key in (b"a", b"b", b"c"):
        await kept.once("me", key, ("/", b""), run)
    await kept.once("me", b"c", ("/", b""), run)
    assert runs == 3
    await kept.once("me", b"a", ("/", b""), run)  # the oldest had to go
    assert runs == 4
    await kept.once("you", b"a", ("/", b""), run)  # another caller's keys are another's
    assert runs == 5
    with pytest.raises(ApiError):
        await kept.once("me", b"", ("/", b""), run)


async def test_what_still_runs_keeps_no_answer_from_going() -> None:
    """Bounds hold although the oldest request has not ended."""
    release = asyncio.Event()

    async def slow() -> Answer:
        await release.wait()
        return Answer(200, [], b"slow")

    async def quick() -> Answer:
        return Answer(200, [], b"x" * 10)

    kept = Idempotency(entries=3, max_bytes=25)
    first = asyncio.create_task(kept.once("me", b"slow", ("/", b""), slow))
    await asyncio.sleep(0)
    for number in range(10):
        await kept.once("me", b"%d" % number, ("/", b""), quick)
    assert len(kept) == 3
    release.set()
    assert (await first).body == b"slow"
    assert (await kept.once("me", b"slow", ("/", b""), quick)).body == b"slow"


async def test_one_that_outran_its_own_time_is_not_counted_twice() -> None:
    """A request that runs for longer than answers are kept is run again by a repeat, and whichever ends last is kept."""
    release = asyncio.Event()

    async def slow() -> Answer:
        await release.wait()
        return Answer(200, [], b"slow")

    async def quick() -> Answer:
        return Answer(200, [], b"quick")

    kept = Idempotency(ttl_s=0.0)
    first = asyncio.create_task(kept.once("me", b"k", ("/", b""), slow))
    await asyncio.sleep(0)
    assert (await kept.once("me", b"k", ("/", b""), quick)).body == b"quick"
    release.set()
    assert (await first).body == b"slow"
    assert len(kept) == 0


@pytest.mark.parametrize("other", ["?a=2", ""])
async def test_the_key_with_another_query_is_another_request(client: httpx.AsyncClient, other: str) -> None:
    await client.post("/v1/chat/completions?a=1", json=CHAT, headers={"Idempotency-Key": "k"})
    assert (await client.post("/v1/chat/completions" + other, json=CHAT, headers={"Idempotency-Key": "k"})).status_code == 409


async def test_every_repeat_is_accounted_once(gateway: Running, client: httpx.AsyncClient, mock: MockBackend) -> None:
    """One that got a kept answer, and one whose client left while it waited for the first: ended requests all, without tokens."""
    await client.post("/v1/chat/completions", json=CHAT, headers={"Idempotency-Key": "k1"})
    await client.post("/v1/chat/completions", json=CHAT, headers={"Idempotency-Key": "k1"})
    assert [(each.status, each.outcome, each.usage is None) for each in gateway.settled] == [(200, "ok", False), (200, "ok", True)]
    mock.script(Behaviour(delay_headers_s=1.0))
    first = asyncio.create_task(client.post("/v1/chat/completions", json=CHAT, headers={"Idempotency-Key": "k2"}))
    await mock.wait_for(lambda m: len(m.requests_to("/v1/chat/completions")) == 2)
    async with gateway.client() as other:
        with pytest.raises(httpx.ReadTimeout):
            await other.post("/v1/chat/completions", json=CHAT, headers={"Idempotency-Key": "k2"}, timeout=0.4)
    assert (await first).status_code == 200
    await gateway.until_settled(4)
    assert sorted(str(each.outcome) for each in gateway.settled[2:]) == ["client_closed", "ok"]


async def test_other_processes_are_asked_before_it_runs() -> None:
    """What another one has is given as a repeat is, and kept; what none has runs here."""
    asked: list[tuple[str, bytes]] = []
    theirs = Answer(200, [(b"x-request-id", b"first")], b"theirs")

    async def claim(caller: str, key: bytes, _digest: bytes) -> Answer | None:
        asked.append((caller, key))
        return theirs if key == b"known" else None

    async def run() -> Answer:
        return Answer(200, [], b"ours")

    idempotency = Idempotency(claim=claim)
    for _ in range(2):
        replayed = await idempotency.once("dev", b"known", ("POST /v1/x", b"{}"), run)
        assert (replayed.body, replayed.headers) == (b"theirs", [(b"x-request-id", b"first"), (b"x-trilemma-replayed", b"true")])
    ours = await idempotency.once("dev", b"new", ("POST /v1/x", b"{}"), run)
    assert (ours.body, ours.headers) == (b"ours", [])
    assert asked == [("dev", b"known"), ("dev", b"new")]


async def test_what_another_process_is_told_that_asks() -> None:
    go = asyncio.Event()
    digests: list[bytes] = []

    async def claim(_caller: str, _key: bytes, digest: bytes) -> Answer | None:
        digests.append(digest)
        return None

    async def run() -> Answer:
        await go.wait()
        return Answer(200, [], b"ours")

    idempotency = Idempotency(claim=claim)
    assert await idempotency.kept("dev", b"k", b"digest") is None
    running = asyncio.create_task(idempotency.once("dev", b"k", ("POST /v1/x", b"{}"), run))
    await asyncio.sleep(0)
    with pytest.raises(ApiError) as refused:
        await idempotency.kept("dev", b"k", b"another request")
    assert refused.value.status == 409
    waiting = asyncio.create_task(idempotency.kept("dev", b"k", digests[0]))
    await asyncio.sleep(0)
    assert not waiting.done()
    go.set()
    await running
    kept = await waiting
    assert kept is not None and kept.body == b"ours"
