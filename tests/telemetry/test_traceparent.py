from __future__ import annotations

import pytest

from gateway.telemetry import traceparent
from gateway.telemetry.traceparent import Parent

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("value", "sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),
        (f"01-{TRACE}-{SPAN}-01-of-a-later-version", True),
    ],
)
def test_the_caller_s_span(value: str, sampled: bool) -> None:
    headers = [(b"accept", b"*/*"), (b"traceparent", value.encode())]
    assert traceparent.parent(headers) == Parent(int(TRACE, 16), int(SPAN, 16), sampled)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "00",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01\n",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
    ],
)
def test_what_is_none(value: str) -> None:
    assert traceparent.parent([(b"traceparent", value.encode())]) is None
    assert traceparent.parent([]) is None


def test_ids_follow_from_the_decision() -> None:
    """Each request and each of its calls has its own, the same however often it is asked for."""
    spans = [traceparent.span_id(decision, number) for decision in ("d-1", "d-2") for number in range(3)]
    assert len(set(spans)) == 6 and all(0 < span < 2**64 for span in spans)
    assert traceparent.span_id("d-1", 2) == spans[2]
    assert 0 < traceparent.trace_id("d-1") < 2**128
    assert traceparent.trace_id("d-1") != traceparent.trace_id("d-2")


def test_what_is_written_is_read_again() -> None:
    for sampled in (False, True):
        value = traceparent.written(int(TRACE, 16), int(SPAN, 16), sampled=sampled)
        assert value == f"00-{TRACE}-{SPAN}-0{int(sampled)}".encode()
        assert traceparent.parent([(b"traceparent", value)]) == Parent(int(TRACE, 16), int(SPAN, 16), sampled)
    assert traceparent.written(1, 2, sampled=True) == b"00-" + b"1".zfill(32) + b"-" + b"2".zfill(16) + b"-01"
