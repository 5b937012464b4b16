"""The overhead suite: what the gateway adds to a request and to a stream event, beside nginx in the same run.

The figure to trust is CPU time per request: the run time of the gateway's process tree over a counted number of
requests. It depends on how many events one wake-up finds and so on the machine's other work; therefore nginx and the
gateway take turns, block by block, and the least of the blocks counts. The gateway has one CPU to itself, the C load
generator and the C mock backend share another. Where something else holds a CPU for a while, paced events pile up, one
read finds several, and each looks cheap: such a block is measured again, and counts only if there is no better one.

    cpu_us_per_request   32 connections, closed loop            cpu_us_per_event   64 streams, 10 ms between events
    added_p50/p99_ms     one connection, less the same asked of the mock directly
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gateway.bench import proctree, servers
from gateway.bench.ctools import BenchError, Load, Tools, compile_tools, run_load
from gateway.bench.report import Report, commit, machine, versions
from gateway.bench.servers import KEY, MODEL, PACED_MODEL, ROUTED_MODEL, Server, Site

Progress = Callable[[str], None]

# Figure -> the largest value that passes. Ratios are to nginx in the same run.
BARS: Mapping[str, float] = {
    "request_x_nginx": 10.0,
    "event_x_nginx": 3.5,
    "added_p50_ms": 0.5,
    "start_s": 1.5,
    "rss_mb": 90.0,
}
STREAM_EVENTS = 132  # role, 128 tokens, finish, usage, [DONE]
_STEADY = 0.99  # reads per event, at least, of paced streams that arrived one by one
_ATTEMPTS = 3
_PACKAGES = ("aiohttp", "fastapi", "httptools", "msgspec", "orjson", "starlette", "uvicorn", "uvloop")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: blocks per series, requests per block, starts of the gateway.

    afterwork_s: work that a server puts off (flushing a log, say) belongs to the requests that caused it, so its clock is
    read that much later.
    """

    blocks: int = 5
    nginx_requests: int = 20_000
    requests: int = 6_000
    single: int = 2_000
    streams: int = 128
    connections: int = 32
    stream_connections: int = 64
    starts: int = 3
    afterwork_s: float = 0.3


QUICK = Sizes(
    blocks=1, nginx_requests=500, requests=300, single=100, streams=8, connections=8, stream_connections=8, starts=1, afterwork_s=0.05
)


class Block(msgspec.Struct, frozen=True):
    """One measured block. cpu_us: the server's CPU time in microseconds, null for the mock; latencies in ms.

    series: target/kind, as in "gateway/requests"; reads: reads of the client that brought events; problem: why the block
    cannot count, "" when it can.
    """

    series: str
    block: int
    requests: int
    errors: int
    events: int
    reads: int
    seconds: float
    cpu_us: float | None
    p50_ms: float
    p99_ms: float
    first_event_p50_ms: float
    gap_p99_ms: float
    problem: str

    @property
    def cpu_us_per_request(self) -> float:
        """CPU microseconds per request."""
        return (self.cpu_us or 0.0) / self.requests

    @property
    def cpu_us_per_event(self) -> float:
        """CPU microseconds per stream event, the request's own share included."""
        return (self.cpu_us or 0.0) / self.events

    @property
    def steady(self) -> bool:
        """Whether stream events arrived one by one rather than in bunches."""
        return self.reads >= _STEADY * self.events

    @property
    def s_per_request(self) -> float:
        """Seconds per request over all connections."""
        return self.seconds / self.requests


class MissingFigureError(Exception):
    """A figure cannot be had; the text says why."""


@dataclass(frozen=True, slots=True)
class Measured:
    """All that a run saw. unavailable: target -> why it could not be measured at all."""

    blocks: tuple[Block, ...]
    starts_s: tuple[float, ...]
    memory: Mapping[str, proctree.Memory]
    unavailable: Mapping[str, str]
    shared_cpu: str  # why gateway and load generator have no CPU of their own, "" when they have

    def least(self, series: str, value: Callable[[Block], float]) -> float:
        """The least of the series' blocks that can count, bunched ones only in need. Raises MissingFigureError."""
        if self.shared_cpu:
            raise MissingFigureError(self.shared_cpu)
        target = series.partition("/")[0]
        if target in self.unavailable:
            raise MissingFigureError(self.unavailable[target])
        blocks = [block for block in self.blocks if block.series == series]
        clean = [block for block in blocks if not block.problem]
        if not clean:
            raise MissingFigureError(blocks[0].problem if blocks else f"{series} was not measured")
        return min(value(block) for block in [block for block in clean if block.steady] or clean)


def run(sizes: Sizes, progress: Progress, command: str | None = None) -> Report:
    """Measure and report. command: another server in the gateway's place (see gateway_server). Raises BenchError."""
    load_cpus, gateway_cpus, _ = _cpus()
    before = machine() | {"cpus_of_load": load_cpus, "cpus_of_gateway": gateway_cpus}
    tools = compile_tools()
    with tempfile.TemporaryDirectory(prefix="trilemma-bench-") as folder:
        Path(folder).chmod(0o711)  # nginx's worker is another user than root
        measured = measure(sizes, Path(folder), tools, progress, command)
    figures, reasons = figures_of(measured)
    return Report(
        suite="overhead",
        commit=commit(),
        data=tools.digests,
        figures=figures,
        tables={
            "bars": dict(BARS),
            "reasons": reasons,
            "extra": extra_of(measured),
            "notes": notes_of(measured, command),
            "sizes": sizes,
            "blocks": measured.blocks,
            "starts_s": measured.starts_s,
            "memory": measured.memory,
            "machine": before | {"load_average_after": [round(value, 2) for value in os.getloadavg()]},
            "versions": versions(_PACKAGES) | _nginx_version(),
        },
    )


def measure(sizes: Sizes, folder: Path, tools: Tools, progress: Progress, command: str | None) -> Measured:
    """Start the servers, load them in turns, read their clocks."""
    load_cpus, gateway_cpus, shared_cpu = _cpus()
    site = Site(folder, gateway_cpus)
    unavailable: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        stack.enter_context(servers.on_cpus(load_cpus))
        mock = stack.enter_context(servers.mock_backend(Site(folder, load_cpus), tools.mock))
        targets = {"direct": mock}
        try:
            targets["nginx"] = stack.enter_context(servers.nginx(site, mock.port))
        except BenchError as error:
            unavailable["nginx"] = str(error)
        starts = tuple(_starts(sizes, site, mock.port, command, progress))
        targets["gateway"] = stack.enter_context(servers.gateway_server(site, mock.port, command))
        blocks = tuple(_blocks(sizes, targets, tools.lg, progress))
        memory = {name: proctree.memory(server.pid) for name, server in targets.items() if name != "direct"}
    return Measured(blocks, starts, memory, unavailable, shared_cpu)


def _cpus() -> tuple[frozenset[int] | None, frozenset[int] | None, str]:
    """CPU for load and mock, CPU for the server under test, and why they are not apart ("" when they are)."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        return None, None, "one CPU only: the load generator would run on the gateway's"
    return frozenset(allowed[:1]), frozenset(allowed[1:2]), ""


def _starts(sizes: Sizes, site: Site, backend: int, command: str | None, progress: Progress) -> Iterator[float]:
    """Seconds to the first answer, over and over. A first start, not counted, leaves the byte code behind."""
    for index in range(sizes.starts + 1):
        with servers.gateway_server(site, backend, command) as server:
            progress(f"start {index}: first answer after {server.start_s:.3f} s" + " (not counted)" * (index == 0))
            if index:
                yield server.start_s


def _loads(sizes: Sizes, target: str) -> dict[str, Load]:
    """Kind of block -> its load, for one target."""
    requests = sizes.nginx_requests if target == "nginx" else sizes.requests
    paced = Load(PACED_MODEL, sizes.stream_connections, sizes.streams, stream=True)
    loads = {"single": Load(MODEL, 1, sizes.single)}
    if target != "direct":
        loads |= {"requests": Load(MODEL, sizes.connections, requests), "streams": paced}
    if target == "gateway":
        loads["routed"] = Load(ROUTED_MODEL, sizes.connections, requests)
        loads["stripped"] = Load(PACED_MODEL, sizes.stream_connections, sizes.streams, stream=True, usage=False)
    return loads


def _blocks(sizes: Sizes, targets: Mapping[str, Server], lg: Path, progress: Progress) -> Iterator[Block]:
    """All blocks, the targets in turns within each kind, so that a disturbance meets both alike."""
    loads = {name: _loads(sizes, name) for name in targets}
    for server in targets.values():
        run_load(lg, server.port, KEY, Load(MODEL, sizes.connections, sizes.connections * 20))  # warm
    for index in range(sizes.blocks):
        for kind in ("requests", "routed", "single", "streams", "stripped"):
            for name, server in targets.items():
                for _ in range(_ATTEMPTS if kind in loads[name] else 0):
                    block = _block(f"{name}/{kind}", index, server, loads[name][kind], lg, sizes.afterwork_s)
                    progress(_told(block))
                    yield block
                    if block.steady:
                        break


def _block(series: str, index: int, server: Server, load: Load, lg: Path, afterwork_s: float) -> Block:
    before = proctree.cpu(server.pid)
    result, error = run_load(lg, server.port, KEY, load)
    time.sleep(afterwork_s)
    cpu_us = proctree.used_us(before, proctree.cpu(server.pid))
    expected = (STREAM_EVENTS - (not load.usage)) * result.n if load.stream else 0
    problem = ""
    if result.err or result.n != load.requests:
        problem = f"{result.err} of {result.n} requests failed ({load.requests} planned): {error or 'too slow'}"
    elif result.events != expected:
        problem = f"{result.events} stream events arrived where {expected} were expected"
    return Block(
        series=series,
        block=index,
        requests=result.n,
        errors=result.err,
        events=result.events,
        reads=result.reads,
        seconds=result.sec,
        cpu_us=None if series.startswith("direct/") else cpu_us,
        p50_ms=result.p50,
        p99_ms=result.p99,
        first_event_p50_ms=result.ttft50,
        gap_p99_ms=result.gap99,
        problem=problem,
    )


def _told(block: Block) -> str:
    cost = ""
    if block.cpu_us is not None:
        cost = f"{block.cpu_us_per_event:7.1f} us/event" if block.events else f"{block.cpu_us_per_request:7.1f} us/request"
    problem = f"  NOT COUNTED: {block.problem}" if block.problem else "" if block.steady else "  bunched"
    latency = f"p50 {block.p50_ms:.3f} ms  p99 {block.p99_ms:.3f} ms"
    return f"block {block.block} {block.series:<17} {cost:<18} {latency}{problem}"


def figures_of(measured: Measured) -> tuple[dict[str, float | None], dict[str, str]]:
    """The figures by their public names, and for those that are None the reason."""

    def request(block: Block) -> float:
        return block.cpu_us_per_request

    def event(block: Block) -> float:
        return block.cpu_us_per_event

    def added(value: Callable[[Block], float], target: str = "gateway") -> float:
        return measured.least(f"{target}/single", value) - measured.least("direct/single", value)

    least = measured.least
    return _evaluate(
        {
            "cpu_us_per_request": lambda: least("gateway/requests", request),
            "cpu_us_per_event": lambda: least("gateway/streams", event),
            "added_p50_ms": lambda: added(lambda block: block.p50_ms),
            "added_p99_ms": lambda: added(lambda block: block.p99_ms),
            "rps_per_core": lambda: 1 / least("gateway/requests", lambda block: block.s_per_request),
            "rss_mb": lambda: measured.memory["gateway"].rss / 1e6,
            "start_s": lambda: statistics.median(measured.starts_s),
            "nginx_cpu_us_per_request": lambda: least("nginx/requests", request),
            "nginx_cpu_us_per_event": lambda: least("nginx/streams", event),
            "request_x_nginx": lambda: least("gateway/requests", request) / least("nginx/requests", request),
            "event_x_nginx": lambda: least("gateway/streams", event) / least("nginx/streams", event),
            "routed_cpu_us_per_request": lambda: least("gateway/routed", request),
        }
    )


def extra_of(measured: Measured) -> dict[str, float | None]:
    """Numbers beside the figures: the path on which usage is stripped, one connection, nginx's own additions."""
    least = measured.least

    def added(value: Callable[[Block], float]) -> float:
        return least("nginx/single", value) - least("direct/single", value)

    values, _ = _evaluate(
        {
            "cpu_us_per_event_stripped": lambda: least("gateway/stripped", lambda block: block.cpu_us_per_event),
            "cpu_us_per_request_1_connection": lambda: least("gateway/single", lambda block: block.cpu_us_per_request),
            "nginx_cpu_us_per_request_1_connection": lambda: least("nginx/single", lambda block: block.cpu_us_per_request),
            "nginx_added_p50_ms": lambda: added(lambda block: block.p50_ms),
            "nginx_added_p99_ms": lambda: added(lambda block: block.p99_ms),
            "nginx_rps_per_core": lambda: 1 / least("nginx/requests", lambda block: block.s_per_request),
            "first_event_p50_ms": lambda: least("gateway/streams", lambda block: block.first_event_p50_ms),
            "nginx_first_event_p50_ms": lambda: least("nginx/streams", lambda block: block.first_event_p50_ms),
        }
    )
    return values


def _evaluate(computations: Mapping[str, Callable[[], float]]) -> tuple[dict[str, float | None], dict[str, str]]:
    values: dict[str, float | None] = {}
    reasons: dict[str, str] = {}
    for name, compute in computations.items():
        try:
            values[name] = compute()
        except MissingFigureError as error:
            values[name] = None
            reasons[name] = str(error)
    return values, reasons


def notes_of(measured: Measured, command: str | None) -> list[str]:
    """What a reader of the figures has to know."""
    notes = [
        "The least of the blocks counts; start_s is the median. Differences under 20 % are noise. MB = 10^6 bytes.",
        "A p99 of 4 ms or more at one connection means that another process had the CPU; compare it with nginx's.",
        "routed_cpu_us_per_request: a virtual model with a weighted policy over two plans; LinUCB comes later.",
    ]
    if command is not None:
        notes.append(f"NOT the gateway was measured but: {command}")
    troubled = sorted({block.series for block in measured.blocks if block.problem})
    if troubled:
        notes.append(f"Blocks with errors were left out (see tables.blocks): {', '.join(troubled)}.")
    streams = {block.series for block in measured.blocks if block.events}
    bunched = sorted(streams - {block.series for block in measured.blocks if block.steady})
    if bunched:
        notes.append(f"The machine was too busy to tell an event's cost (too low, all events bunched): {', '.join(bunched)}.")
    return notes


def _nginx_version() -> dict[str, Any]:
    program = servers.nginx_program()
    if program is None:
        return {}
    done = subprocess.run([program, "-v"], capture_output=True, text=True, check=False)  # noqa: S603 - nginx itself
    return {"nginx": done.stderr.rpartition("/")[2].strip()}
