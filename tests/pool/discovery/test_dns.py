"""DNS: one replica per address, and nothing that a resolver fails to say takes one away."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable

import pytest

from gateway.pool.discovery.dns import LIMIT_S, Dns, resolve
from gateway.pool.discovery.source import Failed
from gateway.pool.discovery.spec import DnsSpec, Family
from tests.pool.discovery.reading import Reading
from tests.pool.scripted import BOTH_LOOPS, WITH_CLOCK, clock, eventually, turns

pytestmark = WITH_CLOCK

Answer = Iterable[str] | Exception
NXDOMAIN = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
NO_DATA = socket.gaierror(socket.EAI_NODATA, "No address associated with hostname")
TRY_AGAIN = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")


class Resolver:
    """Gives these answers, the last one for ever."""

    def __init__(self, *v4: Answer, v6: Answer = NO_DATA) -> None:
        self.v4 = list(v4)
        self.v6 = v6
        self.asked: list[tuple[str, Family]] = []

    async def __call__(self, host: str, family: Family) -> Iterable[str]:
        self.asked.append((host, family))
        answer = self.v6 if family == "ipv6" else self.v4.pop(0) if len(self.v4) > 1 else self.v4[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def spec(family: Family | None = None) -> DnsSpec:
    return DnsSpec("gpu.internal", 8000, interval_s=7.0, family=family)


async def test_each_address_is_a_replica_whatever_the_order_and_however_often() -> None:
    answers = [["10.0.0.2", "10.0.0.1", "10.0.0.2"], ["10.0.0.1", "10.0.0.2"], ["10.0.0.3", "10.0.0.2"]]
    reading = Reading()
    async with reading.of(Dns(spec(), resolve=Resolver(*answers), sleep=reading.sleep)):
        assert await reading.found() == ["http://10.0.0.1:8000", "http://10.0.0.2:8000"]
        assert await reading.found() == ["http://10.0.0.1:8000", "http://10.0.0.2:8000"]
        assert await reading.found() == ["http://10.0.0.2:8000", "http://10.0.0.3:8000"]
    assert reading.pauses == [7.0, 7.0]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (NXDOMAIN, "gpu.internal has no address"),
        (NO_DATA, "gpu.internal has no address"),
        ([], "gpu.internal has no address"),
        (TRY_AGAIN, "gpu.internal: Temporary failure in name resolution"),
        (OSError(24, "Too many open files"), "gpu.internal: Too many open files"),
        (UnicodeError("label too long"), "gpu.internal: label too long"),
        (["no address"], "gpu.internal: the URL should be http://HOST[:PORT][/PATH] or https://..., without user, query or fragment"),
    ],
)
async def test_what_is_no_answer_is_a_failure_and_passes(answer: Answer, why: str) -> None:
    reading = Reading()
    async with reading.of(Dns(spec(), resolve=Resolver(["10.0.0.1"], answer, ["10.0.0.1"]), sleep=reading.sleep)):
        assert await reading.found() == ["http://10.0.0.1:8000"]
        assert await reading.failed() == why
        assert await reading.found() == ["http://10.0.0.1:8000"]


async def test_a_host_with_both_kinds_of_address_counts_once() -> None:
    resolver = Resolver(["10.0.0.1"], v6=["fd00::1"])
    async with Reading().of(Dns(spec(), resolve=resolver)) as reading:
        assert await reading.found() == ["http://10.0.0.1:8000"]
    assert resolver.asked == [("gpu.internal", "ipv4")]


@pytest.mark.parametrize("absent", [NXDOMAIN, NO_DATA, []])
async def test_ipv6_serves_where_there_is_no_ipv4(absent: Answer) -> None:
    async with Reading().of(Dns(spec(), resolve=Resolver(absent, v6=["fd00::2", "fd00::1"]))) as reading:
        assert await reading.found() == ["http://[fd00::1]:8000", "http://[fd00::2]:8000"]


async def test_trouble_with_ipv4_does_not_turn_replicas_into_others() -> None:
    async with Reading().of(Dns(spec(), resolve=Resolver(TRY_AGAIN, v6=["fd00::1"]))) as reading:
        assert "Temporary" in await reading.failed()


@pytest.mark.parametrize(
    ("family", "url"),
    [("ipv4", "http://10.0.0.1:8000"), ("ipv6", "http://[fd00::1]:8000")],
)
async def test_a_family_that_is_asked_for_is_the_only_one(family: Family, url: str) -> None:
    resolver = Resolver(["10.0.0.1"], v6=["fd00::1"])
    async with Reading().of(Dns(spec(family), resolve=resolver)) as reading:
        assert await reading.found() == [url]
    resolver = Resolver(NO_DATA)
    async with Reading().of(Dns(spec(family), resolve=resolver)) as reading:
        assert await reading.failed() == f"gpu.internal has no {family} address"
    assert resolver.asked == [("gpu.internal", family)]


async def test_a_resolver_that_hangs_is_told_of_and_asked_only_once_at_a_time() -> None:
    """Each question of a resolver that hangs would keep a thread."""
    release = asyncio.Event()
    asked = 0

    async def hangs(_host: str, _family: Family) -> list[str]:
        nonlocal asked
        asked += 1
        await release.wait()
        return ["10.0.0.1"]

    reading = Reading()
    async with reading.of(Dns(spec(), resolve=hangs, sleep=reading.sleep)):
        for _ in range(2):
            news = asyncio.create_task(reading.next(within_s=3 * LIMIT_S))
            await turns(10)
            await clock().pass_time(LIMIT_S)
            await eventually(news.done)
            assert news.result() == Failed("gpu.internal: name servers do not answer")
        assert asked == 1
        release.set()
        assert await reading.found() == ["http://10.0.0.1:8000"]


async def test_closing_ends_a_look_up_that_hangs() -> None:
    asked: list[asyncio.Future[list[str]]] = []

    async def hangs(_host: str, _family: Family) -> list[str]:
        asked.append(asyncio.get_running_loop().create_future())
        return await asked[0]

    reading = Reading()
    news = asyncio.create_task(reader(reading, Dns(spec(), resolve=hangs)))
    await eventually(lambda: bool(asked))
    news.cancel()
    with pytest.raises(asyncio.CancelledError):
        await news
    await eventually(asked[0].cancelled)


async def reader(reading: Reading, source: Dns) -> None:
    async with reading.of(source):
        await reading.next()


@BOTH_LOOPS
async def test_the_machine_resolves_its_own_names() -> None:
    assert set(await resolve("localhost", "ipv4")) == {"127.0.0.1"}
    assert set(await resolve("127.0.0.2", "ipv4")) == {"127.0.0.2"}
    assert set(await resolve("::1", "ipv6")) == {"::1"}
    assert await resolve("fe80::1%lo", "ipv6") == []
    with pytest.raises(socket.gaierror):
        await resolve("::1", "ipv4")
    with pytest.raises((OSError, ValueError)):
        await resolve("x" * 300, "ipv4")
