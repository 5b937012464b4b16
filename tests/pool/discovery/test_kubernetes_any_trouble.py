"""Whatever happens, in any order: what is said was so at the API server, in that order, and the last of it is the truth."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.pool.discovery.cluster import Cluster
from gateway.pool.discovery.kubernetes import Kubernetes
from gateway.pool.discovery.source import Found
from gateway.pool.discovery.spec import KubernetesSpec
from gateway.pool.http1 import Http1Transport
from tests.pool.discovery.api_server import (
    LAST_CHUNK,
    SERVICE,
    ApiServer,
    Object,
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
from tests.pool.scripted import eventually, scripted, turns

STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
LAST = "10.9.9.9"
Act = Callable[[ApiServer], None]


def at(number: int) -> str:
    return f"10.0.0.{number}"


KINDS: dict[str, Callable[[str], Object]] = {
    "ready": pod,
    "unready": lambda address: pod(address, ready=False, serving=False),
    "leaving": leaving,
    "gone": lambda address: pod(address, ready=False, serving=False, terminating=True),
}
PODS = st.lists(st.tuples(st.integers(1, 6), st.sampled_from(sorted(KINDS))), max_size=4, unique_by=lambda each: each[0])


def put(name: str, pods: Sequence[tuple[int, str]]) -> Act:
    return lambda api: api.put(slice_(name, [KINDS[kind](at(number)) for number, kind in pods] or None))


def fault(*faults: object) -> Act:
    return lambda api: api.faults.extend(faults)  # type: ignore[arg-type]


TROUBLE: dict[str, Act] = {
    "bookmark": ApiServer.bookmark,
    "elsewhere": ApiServer.elsewhere,
    "end": ApiServer.end,
    "cut": ApiServer.cut,
    "tear early": lambda api: api.tear(1),
    "tear late": lambda api: api.tear(600),
    "forget": ApiServer.forget,
    "gone": lambda api: api.say(line("ERROR", status(410, "Expired", "too old resource version"))),
    "gone by status": lambda api: setattr(api, "gone_by_status", True),
    "error": lambda api: api.say(line("ERROR", status(500, "InternalError", "decoding failed"))),
    "garbage": lambda api: api.say(b"<html>\n"),
    "500": fault(refusal(500, "InternalError", "no")),
    "429": fault(refusal(429, "TooManyRequests", "slow down", b"retry-after: 1")),
    "401": fault(refusal(401, "Unauthorized", "Unauthorized")),
    "page": fault(says(whole(200, b"<html>", kind=b"text/html"))),
    "empty object": fault(says(whole(200, b"{}"))),
    "nothing": fault(says()),
    "without a word": fault(says(STREAM, LAST_CHUNK)),
    "reset": fault(resets, resets),
}
ACTS = st.one_of(
    st.builds(put, st.sampled_from("abc"), PODS),
    st.builds(put, st.sampled_from("abc"), PODS),
    st.sampled_from("abc").map(lambda name: lambda api: api.delete(name)),
    st.sampled_from(sorted(TROUBLE)).map(TROUBLE.__getitem__),
)


def truth(api: ApiServer) -> tuple[str, ...]:
    """What the slices of the server mean, by the API's rules."""
    by_kind: dict[str, set[str]] = {kind: set() for kind in KINDS}
    for each in api.slices.values():
        for one in each["endpoints"] or ():
            conditions = (one["conditions"]["ready"], one["conditions"]["serving"])
            kind = {(True, True): "ready", (False, True): "leaving", (False, False): "unready"}[conditions]
            by_kind[kind].add(f"http://{one['addresses'][0]}:8000")
    return tuple(sorted(by_kind["ready"] or by_kind["leaving"]))


async def run(acts: Sequence[tuple[Act, int]], size: int) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """What the server had, and what the source said, one after another. Each act is followed by some turns of the loop."""
    api = ApiServer()
    api.split = lambda data: [data[at : at + size] for at in range(0, len(data), size)]
    had, said = [truth(api)], []

    async def read() -> None:
        async for news in source.watch():
            if isinstance(news, Found):
                said.append(tuple(endpoint.url for endpoint in news.endpoints))  # noqa: PERF401 - it is looked at while it grows

    async with scripted(api) as served:
        cluster = Cluster(served.url.removesuffix("/v1/x"), "inference")
        source = Kubernetes(
            KubernetesSpec(SERVICE), cluster, Http1Transport, sleep=lambda _: asyncio.sleep(0), clock=lambda: 0.0, draw=lambda: 0.0
        )
        reader = asyncio.create_task(read())
        for act, pause in acts:
            act(api)
            had.append(truth(api))
            await turns(pause)
        put("z", [])(api)
        api.put(slice_("z", [pod(LAST)]))
        had.append(truth(api))
        await eventually(lambda: reader.done() or (bool(said) and f"http://{LAST}:8000" in said[-1]))
        reader.cancel()
        await asyncio.wait((reader,))
        assert reader.cancelled(), reader.exception()
    return had, said


@settings(max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(acts=st.lists(st.tuples(ACTS, st.sampled_from((0, 0, 1, 5, 20, 60))), max_size=25), size=st.sampled_from((13, 250, 1 << 16)))
def test_the_truth_comes_through(acts: list[tuple[Act, int]], size: int) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        had, said = runner.run(run(acts, size))
    assert said[-1] == had[-1]
    place = 0
    for state in said:
        assert state in had[place:], "said what was not so, or was no longer"
        place = had.index(state, place)
