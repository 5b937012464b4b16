"""uvicorn with uvloop and httptools, set up for streams that last, and for an end in good order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from types import FrameType
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from gateway.config.schema import Server as Settings
from gateway.http.hot import fits
from gateway.http.protocol import AsgiOnly, Protocol, ServerState

log = logging.getLogger("trilemma")

_LOOK_S: Final = 0.05
LAST_WORDS_S: Final = 2.0
"""After the grace: how long what is cut off may take for its last words, and then whoever reads them."""


def nothing() -> None:
    """Nobody is told."""


async def at_once() -> None:
    """Nobody is waited for."""


class Server(uvicorn.Server):
    """uvicorn's server. At the first signal `on_exit` is called, and what runs gets `grace_s` to end; a second signal ends the grace.

    Until nothing runs it goes on listening, so that whoever comes is told why not, and probes see what is going on. What runs too long
    is cancelled, and says so to its caller. on_start: is called once it listens. on_close: is waited for before it listens no more. hot:
    whether plain requests go the short way (hot.py).
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        on_exit: Callable[[], None],
        *,
        on_start: Callable[[], None] = nothing,
        on_close: Callable[[], Awaitable[None]] = at_once,
        signals: bool = True,
        hot: bool = True,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=_protocol(hot=hot),
                ws="none",
                loop="uvloop",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=max(1, round(settings.keep_alive_s)),
                backlog=4096,
            )
        )
        self.server_state: ServerState = ServerState()
        self._grace_s = settings.grace_s
        self._grace_ends = math.inf
        self._on_start = on_start
        self._on_exit = on_exit
        self._on_close = on_close
        self._signals = signals
        self._told = False

    @property
    def running(self) -> int:
        """Requests that have not ended."""
        return len(self.server_state.tasks)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 (see signal.signal)
        """A signal to stop; the second one: at once."""
        if self.should_exit:
            self.force_exit = True
            return
        self.should_exit = True
        if self.started:
            self._tell()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        try:
            await super().startup(sockets)
        except SystemExit:  # the application could not start, and the log has its reason; `started` says so, and our caller goes on
            self.should_exit = True
            return
        self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn, which would stop listening first, and leave the application as it stands at a second signal."""
        state = self.server_state
        self._grace_ends = asyncio.get_running_loop().time() + self._grace_s
        self._tell()
        state.closing = True
        for connection in tuple(state.connections):
            connection.shutdown()
        await asyncio.sleep(0)  # a task that has not begun could not say anything when it is cancelled
        if not await self._until(lambda: not state.tasks):
            log.warning("%d requests are cut off: %s", self.running, "a second signal" if self.force_exit else "the grace is over")
            for task in tuple(state.tasks):
                task.cancel()
        await self._on_close()
        for server in self.servers:
            server.close()
        for sock in sockets or ():
            sock.close()
        await self._until(lambda: not state.tasks, LAST_WORDS_S)
        for connection in tuple(state.connections):
            connection.transport.close()  # once all is written
        await self._until(lambda: not state.connections, LAST_WORDS_S)
        for connection in tuple(state.connections):
            connection.transport.abort()
        await self.lifespan.shutdown()

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            self._on_exit()

    async def _until(self, condition: Callable[[], bool], longer_s: float = 0.0) -> bool:
        """Whether it came true while the grace lasts, or so long after it."""
        loop = asyncio.get_running_loop()
        over: float | None = None
        while not (done := condition()):
            now = loop.time()
            if over is None and (self.force_exit or now >= self._grace_ends):
                over = now
            if over is not None and now >= over + longer_s:
                break
            await asyncio.sleep(_LOOK_S)
        return done

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handles signals, unless the process has other plans for them. uvicorn's own would raise them again at the end: Ctrl-C would
        leave a traceback, and SIGTERM no exit status."""
        if not self._signals:
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _protocol(*, hot: bool) -> type[Protocol]:
    if hot and not fits():
        log.warning("this uvicorn is laid out otherwise than the short way knows it: all requests go through ASGI")
        hot = False
    return Protocol if hot else AsgiOnly
