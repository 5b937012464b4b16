"""What the tests of managed engines share: fake engines that are real processes, and ways to look at processes and ports."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

from gateway.engines import llama_server
from gateway.engines.guard import guarded
from gateway.engines.spec import EngineSpec, free_port

FAKE = Path(__file__).with_name("fake_engine.py")


def fake(name: str, *options: str, port: int | None = None) -> EngineSpec:
    port = port or free_port()
    return EngineSpec(name=name, kind="command", port=port, args=(sys.executable, str(FAKE), str(port), *options))


def alive(pid: int | None) -> bool:
    """Whether the process runs; one that has ended and waits to be reaped does not."""
    assert pid is not None
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def listens(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex((host, port)) == 0


async def eventually(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not come true in time"
        await asyncio.sleep(0.02)


def post(port: int, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def get(port: int, path: str) -> tuple[dict[str, str], bytes]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Origin": "http://page.example"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return dict(answer.headers), answer.read()


def chat(port: int, text: str, tokens: int = 16) -> str:
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": tokens, "temperature": 0}
    status, answer = post(port, "/v1/chat/completions", body)
    assert status == 200, answer
    content: str = answer["choices"][0]["message"]["content"]
    return content


@contextmanager
def llama(spec: EngineSpec, state: Path, environment: dict[str, str]) -> Iterator[Popen[bytes]]:
    """A real llama.cpp server that answers; killed at the end if the test has not ended it."""
    command = guarded(llama_server.command(spec, state))
    with (state / f"{spec.name}.log").open("wb") as log, Popen(command, env=environment, stdin=DEVNULL, stderr=log) as process:
        try:
            deadline = time.monotonic() + 120
            while not _healthy(spec.port):
                assert process.poll() is None, (state / f"{spec.name}.log").read_text()
                assert time.monotonic() < deadline, (state / f"{spec.name}.log").read_text()
                time.sleep(0.05)
            yield process
        finally:
            process.kill()


def _healthy(port: int) -> bool:
    try:
        get(port, "/health")
    except OSError:
        return False
    return True
