"""A worker as its parent sees it: a process, and the talk with it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from gateway.workers.channel import Channel, Handler
from gateway.workers.messages import Status

COMMAND: Final[Sequence[str]] = (sys.executable, "-P", "-m", "gateway.workers.worker")
"""What runs a worker; options follow."""

# The parent alone speaks with the service manager.
_MANAGER: Final = frozenset(("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"))


class Child:
    """number: from 1. listens: it accepts connections. status: as it last told. heard_at: time.monotonic() of the last word from it."""

    def __init__(self, number: int, process: Process) -> None:
        self.number = number
        self.process = process
        self.listens = False
        self.listened_at = 0.0
        self.status: Status | None = None
        self.heard_at = time.monotonic()
        self._channel: Channel | None = None

    @classmethod
    async def start(
        cls, command: Sequence[str], number: int, listen: socket.socket, handlers: Callable[[Child], Mapping[str, Handler]]
    ) -> Child:
        """A new process. listen: which it inherits. handlers: what it may ask. Raises OSError."""
        ours, theirs = socket.socketpair()
        options = ("--parent", os.getpid(), "--number", number, "--listen", listen.fileno(), "--channel", theirs.fileno())
        try:
            with theirs:
                # A session of its own: Ctrl-C is for the parent.
                process = await asyncio.create_subprocess_exec(
                    *command,
                    *map(str, options),
                    stdin=DEVNULL,
                    pass_fds=(listen.fileno(), theirs.fileno()),
                    env={name: value for name, value in os.environ.items() if name not in _MANAGER},
                    start_new_session=True,
                )
        except OSError:
            ours.close()
            raise
        child = cls(number, process)
        child._channel = await Channel.over(ours, handlers(child))
        return child

    async def talk(self) -> None:
        """Serves what it asks, until it has ended."""
        await self._said_to().run()

    def close(self) -> None:
        """Ends the talk, also one that never began."""
        self._said_to().close()

    async def ask(self, name: str, body: Any = None, *, within_s: float | None = None) -> Any:
        """See Channel.ask."""
        return await self._said_to().ask(name, body, within_s=within_s)

    def tell(self, name: str, body: Any = None) -> None:
        """See Channel.tell."""
        self._said_to().tell(name, body)

    def heard(self, status: Status | None = None) -> None:
        """It has given a sign of life."""
        self.heard_at = time.monotonic()
        self.status = status or self.status

    def send(self, number: signal.Signals) -> None:
        """A signal, if it still runs."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)

    def _said_to(self) -> Channel:
        assert self._channel is not None, "it was started"
        return self._channel
