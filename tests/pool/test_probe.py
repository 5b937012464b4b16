"""Probing: what counts as an answer, what is learnt from it, and that no backend's state stops the probing of another."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

import pytest

from gateway.pool.backend import Backend
from gateway.pool.breaker import Breaker
from gateway.pool.http1 import Http1Transport
from gateway.pool.probe import Found, Prober, probe
from gateway.pool.replicas import NoneLive, Replicas
from gateway.pool.transport import Broken, ConnectFailed, Tap, Upstream
from gateway.wire.errors import Header
from tests.pool.answers import OK
from tests.pool.making import made
from tests.pool.scripted import WITH_CLOCK, Peer, answering, clock, eventually, scripted, turns

pytestmark = [WITH_CLOCK, pytest.mark.usefixtures("watched")]

CARDS = b'{"object":"list","data":[{"id":"small","object":"model","max_model_len":2048},{"id":"large","object":"model"}]}'


def at(url: str, **more: object) -> Backend:
    return made("b", url, **more)


def said(status: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 " + status + b"\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body


async def probed(answer: bytes, *, close: bool = False, **more: object) -> tuple[Found, Backend]:
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
    assert found == "answered"
    assert asked.probe_error is None
    assert {name: card.max_model_len for name, card in asked.cards.items()} == {"small": 2048, "large": None}


@pytest.mark.parametrize("status", [b"400 No", b"401 No", b"403 No", b"404 No", b"405 No", b"429 Slow Down", b"501 Not Implemented"])
async def test_a_refusal_comes_from_an_engine_that_runs(status: bytes) -> None:
    found, asked = await probed(said(status, b"{}"))
    assert found == "answered"
    assert asked.probe_error == f"status {status[:3].decode()}"
    assert not asked.cards


@pytest.mark.parametrize("status", [b"302 Found", b"408 Late", b"500 No", b"502 Bad Gateway", b"503 Starting", b"600 Odd"])
async def test_anything_else_tells_nothing(status: bytes) -> None:
    """llama.cpp and proxies answer 503 or 502 while the model loads."""
    found, asked = await probed(said(status, CARDS))
    assert found == "unknown"
    assert asked.probe_error == f"status {status[:3].decode()}"
    assert not asked.cards


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"data": 1}', b'{"data": [1]}', b'{"data": [{}]}', b'{"data": [{"id": 1}]}', b"\xff"]
)
async def test_an_answer_that_lists_nothing_is_one_all_the_same(body: bytes) -> None:
    found, asked = await probed(said(b"200 OK", body))
    assert found == "answered"
    assert asked.probe_error
    assert not asked.cards


async def test_what_was_known_stays_when_an_answer_cannot_be_read() -> None:
    transport = Http1Transport()
    async with answering(said(b"200 OK", CARDS)) as server:
        asked = at(server.url.removesuffix("/v1/x"))
        assert await probe(transport, asked) == "answered"
    async with answering(said(b"200 OK", b"<html>")) as other:
        asked.url = other.url.removesuffix("/v1/x")
        assert await probe(transport, asked) == "answered"
    assert set(asked.cards) == {"small", "large"}
    await transport.close()


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{", b"garbage\r\n\r\n"])
async def test_no_answer(answer: bytes) -> None:
    found, asked = await probed(answer, close=True)
    assert found == "unknown"
    assert asked.probe_error


async def test_no_connection(unused_tcp_port: int) -> None:
    transport = Http1Transport()
    asked = at(f"http://127.0.0.1:{unused_tcp_port}")
    assert await probe(transport, asked) == "unreachable"
    assert asked.probe_error == "no connection: ConnectionRefusedError"
    await transport.close()


async def test_its_connection_is_its_own() -> None:
    """A connection that was kept would tell nothing of whether there can be another, and might be one that the traffic needs."""
    transport = Http1Transport()
    async with answering(said(b"200 OK", CARDS)) as server:
        asked = at(server.url.removesuffix("/v1/x"))
        upstream = await transport.send("GET", server.url, [], b"", 5.0)
        while await upstream.read_some():
            pass
        upstream.release()
        await probe(transport, asked)
        assert [peer.number for peer in server.peers] == [0, 1]
    await transport.close()


async def test_when_it_was_is_known() -> None:
    asked = at("http://b")
    assert asked.probed_at is None
    assert asked.probe_age_s is None
    before = time.monotonic()
    await probe(Answers(b=200), asked)
    assert asked.probed_at is not None
    assert before <= asked.probed_at <= time.monotonic()
    asked.probed_at -= 60.0
    assert asked.probe_age_s is not None
    assert 60.0 <= asked.probe_age_s < 90.0


async def test_the_key_of_the_traffic_is_used() -> None:
    transport = Http1Transport()
    async with answering(said(b"200 OK", CARDS)) as server:
        await probe(transport, at(server.url.removesuffix("/v1/x"), key="sk-1"))
        assert dict(server.requests[0].headers)[b"authorization"] == b"Bearer sk-1"
    await transport.close()


@pytest.mark.parametrize("part", [b"", OK, OK + b"content-length: 5\r\n\r\nhe"])
async def test_a_black_hole_does_not_hold_a_probe(part: bytes) -> None:
    """It takes the request, and perhaps begins to answer; five seconds after it may have connected the probe is over, its socket closed."""
    transport = Http1Transport()
    async with answering(part) as server:
        task = asyncio.create_task(probe(transport, at(server.url.removesuffix("/v1/x"), timeouts={"connect_s": 2})))
        await eventually(lambda: len(server.requests) == 1)
        await turns(10)
        await clock().pass_time(6.9)
        assert not task.done()
        await clock().pass_time(0.2)
        assert await task == "unknown"
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
        assert await probe(transport, at(server.url.removesuffix("/v1/x"))) == "answered"
    assert sent < 40_000_000
    await transport.close()


# -- the prober


class Answers:
    """A transport whose backends answer by host: a status, a body, an exception, or None: nothing at all."""

    def __init__(self, **hosts: int | bytes | Exception | None) -> None:
        self.hosts = hosts
        self.asked: list[str] = []

    async def send(self, _method: str, url: str, *_args: object, **_more: object) -> Upstream:
        host = url.split("/")[2]
        self.asked.append(host)
        told = self.hosts[host]
        if told is None:
            await asyncio.Event().wait()
        if isinstance(told, Exception):
            raise told
        return Told(told) if isinstance(told, int) else Told(200, told or b"")

    async def close(self) -> None:
        pass


class Gone(Answers):
    """Hosts that say nothing are not there: connecting to them takes five seconds to fail."""

    async def send(self, _method: str, url: str, *_args: object, **_more: object) -> Upstream:
        host = url.split("/")[2]
        if self.hosts[host] is None:
            self.asked.append(host)
            await asyncio.sleep(5.0)
            raise ConnectFailed("TimeoutError")
        return await super().send(_method, url)


class Told:
    """An answer."""

    headers: Sequence[Header] = ()

    def __init__(self, status: int, body: bytes = b"") -> None:
        self.status = status
        self.body = body

    def whole(self) -> bytes | None:
        return None

    async def read_some(self, tap: Tap | None = None) -> bytes:  # noqa: ARG002
        body, self.body = self.body, b""
        return body

    def release(self) -> None:
        pass

    def close(self) -> None:
        pass


REFUSED = ConnectFailed("ConnectionRefusedError")


def probes() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("probe ")}


def named(name: str, **more: object) -> Backend:
    found = made(name, **more)
    found.breaker = Breaker(clock().time)
    return found


@asynccontextmanager
async def probing(transport: Answers, backends: Iterable[Backend]) -> AsyncIterator[Prober]:
    """A prober whose first probes are over."""
    async with asyncio.TaskGroup() as group:
        prober = Prober(transport, group)
        prober.watch(backends)
        await turns(5)
        try:
            yield prober
        finally:
            prober.stop()


async def pass_time(seconds: float) -> None:
    """In small steps, so that what is due happens in its turn."""
    for _ in range(round(seconds * 10)):
        await clock().pass_time(0.1)


async def test_after_a_reload_only_those_in_use_are_probed() -> None:
    """One generation: what a reload has removed is neither asked nor complained of."""
    transport = Answers(a=200, b=200, c=200)
    a, b, c = named("a"), named("b"), named("c")
    async with probing(transport, [a, b]) as prober:
        assert probes() == {"probe a", "probe b"}
        assert (a.answered, b.answered, c.answered) == (True, True, False)
        prober.watch([b, c])
        await turns(5)
        assert probes() == {"probe b", "probe c"}
        assert sorted(transport.asked) == ["a", "b", "c"]
        transport.asked.clear()
        await clock().pass_time(31.0)
        assert sorted(transport.asked) == ["b", "c"]
        prober.stop()
        await turns(5)
        assert not probes()


async def test_a_disabled_backend_is_not_probed() -> None:
    transport = Answers(a=200)
    a = named("a")
    a.disabled = True
    async with probing(transport, [a]) as prober:
        await pass_time(60.0)
        assert not transport.asked
        a.disabled = False
        prober.watch([a])
        await turns(5)
        assert transport.asked == ["a"]


async def test_often_until_it_answers_then_at_leisure() -> None:
    transport = Answers(a=REFUSED)
    a = named("a")
    async with probing(transport, [a]):
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


async def test_a_fault_in_one_probe_ends_neither_it_nor_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """The probes share a task group with everything else that the gateway runs: what one of them raised would end it all."""
    transport = Answers(a=ZeroDivisionError("a fault of our own"), b=200)
    a, b = named("a"), named("b")
    with caplog.at_level(logging.ERROR, "trilemma.pool"):
        async with probing(transport, [a, b]):
            assert (a.answered, b.answered) == (False, True)
            assert "probe a failed" in caplog.text
            assert "a fault of our own" in caplog.text
            assert a.probe_error == "a fault of the gateway's own: ZeroDivisionError"
            assert a.breaker.state == "closed"
            transport.hosts["a"] = CARDS
            await clock().pass_time(5.1)
            assert a.answered
            assert a.probe_error is None


async def test_one_that_does_not_answer_does_not_hold_up_the_others() -> None:
    transport = Answers(a=None, b=200)
    a, b = named("a"), named("b")
    async with probing(transport, [a, b]):
        assert (a.answered, b.answered) == (False, True)
        await pass_time(31.0)
        assert transport.asked.count("b") == 2
        assert a.probe_error == "no answer in time"


# -- a backend that dies


async def test_an_idle_backend_that_died_is_noticed_before_a_call_pays_for_it(caplog: pytest.LogCaptureFixture) -> None:
    transport = Answers(a=200, b=200)
    a, b = named("a"), named("b")
    replicas = Replicas("m", [a, b])
    with caplog.at_level(logging.INFO, "trilemma.probe"):
        async with probing(transport, [a, b]):
            transport.hosts["a"] = REFUSED
            await pass_time(31.0)
            assert a.breaker.state == "open"
            assert {replicas.pick(()).name for _ in range(50)} == {"b"}
            for _ in range(600):
                await clock().pass_time(0.1)
                assert not a.breaker.admits(), "however long it takes"
            transport.hosts["a"] = 200
            await pass_time(1.1)
            assert {replicas.pick(()).name for _ in range(50)} == {"a", "b"}, "a second later it is in use again"
            assert a.breaker.state == "closed"
    told = [record.getMessage() for record in caplog.records]
    assert told.count("backend a cannot be reached: no connection: ConnectionRefusedError") == 1
    assert told.count("backend a can be reached again") == 1


async def test_when_the_only_one_died_callers_hear_when_to_come_back_and_none_of_them_tries() -> None:
    transport = Answers(a=200)
    a = named("a")
    replicas = Replicas("m", [a])
    async with probing(transport, [a]):
        transport.hosts["a"] = REFUSED
        await pass_time(31.0)
        with pytest.raises(NoneLive) as none:
            replicas.pick(())
        assert none.value.wait_s is not None
        assert 0 < none.value.wait_s <= 2.0
        transport.hosts["a"] = 200
        await pass_time(1.1)
        assert replicas.pick(()) is a


async def test_after_a_call_found_nobody_there_the_next_to_try_is_a_probe() -> None:
    transport = Answers(a=200)
    a = named("a")
    async with probing(transport, [a]):
        await pass_time(3.0)
        transport.hosts["a"] = REFUSED
        a.breaker.faulted(a.breaker.begin(), "connect")
        await turns(5)
        assert transport.asked == ["a", "a"], "at once"
        for _ in range(100):
            await clock().pass_time(0.1)
            assert not a.breaker.admits()
            assert not a.breaker.admits(early=True)
        transport.hosts["a"] = 200
        await pass_time(1.1)
        assert a.breaker.state == "closed"


async def test_that_a_backend_is_left_alone_is_told(caplog: pytest.LogCaptureFixture) -> None:
    a = named("a")
    async with probing(Answers(a=200), [a]):
        await pass_time(3.0)
        for _ in range(3):
            a.breaker.faulted(a.breaker.begin(), "reset")
        assert a.breaker.state == "open"
    assert "backend a is left alone for 1.0 s after faults of its own" in caplog.text


async def test_a_host_that_is_gone_costs_no_call_the_time_to_connect() -> None:
    """Connecting takes five seconds to fail, the pause after it is one."""

    transport = Gone(a=200)
    a = named("a")
    async with probing(transport, [a]):
        await pass_time(3.0)
        transport.hosts["a"] = None
        a.breaker.faulted(a.breaker.begin(), "connect")
        for _ in range(300):
            await clock().pass_time(0.1)
            assert not a.breaker.admits()
        assert len(transport.asked) == pytest.approx(2 + 30 / 6, abs=1)
        transport.hosts["a"] = 200
        await pass_time(6.1)
        assert a.breaker.state == "closed"


@pytest.mark.parametrize("answer", [401, 403, 404, 405, 500, 502, 503, b"<html>", Broken("garbage"), None], ids=repr)
async def test_whatever_else_a_probe_finds_is_no_word_against_a_backend(answer: int | bytes | Exception | None) -> None:
    """A proxy that does not know the path, an engine that wants another key for it, or is too busy: calls say how it does."""
    transport = Answers(a=200)
    a = named("a")
    async with probing(transport, [a]):
        transport.hosts["a"] = answer
        for _ in range(600):
            await clock().pass_time(0.1)
            assert a.breaker.state == "closed"
        assert a.serves and a.answered
        assert a.probe_error


async def test_a_backend_that_has_never_answered_may_still_be_starting() -> None:
    transport = Answers(a=REFUSED)
    a = named("a")
    async with probing(transport, [a]):
        await pass_time(60.0)
        assert a.breaker.state == "closed"


async def test_a_call_that_succeeds_overrides_a_probe_that_could_not_connect() -> None:
    """It is so busy that it has no room for another connection."""
    transport = Gone(a=200)
    a = named("a")
    async with probing(transport, [a]):
        transport.hosts["a"] = None
        for _ in range(60):
            await pass_time(1.0)
            a.breaker.succeeded(a.breaker.begin())
        assert a.probe_error == "no connection: TimeoutError"
        assert a.breaker.state == "closed"
        await pass_time(12.0)
        assert a.breaker.state == "open", "no call has succeeded for a while"


async def test_a_pause_that_the_backend_asked_for_is_neither_shortened_nor_disturbed() -> None:
    transport = Answers(a=200)
    a = named("a")
    async with probing(transport, [a]):
        transport.asked.clear()
        for _ in range(20):
            a.breaker.faulted(a.breaker.begin(early=True), "rate_limit", 60.0)
            await turns(5)
        assert not transport.asked, "it wanted to be left alone"
        until = clock().time() + a.breaker.wait_s
        await pass_time(58.0)
        assert len(transport.asked) >= 1
        assert a.breaker.asked
        assert clock().time() + a.breaker.wait_s == pytest.approx(until, abs=0.5)


@pytest.mark.parametrize("state", ["closed", "open", "half_open"])
async def test_an_engine_that_answers_is_not_asked_more_often_than_every_five_seconds(state: str) -> None:
    """llama.cpp notices that a caller has left only while nobody talks to it for a second."""
    transport = Answers(a=200)
    a = named("a", engine="llama.cpp")
    async with probing(transport, [a]):
        await pass_time(1.0)
        if state != "closed":
            a.breaker.faulted(a.breaker.begin(), "timeout", 100.0 if state == "open" else 0.0)
        await turns(5)
        transport.asked.clear()
        await pass_time(60.0)
        assert a.breaker.state == state
        assert len(transport.asked) == (2 if state == "closed" else pytest.approx(12, abs=1))


# -- another model


def listing(root: str, *names: str) -> bytes:
    return json.dumps({"object": "list", "data": [{"id": name, "object": "model", "root": root} for name in names]}).encode()


async def test_a_backend_behind_which_another_model_answers_gets_no_calls_until_the_first_one_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    transport = Answers(a=listing("/models/one", "m"), b=listing("/models/one", "m"))
    a, b = named("a", engine="vllm"), named("b", engine="vllm")
    replicas = Replicas("m", [a, b])
    with caplog.at_level(logging.INFO, "trilemma.probe"):
        async with probing(transport, [a, b]):
            assert {replicas.pick(()).name for _ in range(50)} == {"a", "b"}
            transport.hosts["a"] = listing("/models/two", "m")
            await pass_time(100.0)
            assert a.strangers == {"m": "root is '/models/two', it was '/models/one'"}
            assert a.breaker.state == "closed", "it does what it does well"
            assert {replicas.pick(()).name for _ in range(50)} == {"b"}
            transport.hosts["a"] = listing("/models/one", "m")
            await pass_time(31.0)
            assert not a.strangers
            assert {replicas.pick(()).name for _ in range(50)} == {"a", "b"}
    told = [record.getMessage() for record in caplog.records]
    assert told.count("backend a does not serve m any longer: root is '/models/two', it was '/models/one'") == 1
    assert told.count("backend a serves m again") == 1


async def test_an_operator_may_accept_the_other_model() -> None:
    transport = Answers(a=listing("/models/one", "m"))
    a = named("a", engine="vllm")
    replicas = Replicas("m", [a])
    async with probing(transport, [a]):
        transport.hosts["a"] = listing("/models/two", "m")
        await pass_time(31.0)
        with pytest.raises(NoneLive) as none:
            replicas.pick(())
        assert none.value.wait_s is None
        a.accept()
        assert replicas.pick(()) is a
        await pass_time(31.0)
        assert not a.strangers
