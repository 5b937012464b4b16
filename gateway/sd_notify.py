"""Words for the service manager that started this process: systemd's sd_notify, which is one datagram per word on a Unix socket.

    manager = Manager.of(os.environ)     without NOTIFY_SOCKET nothing is ever sent
    manager.ready("serving")

https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Final

log = logging.getLogger("trilemma.systemd")

# A manager that does not read is waited for no longer: the event loop stands still meanwhile.
_SEND_S: Final = 0.5
_STATUS_S: Final = 1.0


class Manager:
    """address: of the socket, a path or `@` and an abstract name; None: there is no manager. watchdog_s: a process that is not heard
    of for so long is ended and started again; None: never."""

    def __init__(self, address: str | None, watchdog_s: float | None = None) -> None:
        self.watchdog_s = watchdog_s if address is not None else None
        self._address = address
        self._told: str | None = None
        self._failed = False

    @classmethod
    def of(cls, env: Mapping[str, str], pid: int | None = None) -> Manager:
        """The one that the environment names. pid: of this process."""
        address = env.get("NOTIFY_SOCKET") or None
        if address is not None and address[0] not in "/@":
            log.warning("NOTIFY_SOCKET is neither a path nor an abstract name: nobody is notified")
            address = None
        usec = env.get("WATCHDOG_USEC", "")
        for_us = env.get("WATCHDOG_PID", "") in ("", str(os.getpid() if pid is None else pid))
        return cls(address, int(usec) / 1e6 if for_us and usec.isascii() and usec.isdigit() and int(usec) else None)

    def ready(self, status: str) -> None:
        """It listens; or a reload has ended."""
        self._told = status
        self._send("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """A reload that was asked for begins; `ready` ends it."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000}")

    def stopping(self) -> None:
        """The end has begun."""
        self._send("STOPPING=1")

    async def report(self, status: Callable[[], str]) -> None:
        """Says that the event loop turns, twice in the watchdog's time, and what `status` says, when that changes. Until cancelled."""
        if self._address is None:
            return
        loop = asyncio.get_running_loop()
        due = math.inf if self.watchdog_s is None else loop.time()
        while True:
            words = []
            now = loop.time()
            if self.watchdog_s is not None and now >= due:
                words.append("WATCHDOG=1")
                due = now + self.watchdog_s / 2
            if (text := status()) != self._told:
                self._told = text
                words.append(f"STATUS={text}")
            if words:
                self._send(*words)
            await asyncio.sleep(min(_STATUS_S, max(0.0, due - now)))

    def _send(self, *words: str) -> None:
        """Whatever becomes of it, the gateway goes on."""
        address = self._address
        if address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.settimeout(_SEND_S)
                sock.sendto("\n".join(words).encode(), "\0" + address[1:] if address[0] == "@" else address)
            self._failed = False
        except OSError as error:
            if not self._failed:
                log.warning("the service manager does not hear %s: %s", words[0], error.strerror or error)
            self._failed = True
