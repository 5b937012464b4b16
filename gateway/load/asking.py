"""Small questions to what a run has started: health, gauges, admin."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gateway.load.processes import Process
from gateway.load.scenario import ScenarioError
from gateway.pool.transport import Transport, TransportError
from gateway.wire.errors import Header

_READY_WITHIN_S = 60.0
_AGAIN_S = 0.05


async def call(
    transport: Transport, method: str, url: str, body: bytes = b"", headers: Sequence[Header] = (), within_s: float = 2.0
) -> tuple[int, bytes]:
    """Status and body of an answer. Raises TransportError, TimeoutError."""
    async with asyncio.timeout(within_s):
        upstream = await transport.send(method, url, headers, body, within_s)
        try:
            parts = []
            while data := await upstream.read_some():
                parts.append(data)
        except BaseException:
            upstream.close()
            raise
        upstream.release()
        return upstream.status, b"".join(parts)


async def in_one_breath(port: int, requests: Sequence[tuple[str, str, bytes]], within_s: float = 2.0) -> list[bytes]:
    """The bodies of answers of a local mock to requests (method, path, body) that are sent together: it takes up no other between them.

    Raises OSError, TimeoutError, and ValueError for what is no answer.
    """
    sent = [
        f"{method} {path} HTTP/1.1\r\nhost: mock\r\ncontent-length: {len(body)}\r\n".encode()
        + (b"connection: close\r\n\r\n" if number == len(requests) else b"\r\n")
        + body
        for number, (method, path, body) in enumerate(requests, 1)
    ]
    async with asyncio.timeout(within_s):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(b"".join(sent))
            answered = await reader.read(-1)
        finally:
            writer.close()
    bodies = []
    for _ in requests:
        head, _, rest = answered.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        bodies.append(rest[:length])
        answered = rest[length:]
    return bodies


async def until_answers(transport: Transport, url: str, process: Process) -> None:
    """Waits until the process answers there with 200. Raises ScenarioError, with the end of its log."""
    said = ""
    try:
        async with asyncio.timeout(_READY_WITHIN_S):
            while True:
                if process.ended:
                    raise ScenarioError(f"{process.name} ended before it answered:\n{process.last_words()}")
                try:
                    status, body = await call(transport, "GET", url)
                    if status == 200:
                        return
                    said = body.decode(errors="replace")
                except (TransportError, TimeoutError):
                    pass  # not yet
                await asyncio.sleep(_AGAIN_S)
    except TimeoutError:
        raise ScenarioError(f"{process.name} was not ready within {_READY_WITHIN_S:g} s: {said}\n{process.last_words()}") from None
