"""uvicorn with uvloop and httptools, set up for streams that last."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from gateway.config.schema import Server as Settings
from gateway.http.protocol import Protocol


class Server(uvicorn.Server):
    """uvicorn's server; `on_exit` is called at the first signal, before connections are wound down."""

    def __init__(self, app: ASGIApp, settings: Settings, on_exit: Callable[[], None], *, signals: bool = True) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=Protocol,
                ws="none",
                loop="uvloop",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=max(1, round(settings.keep_alive_s)),
                timeout_graceful_shutdown=int(settings.grace_s),
                backlog=4096,
            )
        )
        self._on_exit = on_exit
        self._signals = signals

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal to stop."""
        self._on_exit()
        super().handle_exit(sig, frame)

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


def listening(settings: Settings) -> socket.socket:
    """The listening socket. Raises OSError when the address is taken."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # With its protocol said, asyncio switches off Nagle's algorithm; uvloop does so in any case.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((settings.host, settings.port))
    except OSError:
        sock.close()
        raise
    sock.set_inheritable(True)
    return sock
