"""What the mock received, and what became of it."""

from __future__ import annotations

import asyncio
import base64
import time
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class Received:
    """One request, and its fate. Headers are pairs as received: order, case and duplicates kept."""

    number: int
    connection: int
    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    keep_alive: bool = True
    at: float = field(default_factory=time.time)
    """Seconds since the epoch, at the last byte of the request."""
    status: int | None = None
    events_sent: int = 0
    bytes_sent: int = 0
    """Bytes of body handed to the socket."""
    answered: bool = False
    """The answer was sent in full."""
    aborted: bool = False
    """The client closed or reset before the answer was complete."""
    cut: bool = False
    """The script closed or reset the connection."""

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def control(self) -> bool:
        """The request speaks to the mock itself; such requests leave no record."""
        return self.path.startswith("/mock/")

    @property
    def call(self) -> bool:
        """The request asks for work (POST below /v1/), other than a probe."""
        return self.method == "POST" and self.path.startswith("/v1/")

    @property
    def in_flight(self) -> bool:
        return not (self.answered or self.aborted or self.cut)

    def header(self, name: str) -> str | None:
        """The first value of the header, by any case."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def as_json(self) -> dict[str, Any]:
        return {
            **{key: value for key, value in vars(self).items() if key != "body"},
            "in_flight": self.in_flight,
            "body": self.body.decode(errors="replace"),
            "body_base64": base64.b64encode(self.body).decode(),
        }


class Recorder:
    """The requests (the newest `keep`), the gauges, and a way to wait for them."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._waiting: set[asyncio.Future[None]] = set()
        self.requests: list[Received] = []
        self.connections = 0
        self.opened = 0
        self.in_flight = 0
        self.total = 0
        self.calls = 0
        self.aborted = 0

    def connected(self) -> int:
        """A client connected; returns the number of its connection, from 1."""
        self.connections += 1
        self.opened += 1
        self.changed()
        return self.opened

    def disconnected(self) -> None:
        self.connections -= 1
        self.changed()

    def received(self, request: Received) -> None:
        if request.control:
            return
        self.requests.append(request)
        if len(self.requests) > self._keep:
            del self.requests[: len(self.requests) - self._keep]
        self.total += 1
        self.calls += request.call
        self.in_flight += 1
        self.changed()

    def settle(self, request: Received, *, answered: bool = False, aborted: bool = False, cut: bool = False) -> None:
        """Notes the fate of a request in flight; the first one holds."""
        if request.control or not request.in_flight:
            return
        request.answered, request.aborted, request.cut = answered, aborted, cut
        self.in_flight -= 1
        self.aborted += aborted
        self.changed()

    def clear(self) -> None:
        """Forgets the requests and the totals; what is open or in flight stays counted."""
        self.requests.clear()
        self.total = self.in_flight
        self.calls = self.aborted = 0
        self.changed()

    def changed(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def next_change(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)

    def gauges(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in ("connections", "opened", "in_flight", "total", "calls", "aborted")}
