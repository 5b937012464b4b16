"""How an answer on the wire is judged."""

from __future__ import annotations

import asyncio
from array import array

import pytest

from gateway.load.exchange import Exchange
from gateway.load.outcome import Record

SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
TOKEN = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
ERROR = b'data: {"error":{"message":"broke","type":"x","param":null,"code":"backend_stream_broken"}}\n\n'
DONE = b"data: [DONE]\n\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def whole(status: str, body: bytes, *headers: bytes) -> bytes:
    lines = b"".join(header + b"\r\n" for header in headers)
    return b"HTTP/1.1 %b\r\n%bcontent-length: %d\r\n\r\n%b" % (status.encode(), lines, len(body), body)


async def judged(*pieces: bytes, closed: bool = True, leave_after_events: int | None = None) -> tuple[Record, list[float]]:
    """The record after these reads, one a second, and the gaps."""
    now = 0.0
    gaps = array("d")
    record = Record(number=0, load="chat", tenant="t", at=0.0, stream=True, slow=False, max_tokens=1)
    over = asyncio.get_running_loop().create_future()
    exchange = Exchange(record, lambda: now, gaps, over, leave_after_events)
    for piece in pieces:
        now += 1.0
        exchange.feed(piece)
    if closed:
        exchange.end("the connection was closed")
    assert over.done()
    return record, list(gaps)


@pytest.mark.parametrize(
    ("pieces", "kind"),
    [
        ([SSE, chunk(TOKEN), chunk(TOKEN), chunk(DONE), END], "complete"),
        ([SSE + chunk(TOKEN + TOKEN + DONE) + END], "complete"),
        ([SSE, chunk(TOKEN), chunk(ERROR), END], "broken"),
        ([SSE, chunk(TOKEN), chunk(ERROR)], "broken"),
        ([SSE, chunk(ERROR), END], "broken"),
        ([SSE, chunk(TOKEN), END], "truncated"),
        ([SSE, chunk(TOKEN)], "truncated"),
        ([SSE], "truncated"),
        ([SSE, END], "truncated"),
        ([SSE, chunk(TOKEN), chunk(ERROR), chunk(ERROR), END], "garbled"),
        ([SSE, chunk(TOKEN), chunk(ERROR), chunk(DONE), END], "garbled"),
        ([SSE, chunk(ERROR), chunk(TOKEN), END], "garbled"),
        ([whole("200 OK", b'{"choices":[{}]}')], "complete"),
        ([whole("200 OK", b"<html>")], "garbled"),
        ([whole("200 OK", b'{"object":"list"}')], "garbled"),
        ([whole("200 OK", b'{"choices":[{}]}')[:-3]], "truncated"),
        ([whole("429 Slow", b"{}")], "shed"),
        ([whole("503 Busy", b"{}")], "shed"),
        ([whole("400 Bad", b"{}")], "refused"),
        ([whole("502 Bad", b"{}")], "failed"),
        ([], "failed"),
        ([b"HTTP/1.1 2"], "failed"),
        ([b"SSH-2.0-x\r\n"], "failed"),
    ],
)
async def test_how_a_request_ended(pieces: list[bytes], kind: str) -> None:
    record, _ = await judged(*pieces)

    assert record.kind == kind


async def test_every_event_has_its_time_however_it_was_cut() -> None:
    stream = SSE + chunk(b": ping\n\n") + chunk(TOKEN) + chunk(TOKEN + TOKEN) + chunk(DONE) + END

    at_once, at_once_gaps = await judged(stream)
    bytewise, bytewise_gaps = await judged(*(bytes([byte]) for byte in stream))

    assert (at_once.events, bytewise.events) == (3, 3)
    assert (at_once.first, at_once.last, at_once_gaps) == (1.0, 1.0, [0.0, 0.0])
    third = stream.index(TOKEN + TOKEN) + len(TOKEN)
    assert bytewise.first == stream.index(TOKEN) + len(TOKEN)
    assert bytewise_gaps == [third - bytewise.first, len(TOKEN)]
    assert bytewise.last == third + len(TOKEN)
    assert bytewise.longest_gap == max(bytewise_gaps)


async def test_a_comment_is_no_event() -> None:
    record, _ = await judged(SSE, chunk(b": ping\n\n"), chunk(TOKEN), chunk(DONE), END)

    assert record.events == 1
    assert record.first == 3.0
    assert record.done


async def test_what_the_headers_tell() -> None:
    headers = (b"Retry-After: 7", b"x-trilemma-attempts: 3", b"X-Trilemma-Overhead-Ms: 1.25")
    record, _ = await judged(whole("503 Busy", b'{"error":{"message":"full","code":"gateway_overloaded"}}', *headers))

    assert (record.retry_after, record.attempts, record.overhead_ms, record.code) == (True, 3, 1.25, "gateway_overloaded")


async def test_an_error_without_the_envelope_has_no_code() -> None:
    record, _ = await judged(whole("500 Oops", b"Internal Server Error"))

    assert record.kind == "failed"
    assert record.code is None


async def test_a_word_in_the_text_is_no_error() -> None:
    record, _ = await judged(SSE, chunk(b'data: {"choices":[{"delta":{"content":"\\"error\\""}}]}\n\n'), chunk(DONE), END)

    assert (record.kind, record.errors, record.events) == ("complete", 0, 1)


async def test_a_caller_that_leaves_is_not_waited_for() -> None:
    record, _ = await judged(SSE, chunk(TOKEN), chunk(TOKEN), closed=False, leave_after_events=2)

    assert (record.kind, record.events, record.end) == ("left", 2, 3.0)


USAGE = b'"usage":{"prompt_tokens":1000,"total_tokens":1001,"prompt_tokens_details":{"cached_tokens":%b}}'


@pytest.mark.parametrize(
    ("pieces", "uncached"),
    [
        ([whole("200 OK", b'{"choices":[{}],' + USAGE % b"640" + b"}")], 360),
        ([SSE, chunk(TOKEN), chunk(b'data: {"choices":[],' + USAGE % b"640" + b"}\n\n"), chunk(DONE), END], 360),
        ([whole("200 OK", b'{"choices":[{}],' + USAGE % b"null" + b"}")], 1000),
        ([whole("200 OK", b'{"choices":[{}],"usage":{"prompt_tokens":1000}}')], None),
        ([whole("200 OK", b'{"choices":[{}],"usage":{"prompt_tokens":"many","prompt_tokens_details":{}}}')], None),
        ([whole("200 OK", b'{"choices":[{}],"usage":null}')], None),
        ([whole("200 OK", b'{"choices":[{}]}')], None),
        ([SSE, chunk(TOKEN), chunk(DONE), END], None),
    ],
)
async def test_the_usage_tells_what_was_computed_of_the_prompt(pieces: list[bytes], uncached: int | None) -> None:
    record, _ = await judged(*pieces)

    assert (record.kind, record.uncached) == ("complete", uncached)


async def test_the_model_that_served_is_noted() -> None:
    record, _ = await judged(whole("200 OK", b'{"choices":[{}]}', b"X-Trilemma-Model: small"))

    assert record.model == "small"


async def test_an_interim_answer_is_not_the_answer() -> None:
    record, _ = await judged(b"HTTP/1.1 100 Continue\r\n\r\n" + whole("200 OK", b'{"choices":[{}]}'))

    assert (record.kind, record.status) == ("complete", 200)
