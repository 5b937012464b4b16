"""Which headers cross the gateway.

Requests: an allow-list, because a caller's headers may carry secrets of other services (cookies, proxies' tokens). Answers: everything
end-to-end that the backend says, because the operator owns the backend; framing is always the server's own. Names are in lower case.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from email.utils import parsedate_to_datetime

from gateway.wire.errors import Header

REQUEST_ALLOWED = frozenset((b"accept", b"accept-language", b"content-type", b"traceparent", b"tracestate", b"baggage", b"user-agent"))

_NUMBER = re.compile(rb"[0-9]{1,9}(?:\.[0-9]{1,9})?\Z")
_ANSWER_DROPPED = frozenset(
    (
        # hop-by-hop (RFC 9110, 7.6.1) and framing
        b"connection",
        b"content-encoding",
        b"content-length",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        # the gateway says these itself, or they concern the hop only
        b"alt-svc",
        b"date",
        b"server",
        b"set-cookie",
        b"strict-transport-security",
        b"www-authenticate",
        b"x-request-id",
    )
)


def forwarded(headers: Sequence[Header], extra: frozenset[bytes] = frozenset()) -> list[Header]:
    """The caller's headers that go to a backend."""
    named = _connection_named(headers)
    return [header for header in headers if (header[0] in REQUEST_ALLOWED or header[0] in extra) and header[0] not in named]


def answered(headers: Sequence[Header]) -> list[Header]:
    """The backend's headers that go to the caller."""
    named = _connection_named(headers)
    return [
        (name, value)
        for name, value in headers
        if name not in _ANSWER_DROPPED and name not in named and not name.startswith((b"access-control-", b"x-trilemma-"))
    ]


def first(headers: Sequence[Header], name: bytes) -> bytes | None:
    """The first header of that (lower-case) name."""
    for key, value in headers:
        if key == name:
            return value
    return None


def retry_after_s(headers: Sequence[Header]) -> float | None:
    """How long the backend asks to be left alone: `retry-after-ms`, or `retry-after` as seconds or as a date; None: it does not say."""
    for name, scale in ((b"retry-after-ms", 1e-3), (b"retry-after", 1.0)):
        value = first(headers, name)
        if value is not None and _NUMBER.match(value):
            return float(value) * scale
    value = first(headers, b"retry-after")
    if value is None:
        return None
    try:
        return max(0.0, parsedate_to_datetime(value.decode("latin-1")).timestamp() - time.time())
    except (ValueError, OverflowError):  # a year that there is not
        return None


def _connection_named(headers: Sequence[Header]) -> frozenset[bytes] | tuple[()]:
    """What the `connection` headers name as meant for this hop only."""
    values = [value for name, value in headers if name == b"connection"]
    return frozenset([part.strip().lower() for part in b",".join(values).split(b",")]) if values else ()
