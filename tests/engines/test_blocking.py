"""HTTP/1.1 for threads, against a socket that answers byte by byte as it is told."""

from __future__ import annotations

import contextlib
import gc
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gateway.engines.blocking import Client, NoAnswer
from tests.support.clock import Clock

PEM = Path(__file__).parents[1] / "pool/localhost.pem"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nh\r\n1\r\ni\r\n0\r\n\r\n"


class Scripted:
    """Each connection in turn gets its answers, one for each request, and nothing after them. closed: once for each that is over."""

    def __init__(self, connections: Sequence[Sequence[bytes]]) -> None:
        self.requests: list[bytes] = []
        self.closed = threading.Semaphore(0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1/embeddings"
        self._connections = connections
        self._accepted: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        for answers in self._connections:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # the test is over
                return
            self._accepted.append(connection)
            with connection:
                for answer in answers:
                    request = b""
                    while not request.endswith(b"{}"):
                        request += (data := connection.recv(65_536))
                        if not data:
                            break
                    if not request:
                        break
                    self.requests.append(request)
                    with contextlib.suppress(OSError):
                        connection.sendall(answer)
                else:
                    with contextlib.suppress(OSError):
                        connection.shutdown(socket.SHUT_WR)
                with contextlib.suppress(OSError):
                    while connection.recv(65_536):
                        pass
            self.closed.release()

    @contextlib.contextmanager
    def running(self) -> Iterator[Scripted]:
        self._thread.start()
        try:
            yield self
        finally:
            for each in (self._listener, *self._accepted):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)  # whoever waits for it wakes up
            self._thread.join(20)
            self._listener.close()
            assert not self._thread.is_alive()


@contextlib.contextmanager
def serving(*connections: Sequence[bytes]) -> Iterator[Scripted]:
    with Scripted(connections).running() as server:
        yield server


def test_a_request_and_its_answer_are_whole() -> None:
    with serving([OK]) as server:
        client = Client(server.url, [(b"content-type", b"application/json"), (b"authorization", b"Bearer k")])
        assert client.post(b"{}", 10, 2) == (200, b"hi")
    authority = server.url.removeprefix("http://").removesuffix("/v1/embeddings").encode()
    assert server.requests == [
        b"POST /v1/embeddings HTTP/1.1\r\nhost: "
        + authority
        + b"\r\ncontent-type: application/json\r\nauthorization: Bearer k\r\ncontent-length: 2\r\n\r\n{}"
    ]


@pytest.mark.parametrize("answer", [CHUNKED, b"HTTP/1.1 100 Continue\r\n\r\n" + OK, OK.replace(b"1.1", b"1.0")])
def test_ways_to_frame_an_answer(answer: bytes) -> None:
    with serving([answer]) as server:
        assert Client(server.url, []).post(b"{}", 10, 2) == (200, b"hi")


def test_a_connection_is_kept_and_one_that_was_closed_meanwhile_costs_no_answer() -> None:
    with serving([OK, CHUNKED], [OK]) as server:
        client = Client(server.url, [])
        answers = [client.post(b"{}", 10, 2) for _ in range(3)]
    assert answers == [(200, b"hi")] * 3
    assert len(server.requests) == 3


def test_a_connection_that_was_idle_for_long_is_closed() -> None:
    clock = Clock()
    with serving([OK, b"never sent"], [OK]) as server:
        client = Client(server.url, [], clock)
        client.post(b"{}", 10, 2)
        clock.now += 5
        assert client.post(b"{}", 10, 2) == (200, b"hi")
        assert server.closed.acquire(timeout=20)


def test_nobody_has_to_close_it() -> None:
    with serving([OK, b"never sent"]) as server:
        client = Client(server.url, [])
        client.post(b"{}", 10, 2)
        del client
        gc.collect()
        assert server.closed.acquire(timeout=20)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nhii", "too long"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000 + b"content-length: 0\r\n\r\n", "too long"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "not HTTP"),
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nab", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nh", "closed in the midst"),
        (b"", "closed in the midst"),
    ],
)
def test_what_is_no_whole_answer(answer: bytes, said: str) -> None:
    with serving([answer]) as server, pytest.raises((NoAnswer, ConnectionResetError), match=said):
        Client(server.url, []).post(b"{}", 10, 2)


def test_a_redirect_is_an_answer() -> None:
    with serving([b"HTTP/1.1 307 Temporary Redirect\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n"]) as server:
        assert Client(server.url, []).post(b"{}", 10, 2) == (307, b"")
    assert len(server.requests) == 1


def test_tls_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM)
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"https://localhost:{listener.getsockname()[1]}/v1/embeddings"

    def serve() -> None:
        for _ in range(2):
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError), context.wrap_socket(connection, server_side=True) as tls:
                while not tls.recv(65_536).endswith(b"{}"):
                    pass
                tls.sendall(OK)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with pytest.raises(ssl.SSLCertVerificationError):
            Client(url, []).post(b"{}", 10, 2)
        monkeypatch.setenv("SSL_CERT_FILE", str(PEM))
        assert Client(url, []).post(b"{}", 10, 2) == (200, b"hi")
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        thread.join(20)
        listener.close()
    assert not thread.is_alive()


def test_time_is_of_the_whole_however_slowly_it_drips() -> None:
    """Each byte costs a second of a clock that is read before each wait."""
    clock = Clock()

    def ticking() -> float:
        clock.now += 1
        return clock.now

    with serving([b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\nh"]) as server, pytest.raises(TimeoutError):
        Client(server.url, [], ticking).post(b"{}", 4, 20)
    assert len(server.requests) == 1


def test_who_says_nothing_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(TimeoutError):
        Client(f"http://127.0.0.1:{silent.getsockname()[1]}", []).post(b"{}", 0.05, 2)


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999/", "http://" + "a" * 80 + "/"])
def test_an_address_that_cannot_be(url: str) -> None:
    with pytest.raises(ValueError):
        Client(url, []).post(b"{}", 10, 2)


def test_a_header_is_one_line() -> None:
    with pytest.raises(ValueError, match="line end"):
        Client("http://127.0.0.1:1/", [(b"authorization", b"Bearer a\r\nx: y")]).post(b"{}", 10, 2)
