"""A run: everything is started, every request leaves at its time whatever became of the others, faults happen, and it is watched."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
from array import array
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gateway.bench.servers import on_cpus
from gateway.load.arrivals import Ask, asks
from gateway.load.backends import Gauges
from gateway.load.client import Client
from gateway.load.faults import AnyFault
from gateway.load.inject import Happened, inject
from gateway.load.outcome import Record
from gateway.load.prompts import Block
from gateway.load.scenario import Scenario, ScenarioError
from gateway.load.stage import Stage, staged
from gateway.load.watch import (
    GaugeSample,
    HealthProbe,
    ProcessSample,
    process_sample,
    watch_gauges,
    watch_metrics,
    watch_process,
    watch_self,
)

Tell = Callable[[str], None]
_LEAD_S = 0.3  # from here to the first request
_POLL_S = 0.1


@dataclass(kw_only=True)
class Settled:
    """After the last caller was done. in_flight: as GET /admin/backends has it (None: it cannot be asked). seconds: until nothing was left,
    or the scenario's settle_s. sockets, rss of the gateway, then."""

    in_flight: int | None = None
    backends_in_flight: int | None = None
    seconds: float | None = None
    process: ProcessSample | None = None


@dataclass(kw_only=True)
class Observed:
    """All that a run saw; figures are made of it. Times are seconds, from the start of the load where they are moments."""

    records: list[Record]
    gaps: dict[str, array[float]]
    lags: array[float]
    health_s: list[float]
    health_failures: int
    before: ProcessSample | None
    samples: list[ProcessSample]
    gauges: list[GaugeSample]
    happened: list[Happened]
    settled: Settled
    backends: dict[str, Gauges]
    backend_metrics: dict[str, str]
    gateway_metrics: list[str]
    lasted_s: float
    pinned: str = ""
    died: str = ""


@dataclass
class _Watched:
    samples: list[ProcessSample] = field(default_factory=list)
    gauges: list[GaugeSample] = field(default_factory=list)
    metrics: list[str] = field(default_factory=list)
    lags: array[float] = field(default_factory=lambda: array("d"))


async def run(scenario: Scenario, folder: Path, tell: Tell) -> Observed:
    """Plays the scenario; logs are left in the folder. Raises ScenarioError, TraceMissing, BenchError."""
    _allow_sockets()
    made = asks(scenario)
    tell(f"{scenario.name}: {len(made)} requests in {scenario.duration_s:g} s; starting")
    async with staged(scenario, folder) as stage:
        with on_cpus(stage.cpus.client), _no_collections():
            return await _play(scenario, made, stage, tell)


async def _play(scenario: Scenario, made: Sequence[Ask], stage: Stage, tell: Tell) -> Observed:
    client = Client(stage.url, stage.keys, scenario.patience_s)
    await _try_out(scenario, stage)
    for backend in stage.backends.values():
        await backend.count_from_now()
    pid = stage.process.pid if stage.process is not None else None
    before = None if pid is None else process_sample(pid, 0.0)
    watched = _Watched()
    client.start(_LEAD_S)
    tell("the load begins")
    async with HealthProbe(stage.url) as health:
        async with _watching(stage, client, pid, watched):
            happened = await _load_and_faults(scenario, made, stage, client)
        lasted = client.clock()
    died = ""
    if stage.process is not None and stage.process.ended:
        died = stage.process.last_words()
    await client.close()
    tell(f"{len(client.records)} requests are over; waiting until nothing is left")
    settled = await _settle(scenario, stage, pid, client, before)
    return Observed(
        records=client.records,
        gaps=client.gaps,
        lags=watched.lags,
        health_s=health.seconds,
        health_failures=health.failures,
        before=before,
        samples=watched.samples,
        gauges=watched.gauges,
        happened=happened,
        settled=settled,
        backends={name: gauges for name, one in stage.backends.items() if (gauges := await one.read()) is not None},
        backend_metrics={name: await one.metrics() for name, one in stage.backends.items()},
        gateway_metrics=[*watched.metrics, *([] if stage.admin is None else [await stage.admin.metrics()])],
        lasted_s=lasted,
        pinned="" if stage.cpus.gateway is None else ",".join(map(str, sorted(stage.cpus.gateway))),
        died=died,
    )


async def _load_and_faults(scenario: Scenario, made: Sequence[Ask], stage: Stage, client: Client) -> list[Happened]:
    """Returns when every caller is done and every fault is over."""
    hits: dict[str, list[AnyFault]] = {name: [] for name in stage.backends}
    for fault in scenario.faults:
        for name in scenario.hit_by(fault):
            hits[name].append(fault)
    happened = [(Happened(do=str(fault.__struct_config__.tag), backend=name), fault) for name, faults in hits.items() for fault in faults]
    async with asyncio.TaskGroup() as group:
        for note, fault in happened:
            group.create_task(inject(fault, stage.backends[note.backend], client.clock, note, stage.admin))
        for ask in made:
            payload = client.payload(ask, scenario.load[ask.load])  # made before it is due
            if (early := ask.at - client.clock()) > 0:
                await asyncio.sleep(early)
            group.create_task(client.ask(ask, payload))
    return [note for note, _ in happened]


@contextlib.asynccontextmanager
async def _watching(stage: Stage, client: Client, pid: int | None, watched: _Watched) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(watch_self(watched.lags))]
        if pid is not None:
            tasks.append(group.create_task(watch_process(pid, client.clock, watched.samples)))
        if stage.admin is not None:
            tasks.append(group.create_task(watch_metrics(stage.admin, watched.metrics)))
        if stage.backends:
            tasks.append(group.create_task(watch_gauges(stage.backends, client.clock, client.most_in_flight, watched.gauges)))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


async def _try_out(scenario: Scenario, stage: Stage) -> None:
    """One request per kind of load, so that a wrong model or key is told before thousands fail, and first-time work is done."""
    client = Client(stage.url, stage.keys, 30.0)
    client.start(0.0)
    tenant = next(iter(stage.keys))
    for name, load in scenario.load.items():
        ask = Ask(number=0, at=client.clock(), load=name, tenant=tenant, stream=False, blocks=(Block("try", 8),), max_tokens=1)
        await client.ask(ask, client.payload(ask, load))
        tried = client.records[-1]
        if tried.kind not in ("complete", "shed"):
            raise ScenarioError(
                f"load.{name}: one request tried before the load was answered with {tried.status} {tried.code or tried.trouble}"
            )
    await client.close()


async def _settle(scenario: Scenario, stage: Stage, pid: int | None, client: Client, before: ProcessSample | None) -> Settled:
    """Polls until nothing is in flight and the gateway holds no more sockets than before, or the time for it is over."""
    begin = client.clock()
    settled = Settled()
    while True:
        in_flight = None if stage.admin is None else await stage.admin.in_flight()
        settled.in_flight = None if in_flight is None else sum(in_flight.values())
        seen = [await one.read() for one in stage.backends.values() if one.group.kind != "c" and one.seen is not None]
        settled.backends_in_flight = sum(one.in_flight for one in seen if one is not None) if stage.backends else None
        if pid is not None:
            settled.process = process_sample(pid, client.clock())
        settled.seconds = client.clock() - begin
        kept = settled.process is not None and before is not None and settled.process.sockets > before.sockets
        if settled.seconds >= scenario.settle_s or not (settled.in_flight or settled.backends_in_flight or kept):
            return settled
        await asyncio.sleep(_POLL_S)


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """A full collection would stop every stream of this process for a while; what runs here leaves no cycles behind."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _allow_sockets() -> None:
    """As many files as the system lets us have, for this process and what it starts: a stream is a socket."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
