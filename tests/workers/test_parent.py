"""A parent and workers that go wrong. Here they are stand-ins; test_processes.py has real ones."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.config.load import parse
from gateway.config.schema import Server
from gateway.engines.supervisor import Supervisor
from gateway.http.sockets import listening_together
from gateway.sd_notify import Manager
from gateway.workers.parent import Parent
from gateway.workers.restarts import Restarts
from gateway.workers.switchboard import Common, Switchboard
from tests.support.waiting import until

STUB = Path(__file__).with_name("stub.py")
TEXT = """
version: 1
backends: {a: {url: "http://h:1", models: {m: m}}}
keys: [{name: k, sha256: "0000000000000000000000000000000000000000000000000000000000000000"}]
"""


@pytest.fixture
def socks() -> Iterator[list[socket.socket]]:
    """For two workers."""
    with ExitStack() as stack:
        yield [stack.enter_context(sock) for sock in listening_together(Server(port=0), 2)]


@pytest.fixture(autouse=True)
async def _all_is_closed() -> AsyncIterator[None]:
    """A parent's loop ends with its process. Here it goes on, until the tasks of what has ended have ended and closed their sockets."""
    yield
    await until(lambda: len(asyncio.all_tasks()) == 1, "the end of all other tasks")
    await asyncio.sleep(0)  # a closed transport lets go of its socket in the loop's next turn


def parent(socks: list[socket.socket], *command: Any, manager: Manager | None = None, **more: Any) -> Parent:
    loaded = parse(TEXT, {})
    board = Switchboard(lambda: loaded, loaded, Common("", "", "", "", None, len(socks)), cast(Supervisor, None))
    given = {"restarts": lambda: Restarts(first_s=0.01, most=3), "grace_s": 0.1} | more
    grace_s = given.pop("grace_s")
    return Parent(board, socks, grace_s, manager or Manager(None), lambda: None, tuple(map(str, command)), **given)


def begun(folder: Path) -> list[int]:
    """The workers so far."""
    return sorted(int(file.name) for file in folder.iterdir())


def words_of(heard: socket.socket) -> str:
    """What the manager has heard since."""
    words = b""
    with suppress(BlockingIOError):
        while True:
            words += heard.recv(4096)
    return words.decode()


async def test_what_cannot_start_is_not_tried_again(socks: list[socket.socket], caplog: pytest.LogCaptureFixture) -> None:
    """A service manager may try all of it again; the worker's own log says why."""
    assert await asyncio.wait_for(parent(socks, sys.executable, "-c", "raise SystemExit(1)").run(watched=False), 20) == 1
    assert "has ended: status 1" in caplog.text
    assert "cannot be kept alive" in caplog.text


async def test_a_command_that_is_not_there(socks: list[socket.socket], caplog: pytest.LogCaptureFixture) -> None:
    assert await asyncio.wait_for(parent(socks, "/nowhere/python").run(watched=False), 20) == 1
    assert "cannot be started: No such file or directory" in caplog.text


async def test_workers_that_end_again_and_again_are_given_up(
    tmp_path: Path, socks: list[socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    assert await asyncio.wait_for(parent(socks, sys.executable, STUB, tmp_path, "dies").run(watched=False), 60) == 1
    assert 5 <= len(begun(tmp_path)) <= 8, "one of the two was begun four times, and the other not oftener"
    assert "cannot be kept alive" in caplog.text
    assert "has ended: status 3" in caplog.text


@pytest.mark.parametrize(("behaviour", "killed"), [("stands", False), ("stubborn", True)])
async def test_who_does_not_end_in_time_is_killed(
    tmp_path: Path, socks: list[socket.socket], caplog: pytest.LogCaptureFixture, behaviour: str, killed: bool
) -> None:
    both = parent(socks, sys.executable, STUB, tmp_path, behaviour, longer_s=0.2 if killed else 600)
    running = asyncio.create_task(both.run(watched=False))
    with caplog.at_level(logging.INFO):
        await until(lambda: caplog.text.count("serves") == 2, "both serve")
    both.end()
    assert await asyncio.wait_for(running, 20) == 0
    assert ("does not end, and is killed" in caplog.text) is killed
    assert len(begun(tmp_path)) == 2
    for pid in begun(tmp_path):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_who_stands_still_is_killed_where_a_service_manager_would_wait_no_longer(
    tmp_path: Path, socks: list[socket.socket], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manager hears of the parent only, which goes on; and no worker speaks to it."""
    address = f"@trilemma-{secrets.token_hex(8)}"
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind("\0" + address[1:])
        heard.setblocking(False)
        both = parent(socks, sys.executable, STUB, tmp_path, "stands", manager=Manager(address, 0.5))
        running = asyncio.create_task(both.run(watched=False))
        await until(lambda: "READY=1" in words_of(heard), "it is ready")
        await until(lambda: len(begun(tmp_path)) >= 4, "each is begun again", 20)
        assert not running.done()
        both.end()
        await asyncio.wait_for(running, 20)
        assert "stands still, and is killed" in caplog.text
    assert not any("NOTIFY_SOCKET" in (tmp_path / str(pid)).read_text().splitlines() for pid in begun(tmp_path))
