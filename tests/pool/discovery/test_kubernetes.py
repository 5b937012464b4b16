"""Kubernetes: after whatever the API server and the network do, the replicas are those that the API server has."""

# ruff: noqa: ASYNC240 - the files are the test's own, and small
from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway import __version__
from gateway.pool.discovery.cluster import Cluster
from gateway.pool.discovery.kubernetes import SILENCE_S, WATCH_S, Kubernetes
from gateway.pool.discovery.source import Failed
from gateway.pool.discovery.spec import KubernetesSpec
from gateway.pool.http1 import Http1Transport
from gateway.pool.transport import ConnectFailed
from tests.pool.discovery.api_server import (
    HTTP,
    LAST_CHUNK,
    SERVICE,
    ApiServer,
    Fault,
    chunk,
    leaving,
    line,
    pod,
    refusal,
    resets,
    says,
    slice_,
    status,
    whole,
)
from tests.pool.discovery.reading import Reading
from tests.pool.scripted import BOTH_LOOPS, WITH_CLOCK, Peer, clock, eventually, scripted

pytestmark = BOTH_LOOPS

A, B, C = "http://10.0.0.1:8000", "http://10.0.0.2:8000", "http://10.0.0.3:8000"
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
EVENTLESS = says(STREAM, LAST_CHUNK)


@asynccontextmanager
async def watching(
    api: ApiServer,
    *,
    spec: KubernetesSpec | None = None,
    token_file: Path | None = None,
    now: Callable[[], float] = lambda: 0.0,
) -> AsyncIterator[Reading]:
    """A source that watches this server; its pauses are not shortened by chance, and its clock stands still."""
    reading = Reading()
    async with scripted(api) as served:
        api.url = served.url.removesuffix("/v1/x")
        cluster = Cluster(api.url, "inference", token_file)
        source = Kubernetes(
            spec or KubernetesSpec(SERVICE, port="http"), cluster, Http1Transport, sleep=reading.sleep, clock=now, draw=lambda: 0.0
        )
        async with reading.of(source):
            yield reading


@pytest.fixture
def api() -> ApiServer:
    """A server with one slice of one pod."""
    api = ApiServer()
    api.put(slice_("a", [pod("10.0.0.1")]))
    return api


async def watched(reading: Reading, api: ApiServer) -> None:
    """The first list, and the watch that follows it."""
    assert await reading.found() == [A]
    assert await reading.found() == [A]
    await eventually(lambda: api.watches == 1)


# -- all is well


async def test_what_is_there_is_listed_and_what_changes_is_watched(api: ApiServer) -> None:
    async with watching(api) as reading:
        await watched(reading, api)
        api.put(slice_("b", [pod("10.0.0.3"), pod("10.0.0.2")]))
        assert await reading.found() == [A, B, C]
        api.put(slice_("a", [pod("10.0.0.1", ready=False)]))
        assert await reading.found() == [B, C]
        api.delete("b")
        assert await reading.found() == []
        api.put(slice_("a", [leaving("10.0.0.1")]))
        assert await reading.found() == [A]
    assert [query for query, _ in api.requests] == [
        {},
        {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": "1001", "timeoutSeconds": str(WATCH_S)},
    ]
    assert reading.pauses == []


async def test_it_says_who_asks_and_for_what(api: ApiServer) -> None:
    async with watching(api) as reading:
        await watched(reading, api)
    for _, headers in api.requests:
        assert headers[b"accept"] == b"application/json"
        assert headers[b"user-agent"] == f"trilemma/{__version__}".encode()
        assert b"authorization" not in headers


async def test_no_slices_are_believed() -> None:
    api = ApiServer()
    async with watching(api) as reading:
        assert await reading.found() == []
        assert await reading.found() == []
        await eventually(lambda: api.watches == 1)
        api.put(slice_("a", [pod("10.0.0.1")]))
        assert await reading.found() == [A]


async def test_a_list_in_parts_is_one(api: ApiServer) -> None:
    api.put(slice_("b", [pod("10.0.0.2")]))
    api.put(slice_("c", [pod("10.0.0.3")]))
    api.page = 2
    async with watching(api) as reading:
        assert await reading.found() == [A, B, C]
    assert [query for query, _ in api.requests] == [{}, {"continue": "2"}]


async def test_events_in_any_pieces_are_read(api: ApiServer) -> None:
    api.split = lambda data: [data[at : at + 7] for at in range(0, len(data), 7)]
    async with watching(api) as reading:
        await watched(reading, api)
        api.put(slice_("b", [pod("10.0.0.2")]))
        assert await reading.found() == [A, B]


async def test_events_that_come_together_are_one_change(api: ApiServer) -> None:
    """As when a pod moves from one slice to another."""
    moves = slice_("a", []), slice_("b", [pod("10.0.0.1")])
    for each in moves:
        each["metadata"]["resourceVersion"] = "1005"
    api.faults += [
        says(whole(200, json.dumps(api._list({})).encode())),
        says(STREAM + chunk(b"".join(line("MODIFIED", each) for each in moves)) + LAST_CHUNK),
    ]
    async with watching(api) as reading:
        assert [await reading.found() for _ in range(3)] == [[A], [A], [A]]
        await reading.next()
    assert api.requests[-1][0]["resourceVersion"] == "1005"


async def test_a_watch_goes_on_from_the_last_version_it_heard_of(api: ApiServer) -> None:
    async with watching(api) as reading:
        await watched(reading, api)
        for _ in range(3):
            api.elsewhere()
            api.bookmark()
            assert await reading.found() == [A]
            api.forget()
            api.end()
            assert await reading.found() == [A]
            await eventually(lambda: api.watches == 1)
    assert [query.get("resourceVersion") for query, _ in api.requests] == [None, "1001", "1002", "1003", "1004"]


async def test_a_watch_that_lasted_is_followed_by_the_next_at_once(api: ApiServer) -> None:
    now = 0.0
    async with watching(api, now=lambda: now) as reading:
        await watched(reading, api)
        for _ in range(4):
            api.elsewhere()
            api.bookmark()
            await reading.found()
            now += WATCH_S
            api.end()
            await reading.found()
            await eventually(lambda: api.watches == 1)
    assert reading.pauses == [0.2] * 4


# -- history that is gone


@pytest.mark.parametrize("by_status", [False, True])
async def test_a_version_that_is_gone_is_listed_anew(api: ApiServer, by_status: bool) -> None:
    api.gone_by_status = by_status
    async with watching(api) as reading:
        await watched(reading, api)
        reading.at_pause = lambda: (api.put(slice_("b", [pod("10.0.0.2")])), api.forget())[1] if api.requests[2:] == [] else None
        api.cut()
        assert "the API server at" in await reading.failed()
        if not by_status:
            assert await reading.found() == [A]  # the watch was accepted, and then it was not
        assert await reading.found() == [A, B]
    assert ["watch" in query for query, _ in api.requests] == [False, True, True, False]


async def test_history_that_goes_while_it_is_watched(api: ApiServer) -> None:
    async with watching(api) as reading:
        await watched(reading, api)
        api.slices["a"] = slice_("a", [pod("10.0.0.2")])  # whose event nobody will ever hear
        api.say(line("ERROR", status(410, "Gone", "too old resource version: 1001 (1002)")))
        assert await reading.found() == [B]


async def test_a_watch_that_says_nothing_at_all_is_not_trusted(api: ApiServer) -> None:
    """Some servers that have lost a version end its watch without a word, again and again."""
    async with watching(api) as reading:
        api.faults.append(says(whole(200, json.dumps(api._list({})).encode())))
        for _ in range(4):
            api.faults += [EVENTLESS, says(whole(200, json.dumps(api._list({})).encode()))]
        for _ in range(4):
            assert await reading.found() == [A]
            assert await reading.found() == [A]
    assert ["watch" in query for query, _ in api.requests[:6]] == [False, True] * 3
    assert reading.pauses == [0.2, 0.4, 0.8]


# -- trouble


FAULTS: dict[str, tuple[Fault, str]] = {
    "500": (refusal(500, "InternalError", "etcdserver: leader changed"), "the API server answered 500: etcdserver: leader changed"),
    "503": (says(whole(503, b"apiserver is shutting down\n", kind=b"text/plain")), "the API server answered 503"),
    "redirect": (says(whole(302, b"", b"location: http://evil/")), "the API server answered 302"),
    "forbidden": (
        refusal(403, "Forbidden", 'endpointslices is forbidden: User "x" cannot list\nresource'),
        'the API server answered 403: endpointslices is forbidden: User "x" cannot list resource',
    ),
    "reset": (resets, "the API server at"),
    "no answer": (says(), "the API server at"),
    "no HTTP": (says(b"SSH-2.0-OpenSSH_9.2\r\n"), "the API server at"),
    "page": (says(whole(200, b"<html>Welcome</html>", kind=b"text/html")), "what the API server said cannot be read as"),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_trouble_is_told_of_and_passes(api: ApiServer, name: str) -> None:
    fault, why = FAULTS[name]
    async with watching(api) as reading:
        api.faults += [fault, fault]
        assert (await reading.failed()).startswith(why)
        assert (await reading.failed()).startswith(why)
        await watched(reading, api)
    assert reading.pauses == [0.2, 0.4]


@pytest.mark.parametrize("name", FAULTS)
async def test_trouble_with_a_watch_loses_nothing(api: ApiServer, name: str) -> None:
    fault, why = FAULTS[name]
    async with watching(api) as reading:
        await watched(reading, api)
        api.cut()
        assert (await reading.failed()).startswith("the API server at")
        api.faults.append(fault)
        api.put(slice_("b", [pod("10.0.0.2")]))
        news = [await reading.next() for _ in range(2)]
        assert any(isinstance(each, Failed) and each.reason.startswith(why) for each in news)
        while await reading.found() != [A, B]:
            pass


LISTS = {
    "empty object": b"{}",
    "other kind": json.dumps({"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": []}).encode(),
    "no version": json.dumps({"kind": "EndpointSliceList", "metadata": {}, "items": []}).encode(),
    "no items": json.dumps({"kind": "EndpointSliceList", "metadata": {"resourceVersion": "1"}}).encode(),
    "strange items": json.dumps({"kind": "EndpointSliceList", "metadata": {"resourceVersion": "1"}, "items": [1]}).encode(),
    "half": json.dumps({"kind": "EndpointSliceList", "metadata": {"resourceVersion": "1"}, "items": []}).encode()[:-9],
    "deep": b'{"kind":"EndpointSliceList","metadata":{"x":' + b"[" * 100_000,
    "nothing": b"",
}


@pytest.mark.parametrize("name", LISTS)
async def test_what_is_no_list_empties_nothing(api: ApiServer, name: str) -> None:
    async with watching(api) as reading:
        api.faults.append(says(whole(200, LISTS[name])))
        assert "the API server" in await reading.failed()
        await watched(reading, api)


EVENTS = {
    "no JSON": b"<html>\n",
    "no event": b"{}\n",
    "other kind of event": line("EXPLODED", slice_("a", []) | {"metadata": {"name": "a", "resourceVersion": "9"}}),
    "other kind of object": line("ADDED", {"kind": "Pod", "metadata": {"name": "a", "resourceVersion": "9"}}),
    "no version": line("MODIFIED", slice_("a", [])),
    "strange object": line("MODIFIED", {"kind": "EndpointSlice", "metadata": {"name": "a", "resourceVersion": "9"}, "endpoints": 3}),
    "error": line("ERROR", status(500, "InternalError", "decoding failed")),
}


@pytest.mark.parametrize("name", EVENTS)
async def test_after_what_is_no_event_all_is_listed_anew(api: ApiServer, name: str) -> None:
    async with watching(api) as reading:
        await watched(reading, api)
        api.say(EVENTS[name])
        assert "the API server" in await reading.failed()
        assert await reading.found() == [A]
    assert "watch" not in api.requests[-1][0]


async def test_an_event_without_end_is_given_up(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.pool.discovery.kubernetes._MAX_LINE", 10_000)
    async with watching(api) as reading:
        await watched(reading, api)
        api.say(b"x" * 20_000)
        assert await reading.failed() == "the API server sent an event without end"
        assert await reading.found() == [A]


async def test_a_list_without_end_is_given_up(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.pool.discovery.kubernetes._MAX_LIST", 10_000)
    async with watching(api) as reading:
        api.faults.append(says(STREAM, chunk(b" " * 20_000)))
        assert await reading.failed() == "the API server's list has no end"
        await watched(reading, api)


@pytest.mark.parametrize("kept", [1, 40, 500])
async def test_an_event_that_was_cut_off_comes_again(api: ApiServer, kept: int) -> None:
    async with watching(api) as reading:
        await watched(reading, api)
        api.tear(kept)
        api.put(slice_("b", [pod("10.0.0.2")]))
        assert "the API server at" in await reading.failed()
        assert await reading.found() == [A]
        assert await reading.found() == [A, B]


async def test_the_last_event_of_a_watch_needs_no_line_end(api: ApiServer) -> None:
    last = line("MODIFIED", slice_("a", [pod("10.0.0.2")]) | {"metadata": {"name": "a", "resourceVersion": "1002"}}).rstrip()
    async with watching(api) as reading:
        api.faults += [says(whole(200, json.dumps(api._list({})).encode())), says(STREAM, chunk(last), LAST_CHUNK)]
        assert [await reading.found() for _ in range(3)] == [[A], [A], [B]]


async def test_pauses_grow_to_half_a_minute_and_shrink_when_all_is_well(api: ApiServer) -> None:
    async with watching(api) as reading:
        api.faults += [resets] * 10
        for _ in range(10):
            await reading.failed()
        await watched(reading, api)
        assert reading.pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]
        api.put(slice_("b", [pod("10.0.0.2")]))
        assert await reading.found() == [A, B]
        api.cut()
        await reading.failed()
        assert await reading.found() == [A, B]
    assert reading.pauses[10:] == [0.2]


async def test_chance_shortens_pauses_by_half_at_most(api: ApiServer) -> None:
    draws = iter((0.0, 0.5, 1.0))
    reading = Reading()
    async with scripted(api) as served:
        api.faults += [resets] * 4
        cluster = Cluster(served.url.removesuffix("/v1/x"), "inference")
        source = Kubernetes(
            KubernetesSpec(SERVICE), cluster, Http1Transport, sleep=reading.sleep, clock=lambda: 0.0, draw=lambda: next(draws)
        )
        async with reading.of(source):
            for _ in range(4):
                await reading.failed()
    assert reading.pauses == pytest.approx([0.2, 0.3, 0.4])


@pytest.mark.parametrize(("said", "pause"), [(b"7", 7.0), (b"0", 0.2), (b"86400", 300.0), (b"soon", 0.2), (b"-5", 0.2)])
async def test_the_api_server_may_ask_for_time(api: ApiServer, said: bytes, pause: float) -> None:
    async with watching(api) as reading:
        api.faults.append(refusal(429, "TooManyRequests", "too many requests", b"retry-after: " + said))
        assert await reading.failed() == "the API server answered 429: too many requests"
        await watched(reading, api)
    assert reading.pauses == [pause]


async def test_a_refusal_counts_though_its_words_are_cut_off(api: ApiServer) -> None:
    async with watching(api) as reading:
        api.faults.append(says(b"HTTP/1.1 429 Said\r\nretry-after: 3\r\ncontent-length: 500\r\n\r\n{"))
        assert await reading.failed() == "the API server answered 429"
        await watched(reading, api)
    assert reading.pauses == [3.0]


async def test_a_port_that_goes_missing_is_told_of(api: ApiServer) -> None:
    async with watching(api) as reading:
        await watched(reading, api)
        api.put(slice_("a", [pod("10.0.0.1")], ports=[HTTP[0] | {"name": "web"}]))
        assert await reading.failed() == "service vllm: the Service has no port `http`; there are: web"
        api.put(slice_("a", [pod("10.0.0.2")]))
        assert await reading.found() == [B]


# -- tokens


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("first")
    return path


async def test_a_rotated_token_is_taken_up(api: ApiServer, token_file: Path) -> None:
    api.token = "first"
    async with watching(api, token_file=token_file) as reading:
        await watched(reading, api)
        api.token = "second"
        api.cut()
        await reading.failed()
        assert await reading.failed() == "the API server answered 401: Unauthorized"
        token_file.write_text("second")
        assert await reading.found() == [A]
        api.put(slice_("b", [pod("10.0.0.2")]))
        assert await reading.found() == [A, B]
    assert api.requests[-1][1][b"authorization"] == b"Bearer second"
    assert ["watch" in query for query, _ in api.requests] == [False, True, True, True]


@pytest.mark.parametrize(
    ("text", "why"),
    [(None, "no such file or directory"), ("", "empty"), ("two words", "holds no token"), ("a\r\nx-evil: 1", "holds no token")],
)
async def test_a_token_that_cannot_be_sent_is_a_failure(api: ApiServer, token_file: Path, text: str | None, why: str) -> None:
    token_file.unlink()
    if text is not None:
        token_file.write_text(text)
    async with watching(api, token_file=token_file) as reading:
        assert await reading.failed() == f"{token_file}: {why}"
        token_file.write_text("first")
        await watched(reading, api)


async def test_no_failure_shows_the_token(api: ApiServer, token_file: Path) -> None:
    token_file.write_text("hunter2")
    async with watching(api, token_file=token_file) as reading:
        api.faults += [fault for fault, _ in FAULTS.values()]
        for _ in FAULTS:
            assert "hunter2" not in await reading.failed()


# -- silence


async def mute(peer: object) -> None:
    await asyncio.get_running_loop().create_future()


@WITH_CLOCK
async def test_a_server_that_never_answers_is_given_up(api: ApiServer) -> None:
    async with watching(api) as reading:
        api.faults.append(mute)
        news = asyncio.create_task(reading.next(within_s=1_000))
        await eventually(lambda: len(api.requests) == 1)
        await clock().pass_time(20)
        await eventually(news.done)
        assert news.result() == Failed("the API server took longer than 15 s")


@WITH_CLOCK
async def test_a_list_that_comes_by_drops_is_given_up(api: ApiServer) -> None:
    drops: list[Peer] = []

    async def begins(peer: Peer) -> None:
        await peer.send(STREAM)
        drops.append(peer)
        await peer.left()

    async with watching(api) as reading:
        api.faults.append(begins)
        news = asyncio.create_task(reading.next(within_s=1_000))
        await eventually(lambda: bool(drops))
        for _ in range(6):
            await drops[0].send(chunk(b" "))
            await clock().pass_time(10)
        await eventually(news.done)
        assert news.result() == Failed("the API server took longer than 60 s")


@WITH_CLOCK
async def test_a_watch_over_a_dead_connection_is_given_up(api: ApiServer) -> None:
    async with watching(api) as reading:
        await watched(reading, api)
        news = asyncio.create_task(reading.next(within_s=1_000))
        for _ in range(3):
            await clock().pass_time(SILENCE_S - 5)
            api.bookmark()
            await eventually(news.done)
            assert not isinstance(news.result(), Failed)
            news = asyncio.create_task(reading.next(within_s=1_000))
            await asyncio.sleep(0)
        await clock().pass_time(SILENCE_S + 1)
        await eventually(news.done)
        assert news.result() == Failed(f"the API server took longer than {SILENCE_S:g} s")


async def test_closing_leaves_no_connection(api: ApiServer) -> None:
    transports: list[Http1Transport] = []

    def connect() -> Http1Transport:
        transports.append(Http1Transport())
        return transports[-1]

    reading = Reading()
    async with scripted(api) as served:
        source = Kubernetes(KubernetesSpec(SERVICE), Cluster(served.url.removesuffix("/v1/x"), "inference"), connect)
        async with reading.of(source):
            await watched(reading, api)
            assert transports[0].connections == 1
        await eventually(lambda: transports[0].connections == 0)
        with pytest.raises(ConnectFailed, match="closed"):
            await transports[0].send("GET", served.url, [], b"", 1.0)
    assert len(transports) == 1
