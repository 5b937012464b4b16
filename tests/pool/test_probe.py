"""Probing: what counts as an answer, what is learnt from it, and that no backend's state stops the probing of another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest

from gateway.config.schema import Backend as Spec
from gateway.pool.backend import Backend, backend
from gateway.pool.http1 import Http1Transport
from gateway.pool.probe import Prober, probe
from gateway.pool.transport import ConnectFailed, Upstream
from gateway.wire.errors import Header
from tests.pool.answers import OK
from tests.pool.scripted import WITH_CLOCK, Peer, answering, clock, eventually, scripted, turns

pytestmark = [WITH_CLOCK, pytest.mark.usefixtures("watched")]

CARDS = b'{"object":"list","data":[{"id":"small","object":"model","max_model_len":2048},{"id":"large","object":"model"}]}'


def at(url: str, **more: object) -> Backend:
    return backend("b", Spec.model_validate({"url": url, "models": {"m": "m"}} | more), url)


def said(status: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 " + status + b"\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body


async def probed(answer: bytes, *, close: bool = False, **more: object) -> tuple[bool, Backend]:
    transport = Http1Transport()
    async with answering(answer, close=close) as server:
        asked = at(server.url.removesuffix("/x"), **more)
        found = await probe(transport, asked)
        assert server.requests[0].line == b"GET /v1/models HTTP/1.1"
        await eventually(lambda: transport.connections == 0)
    await transport.close()
    return found, asked


async def test_cards_are_read() -> None:
    found, asked = await probed(said(b"200 OK", CARDS))
    assert found
    assert {name: card.max_model_len for name, card in asked.cards.items()} == {"small": 2048, "large": None}


@pytest.mark.parametrize("status", [b"401 Unauthorized", b"403 Forbidden", b"404 Not Found", b"405 Method Not Allowed"])
async def test_a_refusal_comes_from_an_engine_that_runs(status: bytes) -> None:
    found, asked = await probed(said(status, b"{}"))
    assert found
    assert not asked.cards


@pytest.mark.parametrize("status", [b"302 Found", b"500 No", b"502 Bad Gateway", b"503 Starting", b"600 Odd"])
async def test_anything_else_does_not(status: bytes) -> None:
    """llama.cpp and proxies answer 503 or 502 while the model loads."""
    found, asked = await probed(said(status, CARDS))
    assert not found
    assert not asked.cards


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"data": 1}', b'{"data": [1]}', b'{"data": [{}]}', b'{"data": [{"id": 1}]}', b"\xff"]
)
async def test_an_answer_that_lists_nothing_is_one_all_the_same(body: bytes) -> None:
    found, asked = await probed(said(b"200 OK", body))
    assert found
    assert not asked.cards


async def test_what_was_known_stays_when_an_answer_cannot_be_read() -> None:
    transport = Http1Transport()
    async with answering(said(b"200 OK", CARDS)) as server:
        asked = at(server.url.removesuffix("/v1/x"))
        assert await probe(transport, asked)
    async with answering(said(b"200 OK", b"<html>")) as other:
        asked.url = other.url.removesuffix("/v1/x")
        assert await probe(transport, asked)
    assert set(asked.cards) == {"small", "large"}
    await transport.close()


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{", b"garbage\r\n\r\n"])
async def test_no_answer(answer: bytes) -> None:
    assert not (await probed(answer, close=True))[0]


async def test_the_key_of_the_traffic_is_used() -> None:
    transport = Http1Transport()
    async with answering(said(b"200 OK", CARDS)) as server:
        assert await probe(transport, at(server.url.removesuffix("/v1/x"), key="sk-1"))
        assert dict(server.requests[0].headers)[b"authorization"] == b"Bearer sk-1"
    await transport.close()


@pytest.mark.parametrize("part", [b"", OK, OK + b"content-length: 5\r\n\r\nhe"])
async def test_a_black_hole_does_not_hold_a_probe(part: bytes) -> None:
    """It takes the request, and perhaps begins to answer; five seconds later the probe is over and its socket closed."""
    transport = Http1Transport()
    async with answering(part) as server:
        task = asyncio.create_task(probe(transport, at(server.url.removesuffix("/v1/x"))))
        await eventually(lambda: len(server.requests) == 1)
        await turns(10)
        await clock().pass_time(4.9)
        assert not task.done()
        await clock().pass_time(0.2)
        assert not await task
        await eventually(lambda: transport.connections == 0 and not server.tasks)
    await transport.close()


async def test_an_answer_without_end_is_not_read_to_it() -> None:
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        await peer.send(OK + b"transfer-encoding: chunked\r\n\r\n")
        while True:
            await peer.send(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            sent += 0x10000

    transport = Http1Transport()
    async with scripted(script) as server:
        assert await probe(transport, at(server.url.removesuffix("/v1/x")))
    assert sent < 40_000_000
    await transport.close()


# -- the prober


class Answers:
    """A transport whose backends answer by host: a status, or an exception."""

    def __init__(self, **hosts: int | Exception) -> None:
        self.hosts = hosts
        self.asked: list[str] = []

    async def send(self, _method: str, url: str, *_args: object) -> Upstream:
        host = url.split("/")[2]
        self.asked.append(host)
        told = self.hosts[host]
        if isinstance(told, Exception):
            raise told
        return Told(told)

    async def close(self) -> None:
        pass


class Told:
    """An answer without body."""

    headers: Sequence[Header] = ()

    def __init__(self, status: int) -> None:
        self.status = status

    async def read_some(self) -> bytes:
        return b""

    def release(self) -> None:
        pass

    def close(self) -> None:
        pass


def probes() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("probe ")}


def named(name: str) -> Backend:
    return backend(name, Spec.model_validate({"url": f"http://{name}", "models": {"m": "m"}}), f"http://{name}")


async def test_one_task_per_backend_and_watching_again_replaces_the_set() -> None:
    transport = Answers(a=200, b=200, c=200)
    a, b, c = named("a"), named("b"), named("c")
    async with asyncio.TaskGroup() as group:
        prober = Prober(transport, group)
        prober.watch([a, b])
        await turns(5)
        assert probes() == {"probe a", "probe b"}
        assert (a.answered, b.answered, c.answered) == (True, True, False)
        prober.watch([b, c])
        await turns(5)
        assert probes() == {"probe b", "probe c"}
        assert sorted(transport.asked) == ["a", "b", "c"]
        prober.stop()
        await turns(5)
        assert not probes()


async def test_often_until_it_answers_then_at_leisure() -> None:
    transport = Answers(a=ConnectFailed("no"))
    a = named("a")
    async with asyncio.TaskGroup() as group:
        prober = Prober(transport, group)
        prober.watch([a])
        await turns(5)
        times = 0
        while len(transport.asked) < 20:
            await clock().pass_time(0.1)
            times += 1
        assert 10 < times < 1_000  # it backs off, to 5 s at the most
        assert not a.answered
        transport.hosts["a"] = 200
        await clock().pass_time(5.0)
        assert a.answered
        seen = len(transport.asked)
        await clock().pass_time(29.0)
        assert len(transport.asked) == seen
        await clock().pass_time(1.5)
        assert len(transport.asked) == seen + 1
        prober.stop()


async def test_a_fault_in_one_probe_ends_neither_it_nor_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """The probes share a task group with everything else that the gateway runs: what one of them raised would end it all."""
    transport = Answers(a=ZeroDivisionError("a fault of our own"), b=200)
    a, b = named("a"), named("b")
    async with asyncio.TaskGroup() as group:
        prober = Prober(transport, group)
        with caplog.at_level(logging.ERROR, "trilemma.probe"):
            prober.watch([a, b])
            await turns(5)
        assert (a.answered, b.answered) == (False, True)
        assert "probing backend a failed" in caplog.text
        assert "a fault of our own" in caplog.text
        transport.hosts["a"] = 200
        await clock().pass_time(5.0)
        assert a.answered
        prober.stop()
