"""A service manager's end of sd_notify."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket

from tests.support.waiting import until


class Systemd:
    """systemd's end of the notification socket."""

    def __init__(self) -> None:
        self.address = f"@trilemma-{secrets.token_hex(8)}"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self.socket.bind("\0" + self.address[1:])
        self.lines: list[str] = []

    def env(self, **more: str) -> dict[str, str]:
        """The environment of a service."""
        return {**os.environ, "NOTIFY_SOCKET": self.address, **more}

    async def until(self, line: str) -> list[str]:
        """Everything up to the next such line, which it begins with."""
        await until(lambda: self._look(line), f"{line!r}, which is not in {self.lines}", 20)
        at = next(index for index, heard in enumerate(self.lines) if heard.startswith(line))
        before, self.lines = self.lines[: at + 1], self.lines[at + 1 :]
        return before

    def _look(self, line: str) -> bool:
        with contextlib.suppress(BlockingIOError):
            while True:
                self.lines += self.socket.recv(4096).decode().split("\n")
        return any(heard.startswith(line) for heard in self.lines)
