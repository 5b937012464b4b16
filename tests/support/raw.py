"""HTTP by hand, for what no client library would send."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.support.running import KEY


def request(body: bytes, path: str = "/v1/chat/completions", *headers: str) -> bytes:
    """A whole POST with the test's key; `headers` are more lines."""
    lines = (f"POST {path} HTTP/1.1", "host: test", f"authorization: Bearer {KEY}", "content-type: application/json", *headers)
    return "".join(f"{line}\r\n" for line in (*lines, f"content-length: {len(body)}", "")).encode() + body


@dataclass
class Raw:
    """An answer. Header names are in lower case; of a repeated one the last counts."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        """The error in OpenAI's envelope."""
        found: dict[str, Any] = json.loads(self.body)["error"]
        assert set(found) == {"message", "type", "param", "code"}
        return found


class Wire:
    """A client's connection: bytes out, answers in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def post(self, body: bytes, path: str = "/v1/chat/completions", *headers: str) -> None:
        """Sends `request(...)`."""
        self.send(request(body, path, *headers))

    async def answer(self, within_s: float = 30.0) -> Raw:
        """The next whole answer. Raises TimeoutError."""
        async with asyncio.timeout(within_s):
            return await self._answer()

    async def _answer(self) -> Raw:
        status, headers = await self.head()
        if "content-length" in headers:
            body = await self.reader.readexactly(int(headers["content-length"]))
        elif headers.get("transfer-encoding") == "chunked":
            body = b""
            while piece := await self.chunk():
                body += piece
        else:
            body = await self.reader.read()
        return Raw(status, headers, body)

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers of the next answer."""
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = [line.split(": ", 1) for line in lines[1:] if line]
        return int(lines[0].split()[1]), {name.lower(): value for name, value in pairs}

    async def chunk(self) -> bytes:
        """The next HTTP chunk; empty at the end."""
        size = int(await self.reader.readline(), 16)
        return (await self.reader.readexactly(size + 2))[:-2]

    async def ended(self, within_s: float = 30.0) -> bool:
        """Whether the other side closes without another byte. Raises TimeoutError."""
        async with asyncio.timeout(within_s):
            return await self.reader.read(1) == b""

    def close(self) -> None:
        """Leaves with FIN."""
        self.writer.transport.abort()

    def reset(self) -> None:
        """Leaves with RST."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


@asynccontextmanager
async def wire(url: str) -> AsyncIterator[Wire]:
    """A connection to the gateway at `url`."""
    host, port = url.removeprefix("http://").split(":")
    connection = Wire(*await asyncio.open_connection(host, int(port)))
    try:
        yield connection
    finally:
        connection.close()
