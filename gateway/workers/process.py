"""What every process that serves does first."""

from __future__ import annotations

import contextlib
import gc
import resource
import socket
from typing import Final

_LISTENERS: Final = 16


def prepare() -> None:
    """Once all that it needs is imported, and before it serves."""
    raise_open_files()
    # What is loaded now stays: without this, every full collection walks some 200,000 objects of the libraries.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


def raise_open_files() -> None:
    """As many open files as this process may have: each stream has two sockets, and the usual soft limit is 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # some systems name a hard limit that they do not grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def doubled(sock: socket.socket) -> list[socket.socket]:
    """The socket many times: uvloop takes one new connection per turn of the loop and listening socket, so with one, a busy loop lets
    callers wait."""
    return [sock, *(sock.dup() for _ in range(_LISTENERS - 1))]
