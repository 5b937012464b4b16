"""The C load generator and mock backend against each other, and each against awkward peers."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import gateway
from gateway.bench.ctools import BenchError, Load, Tools, compile_tools, run_load, sources
from gateway.bench.servers import Server, free_port

STREAM = ("role", *range(128), "finish", "usage", "[DONE]")


@pytest.mark.parametrize("name", ["mock", "lg"])
def test_the_sources_compile_without_a_warning(name: str, tmp_path: Path) -> None:
    command = ["cc", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o", str(tmp_path / name), str(sources() / f"{name}.c")]
    assert subprocess.run(command, check=False, capture_output=True, text=True).stderr == ""


def test_programs_are_compiled_once_per_source(tools: Tools) -> None:
    before = tools.lg.stat().st_mtime_ns
    assert compile_tools(tools.lg.parent) == tools
    assert tools.lg.stat().st_mtime_ns == before


def test_an_installed_wheel_says_that_the_suite_runs_from_a_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "__file__", str(tmp_path / "gateway" / "__init__.py"))
    with pytest.raises(BenchError, match="from a clone"):
        compile_tools(tmp_path)


def test_a_missing_compiler_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(BenchError, match="C compiler"):
        compile_tools(tmp_path)


def test_every_request_is_made_and_answered(tools: Tools, mock: Server) -> None:
    result, error = run_load(tools.lg, mock.port, "key", Load("mock", connections=8, requests=200))
    assert (result.n, result.err, result.events, error) == (200, 0, 0, "")
    assert 0 < result.p50 <= result.p99 <= result.max


@pytest.mark.parametrize(("model", "usage"), [("mock", True), ("mock", False), ("mock-slow", True), ("mock-slow", False)])
def test_streams_arrive_whole(tools: Tools, mock: Server, model: str, usage: bool) -> None:
    result, _ = run_load(tools.lg, mock.port, "key", Load(model, connections=4, requests=6, stream=True, usage=usage))
    assert (result.n, result.err) == (6, 0)
    assert result.events == 6 * (len(STREAM) - (not usage))


def test_more_connections_than_requests(tools: Tools, mock: Server) -> None:
    result, _ = run_load(tools.lg, mock.port, "key", Load("mock", connections=5, requests=2))
    assert (result.n, result.err) == (2, 0)


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
# Two events, the second in two chunks; a payload that looks like the end; a chunk extension; a trailer.
TRICKY = CHUNKED + b'b\r\ndata: a\r\n\r\n\r\n4;x="y"\r\ndata\r\n' + b"a\r\n: 0\r\n\r\nx\r\n\r\n" + b"0\r\nx-trailer: 1\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "events", "errors", "said"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 0, 0, ""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 0, 0, ""),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\ndata: 1\n\ndata: 2\n\nnodata: 3\n\n", 2, 0, ""),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 0, 0, ""),
        (TRICKY.replace(b';x="y"', b""), 2, 0, ""),
        (b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 9\r\n\r\nslow down", 0, 1, "refused (status 429): slow down"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", 0, 1, "broken answer"),
        (CHUNKED + b"5\r\ndata:", 1, 1, "broken answer"),
        (CHUNKED + b"zz\r\n", 0, 1, "broken answer"),
        (b"", 0, 1, "broken answer"),
        (b"nonsense, no HTTP at all\r\n\r\n", 0, 1, "broken answer"),
    ],
)
@pytest.mark.parametrize("byte_by_byte", [False, True])
def test_answers_are_read_as_http_has_it(tools: Tools, answer: bytes, events: int, errors: int, said: str, byte_by_byte: bool) -> None:
    with peer([answer[i : i + 1] for i in range(len(answer))] if byte_by_byte else [answer]) as port:
        result, error = run_load(tools.lg, port, "key", Load("any", connections=1, requests=1, stream=True))
    assert (result.n, result.err, result.events) == (1, errors, events)
    assert said in error


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\nConnection: close\r\n", b"HTTP/1.0 200 OK\r\n"])
def test_a_server_that_closes_after_each_answer_is_connected_to_again(tools: Tools, answer: bytes) -> None:
    with peer([answer + b"Content-Length: 2\r\n\r\nok"], connections=3) as port:
        result, error = run_load(tools.lg, port, "key", Load("any", connections=1, requests=3))
    assert (result.n, result.err, error) == (3, 0, "")


def test_a_port_that_nobody_listens_on_is_said(tools: Tools) -> None:
    with pytest.raises(BenchError, match="Connection refused"):
        run_load(tools.lg, free_port(), "key", Load("any", connections=1, requests=1))


def test_the_request_is_what_a_client_would_send(tools: Tools) -> None:
    received: list[bytes] = []
    with peer([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"], received) as port:
        run_load(tools.lg, port, "sk-some-key", Load("some-model", connections=1, requests=1, stream=True, path="/openai/v1/chat"))
    head, _, body = received[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /openai/v1/chat HTTP/1.1\r\n")
    assert b"\r\nAuthorization: Bearer sk-some-key\r\n" in head
    sent = json.loads(body)
    assert (sent["model"], sent["stream"], sent["stream_options"]) == ("some-model", True, {"include_usage": True})
    assert [message["role"] for message in sent["messages"]] == ["system", "user"]


def test_the_mock_answers_pipelined_chunked_and_large_requests(mock: Server) -> None:
    chat = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
    large = b'{"model":"mock","messages":[{"role":"user","content":"' + b"a" * 300_000 + b'"}]}'
    with socket.create_connection(("127.0.0.1", mock.port)) as connection:
        connection.sendall(chat + b"Content-Length: %d\r\n\r\n" % len(large) + large)
        connection.sendall(chat + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n")
        connection.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\nGET /nothing HTTP/1.1\r\nHost: x\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        answers = b"".join(iter(lambda: connection.recv(65536), b""))
    assert [part[:3] for part in answers.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200", b"200", b"404"]
    assert answers.count(b'"object":"chat.completion"') == 2


@contextlib.contextmanager
def peer(answer: list[bytes], received: list[bytes] | None = None, connections: int = 1) -> Iterator[int]:
    """A server for so many connections: reads one request of each, writes the answer piece by piece, closes. Yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, answer, received, connections))
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def _serve(listener: socket.socket, answer: list[bytes], received: list[bytes] | None, connections: int) -> None:
    for _ in range(connections):
        _answer(listener, answer, received)


def _answer(listener: socket.socket, answer: list[bytes], received: list[bytes] | None) -> None:
    connection, _ = listener.accept()
    # The load generator opens a new connection after a broken answer: let it, but do not serve it.
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = b""
        while b"\r\n\r\n" not in request or len(request) < _length(request):
            got = connection.recv(65536)
            if not got:
                return
            request += got
        if received is not None:
            received.append(request)
        for piece in answer:
            connection.sendall(piece)


def _length(request: bytes) -> int:
    head = request.partition(b"\r\n\r\n")[0]
    declared = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
    return len(head) + 4 + int(declared.partition(b":")[2])
