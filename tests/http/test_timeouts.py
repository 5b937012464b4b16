"""How long a call may take, as its backend, its model or its virtual model says; and the one deadline over all that a request does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest

from gateway.mock import Behaviour, MockBackend
from gateway.serving.state import RealModel
from tests.support.asking import CHAT, data, error_of
from tests.support.running import Running, config_for, running
from tests.support.waiting import until

Place = Literal["backend", "model", "virtual"]
PLACES: tuple[Place, ...] = ("backend", "model", "virtual")
LOOSE = {"connect_s": 60.0, "first_byte_s": 60.0, "idle_s": 60.0, "total_s": 600.0}
HALF = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"choices":'
BREAKER = {"trip_after": 2, "first_s": 60, "longest_s": 60}


def ask(model: str, **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "hi"}], **more}


@asynccontextmanager
async def bounded(
    url: str, folder: Path, place: Place, tight: Mapping[str, float]
) -> AsyncIterator[tuple[Running, httpx.AsyncClient, str]]:
    """A gateway with these bounds at one place, and other ones at the wider places; and the name to ask for.

    Those of the wider places are loose, or, if the bounds are, would let nothing pass.
    """
    others = LOOSE if max(tight.values()) < 10 else dict.fromkeys(tight, 0.05)
    wider = PLACES[: PLACES.index(place)]
    timeouts = {each: tight if each == place else others if each in wider else {} for each in PLACES}
    config = config_for(
        {"a": {"url": url, "engine": "vllm", "models": {"m": "m"}, "timeouts": timeouts["backend"], "breaker": BREAKER}},
        models={"m": {"timeouts": timeouts["model"]}},
        virtual_models={"v": {"policy": "fixed", "plans": {"p": {"model": "m"}}, "timeouts": timeouts["virtual"]}},
    )
    async with running(config, folder) as run, run.client() as client:
        yield run, client, "v" if place == "virtual" else "m"
        await until(lambda: run.in_flight() == 0, "the end of all calls")


@contextlib.contextmanager
def deaf() -> Iterator[str]:
    """The URL of a listening socket whose queue is full: the kernel leaves any further client without an answer."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening, contextlib.ExitStack() as stack:
        for _ in range(4):
            queued = stack.enter_context(socket.socket())
            queued.setblocking(False)
            queued.connect_ex(listening.getsockname())
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


# -- before the first byte has gone out


@pytest.mark.parametrize("place", PLACES)
async def test_connecting(tmp_path: Path, place: Place) -> None:
    with deaf() as url:
        async with bounded(url, tmp_path, place, {"connect_s": 0.1}) as (run, client, name):
            answer = await client.post(CHAT, json=ask(name))
            assert (answer.status_code, error_of(answer)["code"]) == (502, "backend_unreachable")
            assert [(call.fault, call.outcome) for call in run.settled[0].calls] == [("connect", "backend_error")]


LATE: dict[str, tuple[dict[str, float], Behaviour, bool]] = {
    "the head": ({"first_byte_s": 0.1}, Behaviour(never_answer=True), False),
    "the head of a stream": ({"first_byte_s": 0.1}, Behaviour(never_answer=True), True),
    "the first event": ({"first_byte_s": 0.1}, Behaviour(stall_after_events=0), True),
    "the rest of a whole answer": ({"idle_s": 0.1}, Behaviour(raw=HALF, stall_after_events=0), False),
    "the whole call": ({"total_s": 0.1}, Behaviour(never_answer=True), False),
    "the whole call, half answered": ({"total_s": 0.1}, Behaviour(raw=HALF, stall_after_events=0), False),
    "the whole call of a stream without an event": ({"total_s": 0.1}, Behaviour(stall_after_events=0), True),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("late", LATE)
async def test_an_answer_that_does_not_come(tmp_path: Path, late: str, place: Place) -> None:
    """A 504 that says not to try again; the backend's fault; and its socket is closed, so that it stops working."""
    tight, behaviour, stream = LATE[late]
    async with MockBackend(["m"]) as mock, bounded(mock.url, tmp_path, place, tight) as (run, client, name):
        mock.script(behaviour)
        answer = await client.post(CHAT, json=ask(name, stream=stream))
        assert (answer.status_code, error_of(answer)["code"]) == (504, "backend_timeout")
        assert answer.headers["x-should-retry"] == "false"
        await mock.wait_for(lambda m: m.aborted == 1)
        (receipt,) = run.settled
        assert (receipt.outcome, receipt.served_model, receipt.backend) == ("backend_error", "m", "a")
        assert [(call.fault, call.outcome) for call in receipt.calls] == [("timeout", "backend_error")]


# -- after it


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("tight", "comments_s"),
    [({"idle_s": 0.1}, None), ({"idle_s": 0.1, "first_byte_s": 0.5}, 0.02)],
    ids=["silence", "nothing but comments"],
)
async def test_a_stream_that_falls_silent(tmp_path: Path, tight: dict[str, float], comments_s: float | None, place: Place) -> None:
    async with MockBackend(["m"]) as mock, bounded(mock.url, tmp_path, place, tight) as (run, client, name):
        for _ in range(2):
            mock.script(Behaviour(stall_after_events=2, stall_comments_s=comments_s))
            answer = await client.post(CHAT, json=ask(name, stream=True))
            assert answer.status_code == 200
            assert json.loads(data(answer.content)[-1])["error"]["code"] == "backend_timeout"
            assert (answer.content.count(b'"error"'), b"[DONE]" in answer.content) == (1, False)
        await mock.wait_for(lambda m: m.aborted == 2)
        await run.until_settled(2)
        for receipt in run.settled:
            assert receipt.outcome == "backend_error"
            assert [(call.fault, call.outcome) for call in receipt.calls] == [("timeout", "backend_error")]
        assert run.gateway.state.backends["a"].breaker.state != "closed", "twice in a row is held against it"


@pytest.mark.parametrize("place", PLACES)
async def test_a_stream_that_takes_too_long_is_ended_and_not_held_against_the_backend(tmp_path: Path, place: Place) -> None:
    async with MockBackend(["m"]) as mock, bounded(mock.url, tmp_path, place, {"total_s": 0.6}) as (run, client, name):
        for _ in range(2):
            mock.script(Behaviour(tokens_per_second=100))
            answer = await client.post(CHAT, json=ask(name, stream=True, max_tokens=3_000, ignore_eos=True))
            assert answer.status_code == 200
            assert json.loads(data(answer.content)[-1])["error"]["code"] == "backend_timeout"
            assert (answer.content.count(b'"error"'), b"[DONE]" in answer.content) == (1, False)
            assert len(data(answer.content)) > 2, "it did come, as long as it might"
        await mock.wait_for(lambda m: m.aborted == 2)
        await run.until_settled(2)
        for receipt in run.settled:
            assert receipt.outcome == "backend_error"
            assert [(call.fault, call.outcome) for call in receipt.calls] == [(None, "backend_error")]
        assert run.gateway.state.backends["a"].breaker.state == "closed"


@pytest.mark.parametrize("place", ["model", "virtual"])
@pytest.mark.parametrize(
    ("bound", "behaviour"),
    [
        ("first_byte_s", Behaviour(delay_headers_s=0.2)),
        ("idle_s", Behaviour(stall_after_events=2, stall_s=0.2)),
        ("total_s", Behaviour(stall_after_events=2, stall_s=0.2)),
    ],
)
async def test_the_narrower_place_counts_though_it_bears_more(tmp_path: Path, bound: str, behaviour: Behaviour, place: Place) -> None:
    async with MockBackend(["m"]) as mock, bounded(mock.url, tmp_path, place, {bound: 60.0}) as (_, client, name):
        mock.script(behaviour)
        answer = await client.post(CHAT, json=ask(name, stream=True))
        assert (answer.status_code, data(answer.content)[-1]) == (200, b"[DONE]")


async def test_a_model_that_stands_in_has_its_own_bounds_but_for_the_virtual_model_s(tmp_path: Path) -> None:
    async with MockBackend(["m"]) as first, MockBackend(["m"]) as second:
        config = config_for(
            {
                "a": {"url": first.url, "models": {"slow": "m"}, "timeouts": LOOSE},
                "b": {"url": second.url, "models": {"spare": "m"}, "timeouts": LOOSE},
            },
            models={"slow": {"fallbacks": ["spare"], "timeouts": {"first_byte_s": 0.1}}, "spare": {"timeouts": {"first_byte_s": 30}}},
            virtual_models={"v": {"policy": "fixed", "plans": {"p": {"model": "slow"}}, "timeouts": {"first_byte_s": 0.2}}},
        )
        async with running(config, tmp_path) as run, run.client() as client:
            first.script(Behaviour(never_answer=True))
            second.script(Behaviour(delay_headers_s=0.3))
            answer = await client.post(CHAT, json=ask("slow"))
            assert (answer.status_code, answer.headers["x-trilemma-model"]) == (200, "spare")
            for mock in (first, second):
                mock.script(Behaviour(never_answer=True))
            answer = await client.post(CHAT, json=ask("v"))
            assert (answer.status_code, error_of(answer)["code"]) == (504, "backend_timeout")
            assert [(call.model, call.fault) for call in run.settled[-1].calls] == [("slow", "timeout"), ("spare", "timeout")]


async def test_a_call_s_time_is_not_the_request_s(tmp_path: Path) -> None:
    """Each replica may take so long: the first one's end leaves time for the second."""
    async with MockBackend(["m"]) as first, MockBackend(["m"]) as second:
        backends = {
            name: {"url": mock.url, "models": {"m": "m"}, "timeouts": {"total_s": 0.6}} for name, mock in {"a": first, "b": second}.items()
        }
        async with running(config_for(backends), tmp_path) as run, run.client() as client:
            run.gateway.state.backends["b"].in_flight += 1
            await until(lambda: all(each.answered for each in run.gateway.state.backends.values()))
            first.script(Behaviour(never_answer=True, times=0))
            second.script(Behaviour(delay_headers_s=0.02, times=0))
            answer = await client.post(CHAT, json=ask("m"))
            run.gateway.state.backends["b"].in_flight -= 1
            assert answer.status_code == 200
            assert [(call.backend, call.fault) for call in run.settled[0].calls] == [("a", "timeout"), ("b", None)]


# -- the deadline of the request


@asynccontextmanager
async def hurried(
    folder: Path, model: Mapping[str, Any], deadline_ms: int = 600, **sections: Any
) -> AsyncIterator[tuple[MockBackend, MockBackend, Running, httpx.AsyncClient]]:
    """`m`, which has so long for all, on mock `a`; `spare` on mock `b`."""
    async with MockBackend(["m"]) as a, MockBackend(["m"]) as b:
        config = config_for(
            {"a": {"url": a.url, "models": {"m": "m"}}, "b": {"url": b.url, "models": {"spare": "m"}}},
            models={"m": {"deadline_ms": deadline_ms, **model}},
            **sections,
        )
        async with running(config, folder) as run, run.client() as client:
            yield a, b, run, client
            await until(lambda: run.in_flight() == 0, "the end of all calls")


def past_deadline(answer: httpx.Response) -> bool:
    return (answer.status_code, error_of(answer)["code"], answer.headers["x-should-retry"]) == (504, "gateway_deadline", "false")


async def test_waiting_for_an_answer_ends_at_the_deadline(tmp_path: Path) -> None:
    async with hurried(tmp_path, {}, 100) as (a, _, run, client):
        a.script(Behaviour(never_answer=True))
        assert past_deadline(await client.post(CHAT, json=ask("m")))
        await a.wait_for(lambda m: m.aborted == 1)
        (receipt,) = run.settled
        assert (receipt.outcome, receipt.backend) == ("gateway_error", "a")
        assert [(call.fault, call.outcome) for call in receipt.calls] == [(None, "cancelled")]
        assert run.gateway.state.backends["a"].breaker.state == "closed", "it is not its fault"


async def test_waiting_in_the_queue_ends_at_the_deadline(tmp_path: Path) -> None:
    async with hurried(tmp_path, {"queue": {"slots": 1}, "fallbacks": ["spare"]}) as (a, b, run, client):
        a.script(Behaviour(stall_after_events=2))
        holder = asyncio.create_task(client.post(CHAT, json=ask("m", stream=True, trilemma={"deadline_ms": 600})))
        await a.wait_for(lambda m: len(m.requests_to(CHAT)) == 1)
        assert past_deadline(await client.post(CHAT, json=ask("m", trilemma={"deadline_ms": 100})))
        assert run.settled[0].calls == []
        assert (len(a.requests_to(CHAT)), len(b.requests_to(CHAT))) == (1, 0)
        await holder
        route = run.gateway.state.names["m"]
        assert isinstance(route, RealModel) and route.admission is not None
        await until(lambda: route.admission is not None and route.admission.running == 0)


async def test_one_deadline_holds_over_the_models_that_stand_in(tmp_path: Path) -> None:
    """The first has its own shorter bound; the second would have a minute, and has what is left."""
    async with hurried(tmp_path, {"fallbacks": ["spare"], "timeouts": {"first_byte_s": 0.1}}) as (a, b, run, client):
        a.script(Behaviour(never_answer=True))
        b.script(Behaviour(never_answer=True))
        assert past_deadline(await client.post(CHAT, json=ask("m")))
        await b.wait_for(lambda m: m.aborted == 1)
        assert [(call.model, call.fault, call.outcome) for call in run.settled[0].calls] == [
            ("m", "timeout", "backend_error"),
            ("spare", None, "cancelled"),
        ]


async def test_a_wait_that_would_end_after_the_deadline_is_not_begun(tmp_path: Path) -> None:
    async with hurried(tmp_path, {"attempts": 5}) as (a, _, run, client):
        a.script(Behaviour(status=429, headers={"retry-after": "2"}, times=0))
        answer = await client.post(CHAT, json=ask("m"))
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")
        assert len(run.settled[0].calls) == 1


async def test_a_stream_ends_at_the_deadline(tmp_path: Path) -> None:
    async with hurried(tmp_path, {}, 300) as (a, _, run, client):
        a.script(Behaviour(stall_after_events=2))
        answer = await client.post(CHAT, json=ask("m", stream=True))
        assert answer.status_code == 200
        assert json.loads(data(answer.content)[-1])["error"]["code"] == "gateway_deadline"
        assert (answer.content.count(b'"error"'), b"[DONE]" in answer.content) == (1, False)
        await run.until_settled(1)
        assert run.settled[0].outcome == "gateway_error"
        assert [(call.fault, call.outcome) for call in run.settled[0].calls] == [(None, "cancelled")]


async def test_a_large_body_is_cut_at_the_deadline_and_it_is_not_the_backend_s_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passed on unread, so there is no way to tell but to break off."""
    monkeypatch.setattr("gateway.serving.attempt._HELD", 1_000)
    async with hurried(tmp_path, {}, 300) as (a, _, run, client):
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 50000000\r\n\r\n"
        a.script(Behaviour(raw=head + b" " * 5_000, split=1_000, stall_after_events=0))
        with pytest.raises(httpx.RemoteProtocolError):
            await client.post(CHAT, json=ask("m"))
        await run.until_settled(1)
        assert run.settled[0].outcome == "gateway_error"


async def test_a_caller_may_ask_for_less_than_the_model_gives_and_for_no_more(tmp_path: Path) -> None:
    async with hurried(tmp_path, {}, 100) as (a, _, run, client):
        a.script(Behaviour(never_answer=True, times=0))
        answer = await client.post(CHAT, json=ask("m", trilemma={"deadline_ms": 50}))
        assert past_deadline(answer)
        assert "x-trilemma-clipped" not in answer.headers
        answer = await client.post(CHAT, json=ask("m", trilemma={"deadline_ms": 60_000}))
        assert past_deadline(answer)
        assert answer.headers["x-trilemma-clipped"] == "deadline_ms"
        assert len(run.settled) == 2
