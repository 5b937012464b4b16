"""The trace that a request belongs to (W3C Trace Context, level 1), and the ids of its spans.

All ids follow from the decision id, so what goes to a backend while the request runs and the spans that are made when it has ended agree
without anything being kept. Span 0 is the request, span n its n-th call.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import msgspec

from gateway.wire import headers as wire_headers
from gateway.wire.errors import Header

_FORM = re.compile(rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]*)?\Z")


class Parent(msgspec.Struct, frozen=True):
    """The caller's span."""

    trace_id: int
    span_id: int
    sampled: bool


def parent(headers: Sequence[Header]) -> Parent | None:
    """The caller's span; None: it names none, or not in the form that there is."""
    value = wire_headers.first(headers, b"traceparent")
    match = None if value is None else _FORM.match(value)
    if match is None or (match[1] == b"00" and match[5] is not None):
        return None
    return Parent(int(match[2], 16), int(match[3], 16), bool(int(match[4], 16) & 1))


def trace_id(decision_id: str) -> int:
    """Of a request whose caller has no trace."""
    return _id(decision_id, b"trace", 16)


def span_id(decision_id: str, number: int) -> int:
    """Of the request (0) or of its n-th call."""
    return _id(decision_id, b"span %d" % number, 8)


def written(trace: int, span: int, *, sampled: bool) -> bytes:
    """The header that names a span."""
    return b"00-%032x-%016x-%02x" % (trace, span, sampled)


def _id(decision_id: str, what: bytes, size: int) -> int:
    # Never 0, which would be none.
    return int.from_bytes(hashlib.blake2b(decision_id.encode(), digest_size=size, person=what).digest(), "big") or 1
