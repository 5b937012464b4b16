from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gateway.wire.sse import EventTooLarge
from gateway.wire.stream import StreamRelay
from gateway.wire.usage import Usage
from tests.wire.splits import cuts, reads
from tests.wire.whatwg import dispatched

FUZZ = settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}


@dataclass(frozen=True)
class Item:
    """What a backend sends, and what it means. `finishes`: it carries a finish reason. `summary`: the usage-only chunk."""

    raw: bytes
    data: bytes | None = None
    finishes: bool = False
    summary: bool = False
    error: bool = False
    usage: Usage | None = None

    @property
    def done(self) -> bool:
        return self.data == b"[DONE]"


@st.composite
def spelt(draw: st.DrawFn, data: bytes, **meaning: Any) -> Item:
    """An event with that data in any spelling that the standard allows."""
    end = draw(st.sampled_from([b"\n", b"\n", b"\r\n", b"\r"]))
    before = draw(st.sampled_from([b"", b"", b"", b": ping" + end, b"event: message" + end]))
    space = draw(st.sampled_from([b" ", b""]))
    text = data.split(b", ", 1) if draw(st.booleans()) else [data]  # two data lines, which a client joins
    joined = b",\n".join(text)
    body = (b"," + end + b"data:" + space).join(text)
    return Item(before + b"data:" + space + body + end + end, joined, **meaning)


def chunk(draw: st.DrawFn, choices: list[dict[str, Any]], **more: Any) -> bytes:
    separators = draw(st.sampled_from([(", ", ": "), (",", ":")]))
    return json.dumps(HEAD | {"choices": choices} | more, separators=separators, ensure_ascii=draw(st.booleans())).encode()


@st.composite
def contents(draw: st.DrawFn) -> Item:
    text = draw(st.sampled_from(["a", "é漢🙂", "", "\r\n", '"usage"', '"error": {"finish_reason": "stop"}', "data: [DONE]\n\n", "{}"]))
    choice = {"index": draw(st.integers(0, 1)), "delta": {"content": text}, "finish_reason": None}
    if draw(st.booleans()):
        return draw(spelt(chunk(draw, [choice])))
    usage = {"prompt_tokens": draw(st.integers(0, 9)), "completion_tokens": draw(st.integers(0, 9))}
    read = Usage(prompt=usage["prompt_tokens"], completion=usage["completion_tokens"])
    return draw(spelt(chunk(draw, [choice], usage=usage), usage=read))


@st.composite
def finishes(draw: st.DrawFn) -> Item:
    choice = {"index": 0, "delta": {}, "finish_reason": draw(st.sampled_from(["stop", "length", "tool_calls"]))}
    return draw(spelt(chunk(draw, [choice]), finishes=True))


@st.composite
def summaries(draw: st.DrawFn) -> Item:
    usage = {"prompt_tokens": 5, "completion_tokens": draw(st.integers(0, 9))}
    data = chunk(draw, [], usage=usage)
    return draw(spelt(data, summary=True, usage=Usage(prompt=5, completion=usage["completion_tokens"])))


comments = st.sampled_from([b": ping\n\n", b":\n\n", b": wait\r\n\r\n", b":\r\r", b"event: x\n\n"]).map(Item)
errors = st.just(b'{"error": {"message": "out of memory", "code": 500}}').flatmap(lambda data: spelt(data, error=True))
done = spelt(b"[DONE]")


@st.composite
def streams(draw: st.DrawFn) -> list[Item]:
    items = draw(st.lists(st.one_of(contents(), contents(), finishes(), comments), max_size=6))
    for optional in (errors, summaries(), comments, done, comments):
        if draw(st.sampled_from([True, optional is not errors])) and draw(st.booleans()):
            items.append(draw(optional))
    return items


def sent(pieces: list[bytes], *, strip: bool, needs_done: bool = True) -> tuple[bytes, StreamRelay]:
    relay = StreamRelay(strip_usage=strip, needs_done=needs_done)
    out = b"".join([relay.feed(piece) for piece in pieces])
    return out + relay.close(), relay


EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'


@pytest.mark.parametrize("size", [1, len(EVENT) - 1, len(EVENT), len(EVENT) + 1, 3 * len(EVENT), 1_000_000])
def test_every_event_counts_however_many_come_at_once(size: int) -> None:
    """What a caller was sent is guessed from it when the backend never tells."""
    stream = EVENT * 20 + b"data: [DONE]\n\n"
    _, relay = sent([stream[at : at + size] for at in range(0, len(stream), size)], strip=True)

    assert (relay.events, relay.usage) == (21, None)


MESSAGES = (
    b"event: message_start\n"
    b'data: {"type":"message_start","message":{"usage":{"input_tokens":9,"cache_read_input_tokens":2,"output_tokens":1}}}\n\n',
    b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"a"}}\n\n',
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":4}}\n\n',
)


def test_messages_tells_of_the_prompt_first_and_of_the_answer_last() -> None:
    out, relay = sent(list(MESSAGES), strip=False, needs_done=False)

    assert out == b"".join(MESSAGES)
    assert relay.usage == Usage(prompt=11, cached=2, completion=4)
    _, broken_off = sent(list(MESSAGES[:2]), strip=False, needs_done=False)
    assert (broken_off.usage, broken_off.begun) == (None, Usage(prompt=11, cached=2, completion=1))


def test_responses_tells_at_its_end() -> None:
    created = b'event: response.created\ndata: {"type":"response.created","response":{"usage":null}}\n\n'
    completed = b'data: {"type":"response.completed","response":{"usage":{"input_tokens":9,"output_tokens":4,"total_tokens":13}}}\n\n'
    out, relay = sent([created, completed], strip=False, needs_done=False)

    assert out == created + completed
    assert relay.usage == Usage(prompt=9, completion=4)


def cut_short(items: list[Item]) -> bool:
    """Whether such a stream, which needs a `[DONE]`, ended before its answer did."""
    told = any(item.done or item.error for item in items)
    answer = [item for item in items if item.data is not None and not item.summary]
    return not told and not any(item.finishes for item in answer[-2:])


def usage(items: list[Item]) -> Usage | None:
    return next((item.usage for item in reversed(items) if item.usage is not None), None)


@FUZZ
@given(items=streams(), cuts=cuts, strip=st.booleans(), needs_done=st.booleans())
def test_every_split_of_a_stream_reads_the_same(items: list[Item], cuts: list[int], strip: bool, needs_done: bool) -> None:
    out, relay = sent(reads(b"".join(item.raw for item in items), cuts), strip=strip, needs_done=needs_done)

    assert out == b"".join(item.raw for item in items if not (strip and item.summary))
    assert relay.done == any(item.done for item in items)
    assert relay.failed == any(item.error for item in items)
    assert relay.usage == usage(items)
    assert relay.truncated == (needs_done and cut_short(items))
    assert bool(relay.events) == any(item.data is not None for item in items)


@FUZZ
@given(items=streams(), end=st.integers(0, 2000), cuts=cuts, strip=st.booleans())
@example(items=[Item(b'data: {"finish_reason": "stop"}\n\n', b"", finishes=True)], end=30, cuts=[], strip=False)
def test_a_stream_that_breaks_off_anywhere_is_told_from_one_that_ended(items: list[Item], end: int, cuts: list[int], strip: bool) -> None:
    stream = b"".join(item.raw for item in items)
    stream = stream[: end % (len(stream) + 1)]
    whole: list[Item] = []
    rest = stream
    for item in items:
        if not rest.startswith(item.raw):
            break
        whole.append(item)
        rest = rest.removeprefix(item.raw)
    begun = items[len(whole)] if rest else Item(b"")
    complete = begun.data in dispatched(rest + b"\n\n")  # all of its data came, if not the line ends after it
    ended = begun.data in dispatched(rest)

    out, relay = sent(reads(stream, cuts), strip=strip)

    known = [*whole, begun] if ended or (complete and (begun.done or begun.error)) else whole
    assert relay.truncated == cut_short(known)
    assert relay.usage == usage([*whole, begun] if complete else whole)
    dropped = strip and begun.summary and complete
    kept = b"" if dropped or (relay.truncated and not ended) else rest
    if not (rest and begun.data is None):  # half a comment may go either way: no client sees a difference
        assert out == b"".join(item.raw for item in whole if not (strip and item.summary)) + kept


CONTENT = b'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}\n\n'
FINISH = b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
SUMMARY = b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12}}\n\n'
DONE = b"data: [DONE]\n\n"


def test_an_event_goes_on_in_the_read_that_completes_it() -> None:
    relay = StreamRelay(strip_usage=True, needs_done=True)

    assert relay.feed(CONTENT) == CONTENT
    assert relay.feed(CONTENT + CONTENT[:20]) == CONTENT
    assert relay.feed(CONTENT[20:]) == CONTENT
    assert relay.feed(DONE) == DONE
    assert relay.done


def test_the_usage_chunk_stays_when_the_caller_asked_for_it() -> None:
    out, relay = sent([CONTENT, FINISH, SUMMARY, DONE], strip=False)

    assert out == CONTENT + FINISH + SUMMARY + DONE
    assert relay.usage == Usage(prompt=5, completion=7)


def test_what_the_last_chunk_says_of_the_whole_answer_outlives_the_usage_chunk() -> None:
    summary = SUMMARY.replace(b"}}\n\n", b'},"system_fingerprint":"fp-1","timings":{"predicted_ms": 1.50}}\n\n')

    out, _ = sent([CONTENT, FINISH, summary, DONE], strip=True)

    assert out == CONTENT + FINISH[:-3] + b',"system_fingerprint":"fp-1","timings":{"predicted_ms": 1.50}}\n\n' + DONE


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_the_move_works_for_every_line_end_and_for_data_in_several_lines(end: bytes) -> None:
    finish = FINISH.replace(b"\n", end)
    summary = b'data: {"choices": [], "usage": {},' + end + b'data: "timings":' + end + b'data: {"n": 1}}' + end + end

    out, _ = sent([finish + summary + DONE], strip=True)

    assert dispatched(out)[1:] == [b"[DONE]"]
    assert json.loads(dispatched(out)[0]) == json.loads(FINISH[6:]) | {"timings": {"n": 1}}


def test_a_summary_that_cannot_be_walked_is_dropped_without_a_fault() -> None:
    many = b",".join(b'"k%d":1' % i for i in range(5000))
    summary = b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":7},' + many + b"}\n\n"
    strange = b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":7},"\xff":1}\n\n'

    assert sent([FINISH, summary, DONE], strip=True)[0] == FINISH + DONE
    assert sent([FINISH, strange, DONE], strip=True)[0] == FINISH + DONE


def test_an_error_that_reports_usage_is_not_taken_for_the_usage_chunk() -> None:
    error = b'data: {"error":{"message":"boom"},"usage":{"prompt_tokens":5,"completion_tokens":7}}\n\n'

    out, relay = sent([CONTENT, error], strip=True)

    assert out == CONTENT + error
    assert relay.failed
    assert not relay.truncated  # the caller knows


def test_one_usage_chunk_for_each_choice_adds_up() -> None:
    out, relay = sent([CONTENT, FINISH, SUMMARY, SUMMARY, DONE], strip=True)

    assert out == CONTENT + FINISH + DONE
    assert relay.usage == Usage(prompt=5, completion=14)


def test_usage_so_far_is_known_when_the_answer_breaks_off() -> None:
    counted = CONTENT[:-3] + b',"usage":{"prompt_tokens":5,"completion_tokens":1}}\n\n'

    out, relay = sent([counted, counted.replace(b":1}", b":2}"), CONTENT], strip=True)

    assert out == counted + counted.replace(b":1}", b":2}") + CONTENT
    assert relay.usage == Usage(prompt=5, completion=2)
    assert relay.truncated


@pytest.mark.parametrize(
    ("stream", "truncated"),
    [
        (b"", True),
        (CONTENT, True),
        (CONTENT + b"data: [DONE]", False),  # some servers end without the empty line
        (CONTENT + b"data: [DONE]\n", False),
        (CONTENT + b"data: [DO", True),
        (CONTENT + FINISH, False),
        (CONTENT + FINISH + SUMMARY, False),
        (CONTENT + FINISH + SUMMARY * 3, False),
        (FINISH + CONTENT, False),
        (FINISH + CONTENT + CONTENT, True),  # of another choice
        (CONTENT + FINISH[:-2], True),  # never dispatched
        (CONTENT + FINISH[:-1], True),
        (CONTENT + DONE + b": bye\n\n", False),
        (CONTENT + FINISH + b": {a}\n\n: {b}\n\n: {c}\n\n", False),
        (CONTENT + b'data: {"error":{"message":"boom"}}\n\n', False),
    ],
)
def test_an_end_without_an_end(stream: bytes, truncated: bool) -> None:
    assert sent([stream], strip=False)[1].truncated is truncated
    assert sent(stream.splitlines(keepends=True), strip=False)[1].truncated is truncated
    assert (
        sent([event + b"\n\n" for event in stream.split(b"\n\n")[:-1]] + [stream.split(b"\n\n")[-1]], strip=False)[1].truncated is truncated
    )
    assert not sent([stream], strip=False, needs_done=False)[1].truncated


@pytest.mark.parametrize("strip", [True, False])
def test_the_last_whole_event_of_a_cut_stream_goes_on(strip: bool) -> None:
    """One that ends in a lone CR could have been half of a CR LF until the stream ended."""
    stream = CONTENT + CONTENT.replace(b"\n", b"\r")

    out, relay = sent([stream], strip=strip)

    assert out == stream
    assert relay.truncated


def test_an_event_without_end_is_given_up() -> None:
    relay = StreamRelay(strip_usage=False, needs_done=True)
    with pytest.raises(EventTooLarge):
        for _ in range(20):
            relay.feed(b"data: " + b"x" * (1 << 20))


def test_what_waits_for_the_next_event_can_be_had_when_none_will_come() -> None:
    relay = StreamRelay(strip_usage=True, needs_done=True)

    assert relay.feed(CONTENT + FINISH) == CONTENT
    assert relay.held() == FINISH
    assert relay.held() == b""
