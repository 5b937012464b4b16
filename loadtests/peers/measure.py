"""Each gateway beside nginx: started, loaded block by block in turns with nginx, looked at, ended; then the next one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from gateway import __version__
from gateway.bench import proctree, servers
from gateway.bench.blocks import STREAM_EVENTS, Block, MissingFigureError, Progress, Series, Value, evaluate, in_turns, least
from gateway.bench.ctools import BenchError, Load, Tools, run_load
from gateway.bench.overhead import event_us, nginx_version, request_us
from gateway.bench.servers import PLAIN, Ask, Server, Site
from gateway.bench.setup import KEY, MODEL, PACED_MODEL, Setup
from loadtests.peers import environments
from loadtests.peers.peer import PORT_FILE, USUAL, Peer, Place, Work

_NGINX: Final = replace(USUAL, requests=15_000)


@dataclass(frozen=True, slots=True)
class Sizes:
    """blocks: per series, the least counts. shrink: so many times fewer requests. afterwork_s: see blocks.py."""

    blocks: int = 5
    shrink: int = 1
    afterwork_s: float = 0.3


@dataclass(frozen=True, slots=True)
class Contender:
    """A gateway that can be measured here. running: starts it over a backend's port; for the rest see Peer."""

    name: str
    title: str
    version: str
    remark: str
    running: Callable[[Site, int], AbstractContextManager[Server]]
    ask: Ask = PLAIN
    paced_model: str = PACED_MODEL
    events: int = STREAM_EVENTS
    work: Work = USUAL
    without_streams: str = ""


class Row(msgspec.Struct, frozen=True):
    """What came of one gateway. problem: why it could not be measured, "" when it was. figures: name -> number, or null with its reason.
    blocks: its own, and those of nginx and the mock in the same minutes."""

    name: str
    title: str
    version: str
    remark: str
    problem: str = ""
    figures: dict[str, float | None] = {}
    reasons: dict[str, str] = {}
    blocks: list[Block] = []


def ours() -> list[Contender]:
    """Trilemma itself, with everything on, and with no more than its key check."""

    def start(*, everything: bool) -> Callable[[Site, int], AbstractContextManager[Server]]:
        return lambda site, backend: servers.gateway_server(site, Setup("trilemma", backend, site.folder, everything))

    return [
        Contender(
            "trilemma", "Trilemma", __version__, "Python; keys, limits, metrics, a row of each decision (SQLite)", start(everything=True)
        ),
        Contender("trilemma-bare", "Trilemma, keys alone", __version__, "Python; nothing counted, nothing kept", start(everything=False)),
    ]


def contender(peer: Peer) -> Contender:
    """A peer whose environment stands."""

    @contextlib.contextmanager
    def running(site: Site, backend: int) -> Iterator[Server]:
        port = servers.free_port()
        folder = site.folder / str(port)
        folder.mkdir()
        launch = peer.launch(Place(folder, environments.programs(peer), port, backend))
        for name, text in launch.files.items():
            (folder / name).write_text(text)
        where = folder / PORT_FILE if launch.names_its_port else port
        with servers.running(
            peer.name, launch.command, where, site, ask=peer.ask, extra=launch.environment, folder=folder, within_s=120.0
        ) as server:
            yield server

    return Contender(
        peer.name, peer.title, peer.version, peer.remark, running, peer.ask, peer.paced_model, peer.events, peer.work, peer.without_streams
    )


def all_series(one: Contender, server: Server, mock: Server, nginx: Server | None, shrink: int) -> list[Series]:
    """What is measured, in turns: requests at many connections, at one, and paced streams; the same of nginx and of the mock."""
    work, plain = one.work.shrunk(shrink), _NGINX.shrunk(shrink)
    path = one.ask.path

    def streams(model: str, path: str) -> Load:
        return Load(model, work.stream_connections, work.streams, stream=True, path=path)

    found = [Series("direct/single", mock, Load(MODEL, 1, plain.single))]
    if nginx is not None:
        found.append(Series("nginx/requests", nginx, Load(MODEL, work.connections, plain.requests)))
    found.append(Series(f"{one.name}/requests", server, Load(one.ask.model, work.connections, work.requests, path=path)))
    if nginx is not None:
        found.append(Series("nginx/single", nginx, Load(MODEL, 1, plain.single)))
    found.append(Series(f"{one.name}/single", server, Load(one.ask.model, 1, work.single, path=path)))
    if one.without_streams:
        return found
    if nginx is not None:
        found.append(Series("nginx/streams", nginx, streams(PACED_MODEL, PLAIN.path)))
    return [*found, Series(f"{one.name}/streams", server, streams(one.paced_model, path), one.events)]


def figures_of(
    name: str, blocks: Sequence[Block], memory: proctree.Memory, start_s: float, without_streams: str = ""
) -> tuple[dict[str, float | None], dict[str, str]]:
    """The figures of a gateway from its blocks and those of nginx and the mock between them, and for those that are None the reason."""

    def of(kind: str, value: Value) -> float:
        if without_streams and kind == "streams":
            raise MissingFigureError(without_streams)
        return least(blocks, f"{name}/{kind}", value)

    def added(value: Value) -> float:
        return of("single", value) - least(blocks, "direct/single", value)

    return evaluate(
        {
            "cpu_us_per_request": lambda: of("requests", request_us),
            "request_x_nginx": lambda: of("requests", request_us) / least(blocks, "nginx/requests", request_us),
            "rps": lambda: 1 / of("requests", lambda block: block.s_per_request),
            "p50_ms": lambda: of("requests", lambda block: block.p50_ms),
            "p99_ms": lambda: of("requests", lambda block: block.p99_ms),
            "cpu_us_per_request_1_connection": lambda: of("single", request_us),
            "added_p50_ms": lambda: added(lambda block: block.p50_ms),
            "added_p99_ms": lambda: added(lambda block: block.p99_ms),
            "cpu_us_per_event": lambda: of("streams", event_us),
            "event_x_nginx": lambda: of("streams", event_us) / least(blocks, "nginx/streams", event_us),
            "first_event_p50_ms": lambda: of("streams", lambda block: block.first_event_p50_ms),
            "rss_mb": lambda: memory.rss / 1e6,
            "start_s": lambda: start_s,
        }
    )


def measure(contenders: Sequence[Contender], sizes: Sizes, folder: Path, tools: Tools, progress: Progress) -> list[Row]:
    """A row for each, nginx's first. Raises BenchError when nothing can be measured here."""
    load_cpus, gateway_cpus, shared_cpu = servers.apart()
    if shared_cpu:
        raise BenchError(shared_cpu)
    problem, nginx = "", None
    with contextlib.ExitStack() as stack:
        stack.enter_context(servers.on_cpus(load_cpus))
        mock = stack.enter_context(servers.mock_backend(Site(folder, load_cpus), tools.mock))
        try:
            nginx = stack.enter_context(servers.nginx(Site(folder, gateway_cpus), mock.port))
        except BenchError as error:
            problem = str(error)
        rows = []
        for one in contenders:
            site = Site(folder / one.name, gateway_cpus)
            site.folder.mkdir()
            rows.append(_row(one, site, mock, nginx, sizes, tools.lg, progress))
        yardstick = Row("nginx", "nginx", nginx_version().get("nginx", ""), "C; the hop alone", problem)
        if nginx is None:
            return [yardstick, *rows]
        memory = proctree.memory(nginx.pid)
    like = [row for row, one in zip(rows, contenders, strict=True) if _alike(one.work, _NGINX)]
    figures, reasons = figures_of("nginx", [block for row in like for block in row.blocks], memory, nginx.start_s)
    return [msgspec.structs.replace(yardstick, figures=figures, reasons=reasons), *rows]


def _row(one: Contender, site: Site, mock: Server, nginx: Server | None, sizes: Sizes, lg: Path, progress: Progress) -> Row:
    row = Row(one.name, one.title, one.version, one.remark)
    blocks: list[Block] = []
    try:
        with one.running(site, mock.port):  # not counted: it leaves byte code and files in memory
            pass
        with one.running(site, mock.port) as server:
            progress(f"{one.name}: first answer after {server.start_s:.3f} s")
            series = all_series(one, server, mock, nginx, sizes.shrink)
            for each in series:
                if not each.load.stream:
                    run_load(lg, each.server.port, KEY, each.load)  # not counted: it warms up
            for index in range(sizes.blocks):
                blocks += in_turns(series, index, lg, sizes.afterwork_s, progress)
            memory = proctree.memory(server.pid)
    except BenchError as error:
        progress(f"{one.name}: {error}")
        return msgspec.structs.replace(row, problem=str(error), blocks=blocks)
    figures, reasons = figures_of(one.name, blocks, memory, server.start_s, one.without_streams)
    return msgspec.structs.replace(row, figures=figures, reasons=reasons, blocks=blocks)


def _alike(one: Work, other: Work) -> bool:
    """Whether they ask over as many connections, so that their costs compare."""
    return (one.connections, one.stream_connections) == (other.connections, other.stream_connections)
