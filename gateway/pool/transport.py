"""The seam under which an HTTP client sits: one request out, an answer in as raw bytes.

TransportError       nothing was sent, because the request cannot be
|- ConnectFailed     nothing was sent, because there is no connection
|- Broken            the connection ended, or what came is no answer, before the answer was whole
`- TimedOut          a bound on the first byte or on silence passed
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from gateway.wire.errors import Header


class TransportError(Exception):
    """An upstream call that got no (whole) answer."""


class ConnectFailed(TransportError):
    """No connection: nothing was sent."""


class Broken(TransportError):
    """The answer ended early. `untouched`: a kept-alive connection, closed as the request was sent: nobody worked on it."""

    def __init__(self, message: str, *, untouched: bool = False) -> None:
        super().__init__(message)
        self.untouched = untouched


class TimedOut(TransportError):
    """A time bound passed."""


Tap = Callable[[bytes], bool]
"""Takes bytes of a body where they arrive, so that nobody has to be woken for them. False: it did not take these."""


class Upstream(Protocol):
    """An answer whose head has arrived; header names are in lower case. Close or release it on every path; the first call counts."""

    @property
    def status(self) -> int:
        """The HTTP status, three digits; never an interim one (1xx)."""
        ...

    @property
    def headers(self) -> Sequence[Header]:
        """In the order they came."""
        ...

    def whole(self) -> bytes | None:
        """What is left of the body, when all of it has come; None: `read_some` has to be waited for. It may say so of any answer."""
        ...

    async def read_some(self, tap: Tap | None = None) -> bytes:
        """The next bytes of the body as they come; empty at its end. tap: is offered what comes while this waits, and what it takes is not
        returned; a transport may do without it. Raises TransportError."""
        ...

    def release(self) -> None:
        """The body was read to its end: the connection may serve again."""
        ...

    def close(self) -> None:
        """Abandons the answer: the socket is closed at once, so that the engine stops working."""
        ...


class Transport(Protocol):
    """Sends requests. No redirects, no retries, no decompression, no cookies: their owners sit above."""

    async def send(
        self, method: str, url: str, headers: Sequence[Header], body: bytes, connect_s: float, *, fresh: bool = False
    ) -> Upstream:
        """Sends a request and waits for the answer's head. Cancelling closes the socket. Raises TransportError.

        url: absolute, without user and fragment. headers: neither `host` nor framing, which are added here; one with a line end in it is
        refused. connect_s: bound on connecting, name look-up and TLS. fresh: not over a kept-alive connection.
        """
        ...

    async def close(self) -> None:
        """Closes all connections; nothing can be sent after it."""
        ...
