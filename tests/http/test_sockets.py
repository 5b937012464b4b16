"""Listening sockets: one, or several on one address."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from gateway.config.schema import Server
from gateway.http.sockets import listening, listening_together, url_of


def test_several_share_an_address_and_connections() -> None:
    with ExitStack() as stack:
        socks = [stack.enter_context(sock) for sock in listening_together(Server(port=0), 3)]
        assert len({sock.getsockname() for sock in socks}) == 1
        assert len({sock.fileno() for sock in socks}) == 3
        for sock in socks:
            sock.listen()
            sock.setblocking(False)
        for _ in range(60):
            stack.enter_context(socket.create_connection(socks[0].getsockname()))
        reached = [sum(1 for _ in taken(sock, stack)) for sock in socks]
        assert sum(reached) == 60
        assert min(reached) > 0, "8 x 10^-11 that one gets none by chance"


def taken(sock: socket.socket, stack: ExitStack) -> Iterator[socket.socket]:
    """The connections that wait there."""
    try:
        while True:
            yield stack.enter_context(sock.accept()[0])
    except BlockingIOError:
        return


def test_an_address_that_somebody_listens_on_is_not_shared_with_him() -> None:
    """Not even when he would share it: two gateways on one port would each get some of the other's callers."""
    with ExitStack() as stack:
        first = [stack.enter_context(sock) for sock in listening_together(Server(port=0), 2)]
        for sock in first:
            sock.listen()
        port = first[0].getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            listening_together(Server(port=port), 2)
        with pytest.raises(OSError, match="in use"):
            listening(Server(port=port))


def test_a_url_for_people() -> None:
    with listening(Server(port=0)) as sock:
        assert url_of(sock) == f"http://127.0.0.1:{sock.getsockname()[1]}"
    with listening(Server(host="::1", port=0)) as sock:
        assert url_of(sock) == f"http://[::1]:{sock.getsockname()[1]}"
