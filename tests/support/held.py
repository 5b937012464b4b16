"""A backend whose answers end when the test says so."""

from __future__ import annotations

import asyncio
import json
from types import TracebackType
from typing import Any, Self

from tests.support.waiting import until

_HEAD = b"HTTP/1.1 200 OK\r\nconnection: close\r\n"
_STREAM = _HEAD + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _event(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "x", "object": "chat.completion.chunk", "choices": [choice]}).encode() + b"\n\n"


class HeldBackend:
    """Serves `mock-model`. A stream gives `one`, waits for `go`, gives `two` and ends; a whole answer waits for `go` and is `two`.

    begun, ended: calls so far; ended: with all that belongs to them.
    """

    def __init__(self) -> None:
        self.url = ""
        self.begun = 0
        self.ended = 0
        self.go = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def until_begun(self, count: int = 1) -> None:
        """Waits until so many calls have come."""
        await until(lambda: self.begun >= count, f"{count} calls")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
            body = await reader.readexactly(int(length or 0))
            if head.startswith(b"post"):
                await self._answer(json.loads(body), writer)
            else:
                self._whole({"object": "list", "data": [{"id": "mock-model", "object": "model"}]}, writer)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the gateway left
        finally:
            writer.close()

    async def _answer(self, asked: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        self.begun += 1
        if asked.get("stream"):
            writer.write(_STREAM + _chunk(_event("one")))
            await self.go.wait()
            usage = b"data: " + json.dumps({"id": "x", "object": "chat.completion.chunk", "choices": [], "usage": USAGE}).encode()
            writer.write(_chunk(_event("two", "stop")) + _chunk(usage + b"\n\n") + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
        else:
            await self.go.wait()
            message = {"role": "assistant", "content": "two"}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self._whole({"id": "x", "object": "chat.completion", "choices": [choice], "usage": USAGE}, writer)
        self.ended += 1

    @staticmethod
    def _whole(answer: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        body = json.dumps(answer).encode()
        writer.write(_HEAD + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
