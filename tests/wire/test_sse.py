from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gateway.wire.sse import EventSplitter, EventTooLarge, data_of, events_data, is_whole
from tests.wire.splits import cuts, reads
from tests.wire.whatwg import dispatched

FUZZ = settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])

ends = st.sampled_from([b"\n", b"\r\n", b"\r"])
text = st.text(max_size=6).map(str.encode).filter(lambda value: b"\n" not in value and b"\r" not in value)
lines = st.one_of(
    st.sampled_from([b"", b"", b":", b": wait", b"data", b"data:", b"data: ", b"id: 1", b"event: x", b"retry: 5", b" data: x", b"Data: x"]),
    text.map(lambda value: b"data:" + value),
    text.map(lambda value: b"data: " + value),
    text.map(lambda value: b": " + value),
    text,
)
streams = st.one_of(
    st.lists(st.tuples(lines, ends), max_size=14).map(lambda pairs: b"".join(line + end for line, end in pairs)),
    st.lists(st.sampled_from([b"data", b":", b" ", b"x", b"\n", b"\r", b"\xe6", b"\xef\xbb\xbf"]), max_size=30).map(b"".join),
    st.binary(max_size=40),
)


def split(pieces: list[bytes]) -> tuple[list[bytes], bytes]:
    splitter = EventSplitter()
    events = [event for piece in pieces for event in splitter.feed(piece)]
    return events, splitter.close()


@FUZZ
@given(stream=streams, cuts=cuts)
@example(stream=b"data: a\r\n\r\ndata: b\r\r\ndata: c\n\r\n", cuts=[8, 9, 10])
@example(stream=b"data: a\n\n\n", cuts=[])
def test_any_split_of_any_stream_gives_the_events_of_the_standard(stream: bytes, cuts: list[int]) -> None:
    events, rest = split(reads(stream, cuts))

    assert b"".join(events) + rest == stream
    whole = [*events, rest] if is_whole(rest) else events
    assert [data for event in whole if (data := data_of(event)) is not None] == dispatched(b"\n" + stream)  # a BOM only counts at the start


@FUZZ
@given(stream=streams)
def test_every_byte_alone_is_as_good_as_all_at_once(stream: bytes) -> None:
    one_by_one = split([stream[i : i + 1] for i in range(len(stream))])

    assert one_by_one == split([stream])


@FUZZ
@given(stream=streams)
@example(stream="\N{BOM}data: first\n\n".encode())
@example(stream=b"data: only\r\r")
def test_a_whole_stream_gives_the_data_that_a_client_sees(stream: bytes) -> None:
    assert list(events_data(stream)) == dispatched(stream)


def test_an_event_comes_out_as_soon_as_it_is_whole() -> None:
    splitter = EventSplitter()

    assert splitter.feed(b"data: 1\n") == []
    assert not splitter.empty
    assert splitter.feed(b"\ndata: 2\n\nda") == [b"data: 1\n\n", b"data: 2\n\n"]
    assert splitter.feed(b"ta: 3\r\n\r") == []  # the CR may be half of a line end
    assert splitter.feed(b"\n") == [b"data: 3\r\n\r\n"]
    assert splitter.empty
    assert splitter.close() == b""


@pytest.mark.parametrize(
    ("event", "data"),
    [
        (b'data: {"a":1}\n\n', b'{"a":1}'),
        (b"data:x\n\n", b"x"),
        (b"data:  x\n\n", b" x"),
        (b"data:  a \ndata:\tb\n\n", b" a \n\tb"),
        (b"data\n\n", b""),
        (b"data: a\r\ndata: b\r\n\r\n", b"a\nb"),
        (b"data: a\rdata: b\r\r", b"a\nb"),
        (b"data: a\rdata: b\n\n", b"a\nb"),
        (b": ping\ndata: a\n\n", b"a"),
        (b"event: error\nid: 7\ndata: a\nretry: 1\n\n", b"a"),
        (b": ping\n\n", None),
        (b":\n\n", None),
        (b"event: done\n\n", None),
        (b"\n\n", None),
        ("data: é漢🙂\n\n".encode(), "é漢🙂".encode()),
    ],
)
def test_the_data_of_one_event(event: bytes, data: bytes | None) -> None:
    assert data_of(event) == data


def test_what_waits_is_bounded() -> None:
    splitter = EventSplitter(limit=10)

    assert splitter.feed(b"data: a whole event may be larger\n\n: 3456789") == [b"data: a whole event may be larger\n\n"]
    splitter.feed(b"0")
    with pytest.raises(EventTooLarge):
        splitter.feed(b"1")


def test_a_stream_without_line_ends_is_given_up_before_it_fills_the_memory() -> None:
    splitter = EventSplitter()
    fed = 0
    with pytest.raises(EventTooLarge):
        while fed < 64 << 20:
            splitter.feed(b"x" * (1 << 20))
            fed += 1 << 20
    assert fed == 16 << 20
