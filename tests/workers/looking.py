"""Looking at a gateway of several workers from outside: which of them serves a connection, and asking one of them (Linux)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.support.processes import family
from tests.support.raw import Wire, wire
from tests.support.running import KEY, NO_TLS
from tests.support.serving import Serving
from tests.support.waiting import until

_ESTABLISHED = "01"


async def until_so(condition: Callable[[], Awaitable[bool]], within_s: float = 10.0) -> None:
    """Waits for what has to be asked for. Raises TimeoutError."""
    async with asyncio.timeout(within_s):
        while not await condition():  # noqa: ASYNC110 (it looks at another process)
            await asyncio.sleep(0.02)


def workers(gateway: Serving) -> dict[int, int]:
    """Process ids of the workers by number."""
    found = {}
    for process in family(gateway.process.pid):
        match = re.search(r"gateway\.workers\.worker .*--number (\d+)", process.command)
        if match is not None:
            found[int(match[1])] = process.pid
    return found


async def until_workers(gateway: Serving, count: int = 2, but: frozenset[int] = frozenset()) -> dict[int, int]:
    """Waits until so many serve, none of which is one of `but`: those that the log names."""

    def serving() -> dict[int, int]:
        served = {int(pid) for pid in re.findall(r"process (\d+)\) serves", gateway.log.read_text())}
        return {number: pid for number, pid in workers(gateway).items() if pid in served - but}

    await until(lambda: len(serving()) == count, f"{count} workers", 20)
    return serving()


def _inode(gateway: Serving, port: int) -> str | None:
    """Of the server's end of the connection from that port."""
    here = f"{int(gateway.url.rpartition(':')[2]):04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(f":{here}") and fields[2].endswith(f":{port:04X}") and fields[3] == _ESTABLISHED and fields[9] != "0":
            return fields[9]
    return None


def serves(gateway: Serving, port: int) -> int | None:
    """Which worker has the connection from that port."""
    inode = _inode(gateway, port)
    for number, pid in workers(gateway).items():
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            try:
                if str(descriptor.readlink()) == f"socket:[{inode}]":
                    return number
            except FileNotFoundError:  # it was closed just now
                continue
    return None


@asynccontextmanager
async def wires(gateway: Serving, each: int = 1) -> AsyncIterator[Mapping[int, list[Wire]]]:
    """So many connections to each of two workers."""
    found: dict[int, list[Wire]] = {1: [], 2: []}
    async with AsyncExitStack() as stack:
        for _ in range(200):
            if all(len(mine) == each for mine in found.values()):
                break
            connection = await stack.enter_async_context(wire(gateway.url))
            port = connection.writer.get_extra_info("sockname")[1]
            await until(lambda port=port: serves(gateway, port) is not None, "somebody takes the connection")  # type: ignore[misc]
            number = serves(gateway, port)
            assert number is not None
            if len(found[number]) < each:
                found[number].append(connection)
            else:
                connection.close()
        else:
            raise AssertionError(f"200 connections, and {found}")
        yield found


@asynccontextmanager
async def clients(gateway: Serving, key: str = KEY) -> AsyncIterator[Mapping[int, httpx.AsyncClient]]:
    """For each of two workers a client that asks it, on one connection."""
    found: dict[int, httpx.AsyncClient] = {}
    async with AsyncExitStack() as stack:
        while len(found) < 2:
            limits = httpx.Limits(max_connections=1, keepalive_expiry=None)
            settings: dict[str, Any] = {
                "base_url": gateway.url,
                "headers": {"authorization": f"Bearer {key}"},
                "limits": limits,
                "timeout": 30,
                "verify": NO_TLS,
            }
            client = await stack.enter_async_context(httpx.AsyncClient(**settings))
            answer = await client.get("/health")
            number = serves(gateway, answer.extensions["network_stream"].get_extra_info("client_addr")[1])
            assert number is not None
            found.setdefault(number, client)
        yield found
