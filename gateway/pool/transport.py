"""The seam under which an HTTP client sits: one request out, an answer in as raw bytes.

TransportError
|- ConnectFailed    nothing was sent
|- Broken           the connection ended before the answer did
`- TimedOut         a bound on connecting, on the first byte or on silence passed
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gateway.wire.errors import Header


class TransportError(Exception):
    """An upstream call that got no (whole) answer."""


class ConnectFailed(TransportError):
    """No connection: nothing was sent."""


class Broken(TransportError):
    """The connection ended early. `untouched`: a kept-alive one, before one byte of an answer, so that nobody worked on it."""

    def __init__(self, message: str, *, untouched: bool = False) -> None:
        super().__init__(message)
        self.untouched = untouched


class TimedOut(TransportError):
    """A time bound passed."""


class Upstream(Protocol):
    """An answer whose head has arrived; header names are in lower case. Close or release it exactly once, on every path."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def headers(self) -> Sequence[Header]:
        """In the order they came."""
        ...

    async def read_some(self) -> bytes:
        """The next bytes of the body as they come; empty at its end. Raises TransportError."""
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
        """Sends a request and waits for the answer's head; `host` and framing are added. Cancelling closes the socket.

        fresh: not over a kept-alive connection. Raises TransportError.
        """
        ...

    async def close(self) -> None:
        """Closes all connections."""
        ...
