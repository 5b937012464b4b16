"""Listening sockets."""

from __future__ import annotations

import socket

from gateway.config.schema import Server as Settings


def listening(settings: Settings) -> socket.socket:
    """The listening socket. Raises OSError when the address is taken."""
    return _bound(settings.host, settings.port)


def listening_together(settings: Settings, count: int) -> list[socket.socket]:
    """So many sockets on one address, among which the kernel shares out new connections. Raises OSError when the address is taken."""
    port = settings.port
    if port:
        # Sockets that share an address share it with those of any other process of this user, without a word: first one that does not.
        _bound(settings.host, port).close()
    found: list[socket.socket] = []
    try:
        for _ in range(count):
            found.append(_bound(settings.host, port, shares=True))
            port = found[0].getsockname()[1]
    except OSError:
        for sock in found:
            sock.close()
        raise
    return found


def url_of(sock: socket.socket) -> str:
    """Where it listens."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _bound(host: str, port: int, *, shares: bool = False) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol said, asyncio switches off Nagle's algorithm; uvloop does so in any case.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        if shares:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    sock.set_inheritable(True)
    return sock
