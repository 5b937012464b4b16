"""Servers that are measured: the mock backend, nginx as the yardstick, the gateway, and whatever else `running` is told to start.

Each is started on a free port of the loopback, on the CPU it is told to, and is ready once it has answered a chat
completion with 200. Everything it needs lies in one temporary folder.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Final

import msgspec

import gateway
from gateway.bench.ctools import CHAT, BenchError
from gateway.bench.setup import KEY, MODEL, Setup

READY_WITHIN_S = 60.0
_STOP_WITHIN_S = 10.0
_POLL_S = 0.002
_LOG_TAIL = 2_000


@dataclass(frozen=True, slots=True)
class Server:
    """A running server. start_s: from before the process existed to the end of its first answer with status 200."""

    name: str
    port: int
    pid: int
    start_s: float


@dataclass(frozen=True, slots=True)
class Ask:
    """The question that a server answers with 200 once it is ready."""

    model: str = MODEL
    path: str = CHAT


PLAIN: Final = Ask()


@dataclass(frozen=True, slots=True)
class Site:
    """Where servers run: a scratch folder, and the CPUs they may use (None: any)."""

    folder: Path
    cpus: frozenset[int] | None


@contextlib.contextmanager
def on_cpus(cpus: frozenset[int] | None) -> Iterator[None]:
    """Bind this thread, and what it starts, to some CPUs for a while (None: leave it as it is)."""
    before = os.sched_getaffinity(0)
    if cpus is not None:
        os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM unwind the stack, so that the servers that were started are stopped."""

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def apart() -> tuple[frozenset[int] | None, frozenset[int] | None, str]:
    """CPU for load and mock, CPU for the server under test, and why they are not apart ("" when they are)."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        return None, None, "one CPU only: the load generator would run on the gateway's"
    return frozenset(allowed[:1]), frozenset(allowed[1:2]), ""


@contextlib.contextmanager
def mock_backend(site: Site, program: Path) -> Iterator[Server]:
    """The mock backend of loadtests/c."""
    port = free_port()
    with running("mock", [str(program), str(port)], port, site) as server:
        yield server


@contextlib.contextmanager
def nginx(site: Site, backend: int) -> Iterator[Server]:
    """nginx as a plain reverse proxy, one worker. Raises BenchError when it is not installed."""
    program = nginx_program()
    if program is None:
        raise BenchError("nginx is not installed (Debian: apt-get install nginx-light)")
    port = free_port()
    folder = site.folder / "nginx"
    folder.mkdir()
    config = folder / "nginx.conf"
    config.write_text(nginx_config(folder, port, backend))
    with running("nginx", [program, "-p", str(folder), "-c", str(config)], port, site) as server:
        yield server


@contextlib.contextmanager
def gateway_server(site: Site, setup: Setup, command: str | None = None, lane: str | None = None) -> Iterator[Server]:
    """`trilemma serve`, set up like that.

    command: another server to measure in its place; {config}, {port} and {backend} (a port) are filled in. lane: the way that requests take
    (see lanes.py), instead of the one that `trilemma serve` has them take.
    """
    port = free_port()
    config = site.folder / f"{setup.name}-{port}.json"
    config.write_bytes(setup.file(port))
    start = ["gateway", "serve"] if lane is None else ["gateway.bench.lanes", lane]
    words = [sys.executable, "-m", *start, "--config", str(config), "--state", str(site.folder / "state")]
    if command is not None:
        words = [word.format(config=config, port=port, backend=setup.backend) for word in shlex.split(command)]
    with running(setup.name, words, port, site) as server:
        yield server


def nginx_program() -> str | None:
    """Where nginx is: on the path, or where Debian puts it for root only."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")


def nginx_config(folder: Path, port: int, backend: int) -> str:
    """The price of the hop itself: no access log, no buffering, upstream connections kept."""
    temporary = "\n".join(f"    {kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    return f"""\
worker_processes 1;
daemon off;
pid {folder}/pid;
error_log stderr crit;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_buffer_size 1m;
    keepalive_requests 1000000000;
{temporary}
    upstream backend {{
        server 127.0.0.1:{backend};
        keepalive 256;
        keepalive_requests 1000000000;
    }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://backend;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
        }}
    }}
}}
"""


def free_port() -> int:
    """A port of the loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int, ask: Ask, timeout_s: float = 5.0) -> bool:
    """Whether a chat completion asked at this port is answered with 200."""
    body = msgspec.json.encode({"model": ask.model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8})
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        connection.request("POST", ask.path, body, headers)
        response = connection.getresponse()
        response.read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return response.status == 200


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """The environment of a measured server: byte code is cached, as on any machine that starts it twice."""
    return {name: value for name, value in base.items() if name not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")}


@contextlib.contextmanager
def running(
    name: str,
    command: Sequence[str],
    port: int | Path,
    site: Site,
    *,
    ask: Ask = PLAIN,
    extra: Mapping[str, str] = MappingProxyType({}),
    folder: Path | None = None,
    within_s: float = READY_WITHIN_S,
) -> Iterator[Server]:
    """A server while it runs; its whole process group ends with this.

    port: where it listens, or a file that it will name its port in. extra: more environment variables. folder: where it runs; None: in
    this tree. Raises BenchError, with the end of its log, when it ends or does not answer in time.
    """
    log = site.folder / f"{name}.log"
    begin = time.perf_counter()
    with log.open("wb") as sink, on_cpus(site.cpus):
        process = subprocess.Popen(  # noqa: S603 - nginx, the mock, the gateway, a peer, or what the user named
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            cwd=folder or Path(gateway.__file__).resolve().parent.parent,  # where `-m gateway` is this very tree
            env={**environment(os.environ), **extra},
            start_new_session=True,
        )
    try:
        found = _port_that_answers(name, process, port, log, ask, begin + within_s)
        yield Server(name, found, process.pid, time.perf_counter() - begin)
    finally:
        _stop(process)


def _port_that_answers(name: str, process: subprocess.Popen[bytes], port: int | Path, log: Path, ask: Ask, until: float) -> int:
    while (found := _named(port)) is None or not answers(found, ask):
        if process.poll() is not None:
            raise BenchError(f"{name} ended with status {process.returncode} before it answered:\n{_tail(log)}")
        if time.perf_counter() > until:
            raise BenchError(f"{name} did not answer a request in time:\n{_tail(log)}")
        time.sleep(_POLL_S)
    return found


def _named(port: int | Path) -> int | None:
    if isinstance(port, int):
        return port
    try:
        return int(port.read_text())
    except (FileNotFoundError, ValueError):  # it is not written, or being written
        return None


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-_LOG_TAIL:].strip() or "(its log is empty)"


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask the server to end, then end its whole process group: nothing that was started here outlives the benchmark."""
    process.terminate()
    try:
        process.wait(_STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):  # the group is empty: all of it ended by itself
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
