"""What is read while the load runs: the gateway's process, its /health, the backends' gauges, and how late this process itself is."""

from __future__ import annotations

import asyncio
import http.client
import threading
import time
from array import array
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from gateway.bench import proctree
from gateway.load.admin import Admin
from gateway.load.backends import BackendProcess

_HEALTH_EACH_S: Final = 0.1
_HEALTH_WITHIN_S: Final = 5.0
_GAUGES_EACH_S: Final = 0.25
_PROCESS_EACH_S: Final = 0.5
_METRICS_EACH_S: Final = 5.0
_TICK_S: Final = 0.02
# How long a backend may take to learn that its client has left.
_NEWS_S: Final = 1.0


class ProcessSample(msgspec.Struct, frozen=True):
    """The gateway at a moment. cpu_us: run time so far; waited_s: time so far in which it could have run, but others had its CPU.

    rss: bytes. sockets: open file descriptors that are sockets.
    """

    at: float
    cpu_us: float
    waited_s: float
    rss: int
    sockets: int


class GaugeSample(msgspec.Struct, frozen=True):
    """In flight: at the callers, the most since the sample before; and at all backends that could say, when they last did."""

    at: float
    client: int
    backends: int


def process_sample(pid: int, at: float, zero: proctree.Cpu | None = None) -> ProcessSample:
    """Reads a process tree now; its CPU time is counted from `zero`."""
    used = proctree.used_us(zero, proctree.cpu(pid)) if zero is not None else 0.0
    family = proctree.tree(pid)
    return ProcessSample(at, used, sum(map(_waited_s, family)), proctree.memory(pid).rss, sum(map(_sockets, family)))


def _waited_s(pid: int) -> float:
    """Time in the scheduler's queue: the second number of /proc/PID/task/TID/schedstat, nanoseconds."""
    total = 0
    try:
        for task in (Path("/proc") / str(pid) / "task").iterdir():
            total += int((task / "schedstat").read_text().split()[1])
    except OSError:
        return total / 1e9  # it has ended, or a thread of it
    return total / 1e9


def _sockets(pid: int) -> int:
    count = 0
    try:
        for entry in (Path("/proc") / str(pid) / "fd").iterdir():
            try:
                count += str(entry.readlink()).startswith("socket:")
            except OSError:
                continue  # closed meanwhile
    except OSError:
        return 0  # the process has ended
    return count


async def watch_process(pid: int, clock: Callable[[], float], samples: list[ProcessSample]) -> None:
    """Samples the gateway's process until cancelled. In a thread: two thousand sockets take a while to list."""
    zero = proctree.cpu(pid)
    while True:
        samples.append(await asyncio.to_thread(process_sample, pid, clock(), zero))
        await asyncio.sleep(_PROCESS_EACH_S)


async def watch_gauges(
    backends: Mapping[str, BackendProcess], clock: Callable[[], float], most_in_flight: Callable[[], int], samples: list[GaugeSample]
) -> None:
    """Samples the callers and the backends until cancelled. A backend that does not answer does not hold up the others."""

    async def keep_reading(backend: BackendProcess) -> None:
        while True:
            await backend.read()
            await asyncio.sleep(_GAUGES_EACH_S)

    async with asyncio.TaskGroup() as group:
        for backend in backends.values():
            if backend.group.kind != "c":
                group.create_task(keep_reading(backend))
        while True:
            seen = [one.seen for one in backends.values() if one.seen is not None]
            samples.append(GaugeSample(clock(), most_in_flight(), sum(one.in_flight for one in seen)))
            await asyncio.sleep(_GAUGES_EACH_S)


async def watch_metrics(admin: Admin, texts: list[str]) -> None:
    """Reads the gateway's /metrics until cancelled: some of them tell of the last seconds only."""
    while True:
        texts.append(await admin.metrics())
        await asyncio.sleep(_METRICS_EACH_S)


async def watch_self(lags: array[float]) -> None:
    """How late a short sleep ends: what this process adds to every latency it measures, seconds."""
    while True:
        due = time.perf_counter() + _TICK_S
        await asyncio.sleep(_TICK_S)
        lags.append(max(0.0, time.perf_counter() - due))


def orphans(samples: list[GaugeSample]) -> int:
    """Most requests that backends worked on although no caller had waited for them for a second."""
    worst = 0
    for sample in samples:
        wanted = [other.client for other in samples if sample.at - _NEWS_S - _GAUGES_EACH_S <= other.at <= sample.at]
        worst = max(worst, sample.backends - max(wanted))
    return worst


class HealthProbe:
    """Asks GET /health ten times a second from a thread of its own, so that a busy client does not look like a busy gateway.

    seconds: how long each answer took; failures: how often there was none, or not 200.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname or "", parts.port, timeout=_HEALTH_WITHIN_S)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="health")
        self.seconds: list[float] = []
        self.failures = 0

    async def __aenter__(self) -> HealthProbe:
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while not self._stop.wait(_HEALTH_EACH_S):
            begin = time.perf_counter()
            try:
                self._connection.request("GET", "/health")
                answer = self._connection.getresponse()
                answer.read()
                self.failures += answer.status != 200
            except (OSError, http.client.HTTPException):
                self.failures += 1
                self._connection.close()
            self.seconds.append(time.perf_counter() - begin)
        self._connection.close()
