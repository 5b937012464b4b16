"""Signs of life in a stream: when nothing has been sent for a while, a comment goes out, so that nobody on the way takes silence for death.

The comment is the lone line `: `, between two events. No empty line follows it, and there is never an `id:`, `retry:` or `event:`: on those
some SDKs dispatch an event without data, and fail to parse it.

Beating begins when the request is admitted. If the backend's head has not come after the first period, the answer is begun without it, as a
200 of `text/event-stream`. From then on its status is fixed, and an error that comes after all is one error event, the last.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

import orjson

from gateway.serving.call import Answer, Push, Receipt, Stream
from gateway.serving.streams import SSE_HEADERS
from gateway.wire.errors import ApiError, sse_event
from gateway.wire.request import json_object

COMMENT: Final = b": \n"
_SSE: Final = (b"content-type", b"text/event-stream; charset=utf-8")


Send = Callable[[bytes], None]


async def beating(work: Callable[[Send], Coroutine[Any, Any, Answer]], period_s: float, receipt: Receipt) -> Answer:
    """The answer that `work` gives, or one that is begun without it; a stream in it beats after each `period_s` of silence, seconds.

    `work` turns all errors into answers. It runs in a task of its own, which ends with the stream, or when this is cancelled. With what it
    is given it may send events before its answer, which begin it; one that comes before the last was taken is left out.
    """
    begun = time.perf_counter()
    stream = Heartbeat(work, period_s)
    try:
        answer = await stream.answer()
    except BaseException:
        stream.close()
        raise
    if answer is None:
        waited, receipt.waited = receipt.waited, time.perf_counter() - begun
        headers = receipt.headers(stream=True)
        receipt.waited = waited  # whoever still waits adds all of it in the end
        return Answer(200, [_SSE, *SSE_HEADERS, *headers], stream=stream)
    if answer.stream is None:
        return answer
    return Answer(answer.status, answer.headers, stream=stream)


class Heartbeat:
    """A stream (call.Stream) around work that gives one."""

    __slots__ = ("_ended", "_first", "_items", "_period_s", "_stream", "_task")

    takes_comments = True

    def __init__(self, work: Callable[[Send], Coroutine[Any, Any, Answer]], period_s: float) -> None:
        self._period_s: float | None = period_s
        self._items: asyncio.Queue[Answer | bytes | Exception] = asyncio.Queue(1)
        self._stream: Stream | None = None
        self._ended = False
        self._first = b""
        self._task = asyncio.get_running_loop().create_task(self._pump(work(self._send)))

    async def answer(self) -> Answer | None:
        """What the work gives, or None when that takes longer than the period, or it sent something before. Ask once, first of all."""
        item = await self._item()
        if isinstance(item, Exception):
            raise item
        if isinstance(item, bytes):
            self._first = item
            return None
        if item is not None and (item.stream is None or not item.stream.takes_comments):
            self._period_s = None  # a comment would be part of such a body
        return item

    async def next(self, push: Push | None = None) -> bytes:  # noqa: ARG002 (nothing to be handed on)
        """See Stream.next; a comment, when nothing comes for a period."""
        if first := self._first:
            self._first = b""
            return first
        while not self._ended:
            item = await self._item()
            if item is None:
                return COMMENT
            if isinstance(item, Exception):
                raise item
            if isinstance(item, bytes):
                self._ended = not item
                return item
            if item.stream is None or not item.stream.takes_comments:
                self._ended = True
                return _told(item)
        return b""

    def cut(self, error: ApiError) -> bytes | None:
        """See Stream.cut. What was brought already goes first."""
        if self._ended:
            return b""
        self._ended = True
        self._task.cancel()
        item = None if self._items.empty() else self._items.get_nowait()
        last = sse_event(error) if self._stream is None else self._stream.cut(error)
        return last if last is None or not isinstance(item, bytes) else item + last

    def close(self) -> None:
        """See Stream.close."""
        self._ended = True
        self._task.cancel()
        if self._stream is not None:
            self._stream.close()

    def _send(self, event: bytes) -> None:
        if self._items.empty():
            self._items.put_nowait(event)

    async def _item(self) -> Answer | bytes | Exception | None:
        """What the pump brings next: the answer, then its bytes; None when it brings nothing for a period."""
        if not self._items.empty():
            return self._items.get_nowait()
        try:
            async with asyncio.timeout(self._period_s):
                return await self._items.get()
        except TimeoutError:
            return None

    async def _pump(self, work: Coroutine[Any, Any, Answer]) -> None:
        """Brings the answer and its bytes, one ahead of whoever takes them."""
        put = self._items.put
        try:
            answer = await work
            self._stream = stream = answer.stream
            await put(answer)
            if stream is not None:
                while data := await stream.next():
                    await put(data)
                await put(b"")
        except Exception as error:  # whoever takes it raises it
            await put(error)


def _told(answer: Answer) -> bytes:
    """An answer that is no stream of events, as the event that ends one."""
    if answer.status < 400:
        return sse_event(ApiError(502, "backend_bad_answer", "The backend did not stream its answer."))
    said = json_object(answer.body)
    if said is None or "error" not in said:
        return sse_event(ApiError(answer.status, "backend_error", f"The backend answered with status {answer.status}."))
    return b"data: " + orjson.dumps(said) + b"\n\n"
