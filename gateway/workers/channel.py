"""Questions between two processes, as JSON over a Unix socket; both ends may ask.

channel = await Channel.over(sock, {"running": running})     handlers: what the other end may ask, and who answers
await channel.run()                                          serves it until the other end is gone; has to run for `ask`, too
answer = await channel.ask("reload", within_s=30)
channel.tell("listening")                                    wants no answer

A frame is four bytes of length, most significant first, and an array: kind, number, name, body.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal

import msgspec

log = logging.getLogger("trilemma.workers")

Handler = Callable[[Any], Awaitable[Any]]
"""Of a question's body, as JSON's own types, what the answer's body is."""

_LENGTH: Final = struct.Struct(">I")
_LARGEST: Final = 2**28


class ChannelError(Exception):
    """There is no answer."""


class Gone(ChannelError):
    """The other process has ended, or left."""


class Refused(ChannelError):
    """The other process failed to answer; its log says why."""


class _Frame(msgspec.Struct, array_like=True):
    kind: Literal["ask", "tell", "answer", "failed"]
    number: int
    name: str
    body: Any = None


class Channel:
    """One end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handlers: Mapping[str, Handler]) -> None:
        self._reader = reader
        self._writer = writer
        self._handlers = handlers
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._serving: set[asyncio.Task[None]] = set()
        self._gone = False
        self._decoder = msgspec.json.Decoder(_Frame)

    @classmethod
    async def over(cls, sock: socket.socket, handlers: Mapping[str, Handler]) -> Channel:
        """An end over a connected socket, which belongs to it from now on."""
        reader, writer = await asyncio.open_unix_connection(sock=sock)
        return cls(reader, writer, handlers)

    @property
    def gone(self) -> bool:
        """Whether the other end is."""
        return self._gone

    async def ask(self, name: str, body: Any = None, *, within_s: float | None = None) -> Any:
        """The answer, in JSON's own types. Raises Gone, Refused; TimeoutError, after which it may still be done."""
        if self._gone:
            raise Gone(name)
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._send(_Frame("ask", number, name, body))
            async with asyncio.timeout(within_s):
                return await answer
        finally:
            del self._waiting[number]

    def tell(self, name: str, body: Any = None) -> None:
        """Says it, if anybody is there."""
        if not self._gone:
            self._send(_Frame("tell", 0, name, body))

    async def run(self) -> None:
        """Serves what the other end asks, each question in a task, begun in the order in which they came; ends with the other end."""
        try:
            while (frame := await self._next()) is not None:
                self._take(frame)
        finally:
            self._gone = True
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(Gone("the other end has left"))
            for task in self._serving:
                task.cancel()
            await asyncio.gather(*self._serving, return_exceptions=True)
            self._writer.close()

    def close(self) -> None:
        """Lets go of the socket, also where `run` never began. Safe at any time."""
        self._gone = True
        self._writer.close()

    async def _next(self) -> _Frame | None:
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            return self._decoder.decode(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        except msgspec.DecodeError:  # ValidationError is one
            log.exception("what came from the other process is no frame")
            return None

    def _take(self, frame: _Frame) -> None:
        if frame.kind in ("ask", "tell"):
            task = asyncio.get_running_loop().create_task(self._serve(frame), name=f"worker channel {frame.name}")
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
            return
        answer = self._waiting.get(frame.number)
        if answer is None or answer.done():  # nobody waits any more
            return
        if frame.kind == "answer":
            answer.set_result(frame.body)
        else:
            answer.set_exception(Refused(frame.name))

    async def _serve(self, frame: _Frame) -> None:
        try:
            body = await self._handlers[frame.name](frame.body)
        except Exception:
            log.exception("`%s` failed", frame.name)
            answer = _Frame("failed", frame.number, frame.name)
        else:
            answer = _Frame("answer", frame.number, frame.name, body)
        if frame.kind == "ask" and not self._gone:
            self._send(answer)

    def _send(self, frame: _Frame) -> None:
        data = msgspec.json.encode(frame)
        if len(data) > _LARGEST:
            raise ChannelError(f"`{frame.name}` is too large to be said")
        self._writer.write(_LENGTH.pack(len(data)) + data)
