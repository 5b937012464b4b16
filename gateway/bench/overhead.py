"""The overhead suite: what the gateway adds to a request and to a stream event, beside nginx in the same run.

The gateway does all it can: it checks keys and limits, counts, and keeps a row of each decision. The figure to trust is CPU
time, the run time of its process tree over a counted number of requests (blocks.py). nginx and the gateway take turns,
block by block. The gateway has one CPU to itself, the C load generator and the C mock backend share another.

    cpu_us_per_request   32 connections, closed loop            cpu_us_per_event   64 streams, 10 ms between events
    added_p50/p99_ms     one connection, less the same asked of the mock directly
    cpu_us_per_candidate, loop_lag_ms     100 connections that ask for the longest of eight answers each
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gateway.bench import proctree, servers
from gateway.bench.blocks import Block, MissingFigureError, Progress, Series, Value, evaluate, in_turns, ratio, troubles
from gateway.bench.blocks import least as least_of
from gateway.bench.ctools import BenchError, Load, Tools, compile_tools, run_load
from gateway.bench.report import Bar, Report, commit, machine, versions
from gateway.bench.servers import Server, Site
from gateway.bench.setup import (
    CANDIDATES,
    DECODED_MODEL,
    KEY,
    LANES,
    MODEL,
    PACED_MODEL,
    ROUTED_MODEL,
    WEIGHTED_MODEL,
    Recorded,
    Setup,
    counted,
    loop_lag_s,
    rows,
    switched_on,
)

BARS: Final[Mapping[str, Bar]] = {
    "request_x_nginx": Bar(most=10.0),
    "event_x_nginx": Bar(most=2.3),
    "added_p50_ms": Bar(most=0.35),
    "rps_per_core": Bar(least=4_200.0),
    "rss_mb": Bar(most=90.0),
    "start_s": Bar(most=1.2),
    "cpu_us_per_candidate": Bar(most=250.0),
    "loop_lag_ms": Bar(most=100.0),
}
"""Ratios are to nginx in the same run."""

_PACKAGES = ("aiohttp", "fastapi", "httptools", "msgspec", "orjson", "starlette", "uvicorn", "uvloop")
_KINDS = ("requests", "weighted", "routed", "single", "streams", "stripped", "decoded")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: blocks per series, requests per block, starts of the gateway. afterwork_s: see blocks.py."""

    blocks: int = 5
    nginx_requests: int = 20_000
    requests: int = 6_000
    single: int = 2_000
    streams: int = 128
    connections: int = 32
    stream_connections: int = 64
    decoded: int = 500
    decoded_connections: int = 100
    starts: int = 3
    afterwork_s: float = 0.3


QUICK = Sizes(
    blocks=1,
    nginx_requests=500,
    requests=300,
    single=100,
    streams=8,
    connections=8,
    stream_connections=8,
    decoded=24,
    decoded_connections=8,
    starts=1,
    afterwork_s=0.05,
)


@dataclass(frozen=True, slots=True)
class Measured:
    """All that a run saw. unavailable: target -> why it could not be measured at all. on: what the gateway had to do, in words."""

    blocks: tuple[Block, ...]
    starts_s: tuple[float, ...]
    memory: Mapping[str, proctree.Memory]
    unavailable: Mapping[str, str]
    shared_cpu: str  # why gateway and load generator have no CPU of their own, "" when they have
    on: Mapping[str, str]
    recorded: Recorded | None
    loop_lag_s: float | None = None  # of the gateway that decodes, after its last block

    def least(self, series: str, value: Value) -> float:
        """See blocks.least. Raises MissingFigureError."""
        if self.shared_cpu:
            raise MissingFigureError(self.shared_cpu)
        target = series.partition("/")[0]
        if target in self.unavailable:
            raise MissingFigureError(self.unavailable[target])
        return least_of(self.blocks, series, value)

    def beside_nginx(self, target: str, kind: str, value: Value) -> float:
        """See blocks.ratio. Raises MissingFigureError."""
        if self.shared_cpu:
            raise MissingFigureError(self.shared_cpu)
        for series in (f"{target}/{kind}", f"nginx/{kind}"):
            self.least(series, value)  # which says why there is none
        return ratio(self.blocks, f"{target}/{kind}", f"nginx/{kind}", value)


def run(sizes: Sizes, progress: Progress, command: str | None = None) -> Report:
    """Measure and report. command: another server in the gateway's place (see gateway_server). Raises BenchError."""
    load_cpus, gateway_cpus, _ = servers.apart()
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
            "on": measured.on,
            "lanes": lanes_of(measured) if command is None else {},
            "shown": ["lanes"],
            "extra": extra_of(measured),
            "notes": notes_of(measured, command),
            "sizes": sizes,
            "blocks": measured.blocks,
            "starts_s": measured.starts_s,
            "memory": measured.memory,
            "recorded": measured.recorded,
            "machine": before | {"load_average_after": [round(value, 2) for value in os.getloadavg()]},
            "versions": versions(_PACKAGES) | nginx_version(),
        },
    )


def measure(sizes: Sizes, folder: Path, tools: Tools, progress: Progress, command: str | None) -> Measured:
    """Start the servers, load them in turns, read their clocks."""
    load_cpus, gateway_cpus, shared_cpu = servers.apart()
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
        setup = Setup("gateway", mock.port, folder)
        starts = tuple(_starts(sizes, site, setup, command, progress))
        rows_before = rows(setup.database) or 0
        with contextlib.ExitStack() as gateways:
            targets["gateway"] = gateways.enter_context(servers.gateway_server(site, setup, command))
            for lane in LANES if command is None else ():
                targets[lane] = gateways.enter_context(servers.gateway_server(site, Setup(lane, mock.port, folder), lane=lane))
            if command is None:  # a process of its own: numpy has its price in memory
                targets["learner"] = gateways.enter_context(servers.gateway_server(site, Setup("learner", mock.port, folder, learns=True)))
                decodes = Setup("decoder", mock.port, folder, decodes=True)
                targets["decoder"] = gateways.enter_context(servers.gateway_server(site, decodes))
            asked = _warm(sizes, targets, tools.lg)
            blocks = tuple(_blocks(sizes, targets, tools.lg, progress))
            lag = loop_lag_s(targets["decoder"].port) if "decoder" in targets else None
            memory = {name: proctree.memory(server.pid) for name, server in targets.items() if name != "direct"}
            seen = counted(targets["gateway"].port)
        rows_after = rows(setup.database)
    asked += sum(block.requests for block in blocks if block.series.startswith("gateway/"))
    recorded = Recorded(asked, seen, None if rows_after is None else rows_after - rows_before)
    if command is not None:
        return Measured(blocks, starts, memory, unavailable, shared_cpu, {}, None)
    return Measured(blocks, starts, memory, unavailable, shared_cpu, switched_on(setup.file(0)), recorded, lag)


def _starts(sizes: Sizes, site: Site, setup: Setup, command: str | None, progress: Progress) -> Iterator[float]:
    """Seconds to the first answer, over and over. A first start, not counted, leaves byte code and a database behind."""
    for index in range(sizes.starts + 1):
        with servers.gateway_server(site, setup, command) as server:
            progress(f"start {index}: first answer after {server.start_s:.3f} s" + " (not counted)" * (index == 0))
            if index:
                yield server.start_s


def _loads(sizes: Sizes, target: str) -> dict[str, Load]:
    """Kind of block -> its load, for one target."""
    single = {"single": Load(MODEL, 1, sizes.single)}
    if target == "direct":
        return single
    if target == "learner":
        return {"routed": Load(ROUTED_MODEL, sizes.connections, sizes.requests)}
    if target == "decoder":
        return {"decoded": Load(DECODED_MODEL, sizes.decoded_connections, sizes.decoded)}
    requests = sizes.nginx_requests if target == "nginx" else sizes.requests
    paced = Load(PACED_MODEL, sizes.stream_connections, sizes.streams, stream=True)
    loads = {"requests": Load(MODEL, sizes.connections, requests), "streams": paced}
    if target not in LANES:
        loads |= single
    if target == "gateway":
        loads["weighted"] = Load(WEIGHTED_MODEL, sizes.connections, requests)
        loads["stripped"] = Load(PACED_MODEL, sizes.stream_connections, sizes.streams, stream=True, usage=False)
    return loads


def _warm(sizes: Sizes, targets: Mapping[str, Server], lg: Path) -> int:
    """A first, uncounted load for each; how many requests it made of each."""
    load = Load(MODEL, sizes.connections, sizes.connections * 20)
    for server in targets.values():
        run_load(lg, server.port, KEY, load)
    return load.requests


def _blocks(sizes: Sizes, targets: Mapping[str, Server], lg: Path, progress: Progress) -> Iterator[Block]:
    """All blocks, the targets in turns within each kind, so that a disturbance meets all alike."""
    loads = {name: _loads(sizes, name) for name in targets}
    series = [
        Series(f"{name}/{kind}", targets[name], of_kind[kind]) for kind in _KINDS for name, of_kind in loads.items() if kind in of_kind
    ]
    for index in range(sizes.blocks):
        yield from in_turns(series, index, lg, sizes.afterwork_s, progress)


def request_us(block: Block) -> float:
    """CPU time of a request."""
    return block.cpu_us_per_request


def event_us(block: Block) -> float:
    """CPU time of a stream's event."""
    return block.cpu_us_per_event


def figures_of(measured: Measured) -> tuple[dict[str, float | None], dict[str, str]]:
    """The figures by their public names, and for those that are None the reason."""

    def added(value: Value) -> float:
        return least("gateway/single", value) - least("direct/single", value)

    def lag() -> float:
        if measured.shared_cpu:
            raise MissingFigureError(measured.shared_cpu)
        if measured.loop_lag_s is None:
            raise MissingFigureError("it was not measured")
        return measured.loop_lag_s * 1e3

    least = measured.least
    return evaluate(
        {
            "cpu_us_per_request": lambda: least("gateway/requests", request_us),
            "cpu_us_per_event": lambda: least("gateway/streams", event_us),
            "added_p50_ms": lambda: added(lambda block: block.p50_ms),
            "added_p99_ms": lambda: added(lambda block: block.p99_ms),
            "rps_per_core": lambda: 1 / least("gateway/requests", lambda block: block.s_per_request),
            "rss_mb": lambda: measured.memory["gateway"].rss / 1e6,
            "start_s": lambda: statistics.median(measured.starts_s),
            "nginx_cpu_us_per_request": lambda: least("nginx/requests", request_us),
            "nginx_cpu_us_per_event": lambda: least("nginx/streams", event_us),
            "request_x_nginx": lambda: measured.beside_nginx("gateway", "requests", request_us),
            "event_x_nginx": lambda: measured.beside_nginx("gateway", "streams", event_us),
            "routed_cpu_us_per_request": lambda: least("learner/routed", request_us),
            "cpu_us_per_candidate": lambda: least("decoder/decoded", request_us) / CANDIDATES,
            "loop_lag_ms": lag,
        }
    )


def lanes_of(measured: Measured) -> dict[str, dict[str, float | None]]:
    """The same work by each of the ways that a request can take; the gateway itself takes the short one."""
    return {lane: _lane(measured, series) for lane, series in {"hot": "gateway", **dict(zip(LANES, LANES, strict=True))}.items()}


def _lane(measured: Measured, target: str) -> dict[str, float | None]:
    least = measured.least
    values, _ = evaluate(
        {
            "cpu_us_per_request": lambda: least(f"{target}/requests", request_us),
            "request_x_nginx": lambda: measured.beside_nginx(target, "requests", request_us),
            "cpu_us_per_event": lambda: least(f"{target}/streams", event_us),
            "event_x_nginx": lambda: measured.beside_nginx(target, "streams", event_us),
        }
    )
    return values


def extra_of(measured: Measured) -> dict[str, float | None]:
    """Numbers beside the figures: a weighted draw, what LinUCB adds, streams without usage, one connection, nginx's own additions."""
    least = measured.least

    def added(value: Value) -> float:
        return least("nginx/single", value) - least("direct/single", value)

    def routed_rss() -> float:
        if "learner" not in measured.memory:
            raise MissingFigureError("it was not measured")
        return measured.memory["learner"].rss / 1e6

    values, _ = evaluate(
        {
            "weighted_cpu_us_per_request": lambda: least("gateway/weighted", request_us),
            "routed_added_us": lambda: least("learner/routed", request_us) - least("gateway/requests", request_us),
            "routed_rss_mb": routed_rss,
            "cpu_us_per_event_stripped": lambda: least("gateway/stripped", event_us),
            "cpu_us_per_request_1_connection": lambda: least("gateway/single", request_us),
            "nginx_cpu_us_per_request_1_connection": lambda: least("nginx/single", request_us),
            "nginx_added_p50_ms": lambda: added(lambda block: block.p50_ms),
            "nginx_added_p99_ms": lambda: added(lambda block: block.p99_ms),
            "nginx_rps_per_core": lambda: 1 / least("nginx/requests", lambda block: block.s_per_request),
            "first_event_p50_ms": lambda: least("gateway/streams", lambda block: block.first_event_p50_ms),
            "nginx_first_event_p50_ms": lambda: least("nginx/streams", lambda block: block.first_event_p50_ms),
        }
    )
    return values


def notes_of(measured: Measured, command: str | None) -> list[str]:
    """What a reader of the figures has to know."""
    notes = [
        "The least of the blocks counts; x nginx is the median over the blocks of what each cost beside nginx in the same turn, and "
        "start_s the median of the starts. Differences under 20 % are noise. MB = 10^6 bytes.",
        "A p99 of 4 ms or more at one connection means that another process had the CPU; compare it with nginx's.",
    ]
    if command is not None:
        notes.append(f"NOT the gateway was measured but: {command}")
    if measured.on:
        notes.append(f"Switched on: {'; '.join(f'{what}: {how}' for what, how in measured.on.items())}.")
    recorded = measured.recorded
    if recorded is not None and not recorded.whole:
        notes.append(
            f"NOT everything was on: of {recorded.asked} requests, {recorded.counted} were counted and {recorded.rows} have a row "
            "(null: not to be read)."
        )
    return notes + troubles(measured.blocks)


def nginx_version() -> dict[str, Any]:
    """nginx's, where it is installed."""
    program = servers.nginx_program()
    if program is None:
        return {}
    done = subprocess.run([program, "-v"], capture_output=True, text=True, check=False)  # noqa: S603 - nginx itself
    return {"nginx": done.stderr.rpartition("/")[2].strip()}
