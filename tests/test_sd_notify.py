"""A service manager hears what it should, on a real socket, and nothing it does can hurt the gateway."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from gateway.sd_notify import Manager
from tests.support import clock


class Listener:
    """systemd's end of the socket."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self.socket.bind("\0" + address[1:] if address[0] == "@" else address)

    def heard(self) -> list[list[str]]:
        """The lines of each datagram since the last time."""
        found = []
        with contextlib.suppress(BlockingIOError):
            while True:
                found.append(self.socket.recv(4096).decode().split("\n"))
        return found


@pytest.fixture(params=["a path", "an abstract name"])
def systemd(request: pytest.FixtureRequest) -> Iterator[Listener]:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own may be longer than a socket's path can be
        listener = Listener(f"{folder}/notify" if request.param == "a path" else f"@trilemma-{secrets.token_hex(8)}")
        with listener.socket:
            yield listener


@pytest.fixture
def manager(systemd: Listener) -> Manager:
    return Manager.of({"NOTIFY_SOCKET": systemd.address})


def test_the_words_of_a_life(systemd: Listener, manager: Manager) -> None:
    before = time.monotonic_ns()
    manager.ready("serving")
    manager.reloading()
    after = time.monotonic_ns()
    manager.ready("serving; something else")
    manager.stopping()

    started, reloading, reloaded, stopping = systemd.heard()
    assert started == ["READY=1", "STATUS=serving"]
    assert reloading[0] == "RELOADING=1"
    name, _, usec = reloading[1].partition("=")
    assert name == "MONOTONIC_USEC" and before <= (int(usec) + 1) * 1_000 and int(usec) * 1_000 <= after
    assert reloaded == ["READY=1", "STATUS=serving; something else"]
    assert stopping == ["STOPPING=1"]


def report(systemd: Listener, manager: Manager, texts: dict[float, str], until_s: float) -> list[tuple[float, list[str]]]:
    """What `report` says, and when, on a clock that jumps. texts: from a time on, the status."""
    said: list[tuple[float, list[str]]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(manager.report(lambda: texts[max(at for at in texts if at <= loop.time())]))
        while loop.time() < until_s:
            await asyncio.sleep(0.05)
            said.extend((loop.time(), words) for words in systemd.heard())
        task.cancel()

    clock.run(main())
    return said


def test_a_loop_that_turns_is_alive_twice_in_the_watchdog_s_time(systemd: Listener) -> None:
    env = {"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}

    said = report(systemd, Manager.of(env), {0.0: "serving"}, 120.0)

    beats = [at for at, words in said if "WATCHDOG=1" in words]
    gaps = [later - before for before, later in pairwise(beats)]
    assert beats[0] < 0.2
    assert len(beats) in (8, 9) and max(gaps) < 15.2


def test_a_status_is_said_when_it_changes(systemd: Listener, manager: Manager) -> None:
    manager.ready("serving")

    said = report(systemd, manager, {0.0: "serving", 5.0: "waiting for a backend of m", 9.0: "serving"}, 60.0)

    assert [words for _, words in said] == [["READY=1", "STATUS=serving"], ["STATUS=waiting for a backend of m"], ["STATUS=serving"]]
    assert [at < until for (at, _), until in zip(said[1:], (6.2, 10.2), strict=True)] == [True, True]


def test_without_a_manager_nothing_is_said_and_nothing_fails() -> None:
    manager = Manager.of({"WATCHDOG_USEC": "1000000"})
    manager.ready("serving")
    manager.reloading()
    manager.stopping()
    assert manager.watchdog_s is None
    clock.run(manager.report(lambda: "serving"))  # it ends, for there is nothing to do


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"WATCHDOG_USEC": "2500000"}, 2.5),
        ({"WATCHDOG_USEC": "2500000", "WATCHDOG_PID": "17"}, 2.5),
        ({"WATCHDOG_USEC": "2500000", "WATCHDOG_PID": "18"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_whom_the_watchdog_watches(env: dict[str, str], expected: float | None) -> None:
    assert Manager.of({"NOTIFY_SOCKET": "/run/notify"} | env, pid=17).watchdog_s == expected


@pytest.mark.parametrize("address", ["relative", "vsock:2:1234"])
def test_an_address_of_a_kind_that_is_not_spoken(address: str, caplog: pytest.LogCaptureFixture) -> None:
    Manager.of({"NOTIFY_SOCKET": address}).ready("serving")
    assert [record.getMessage() for record in caplog.records] == [
        "NOTIFY_SOCKET is neither a path nor an abstract name: nobody is notified"
    ]


def test_a_manager_that_is_gone_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager = Manager.of({"NOTIFY_SOCKET": "/nowhere/notify"})
    manager.ready("serving")
    manager.stopping()
    assert [record.getMessage() for record in caplog.records] == ["the service manager does not hear READY=1: No such file or directory"]


def test_a_manager_that_does_not_read_is_not_waited_for(systemd: Listener, manager: Manager, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(10_000):
        manager.stopping()
        if caplog.records:
            break
    assert "does not hear STOPPING=1" in caplog.text
    assert systemd.heard()[0] == ["STOPPING=1"]
