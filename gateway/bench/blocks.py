"""A measured block: one load on one server, the CPU time of its process tree, and which of several blocks counts.

CPU time per request depends on how many events one wake-up finds, and so on the machine's other work: several short
blocks are measured, those of different servers in turns, and the least of them counts. Where something else holds a CPU
for a while, paced events pile up, one read finds several, and each looks cheap: such a block is measured again, and
counts only if there is no better one.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from gateway.bench import proctree
from gateway.bench.ctools import Load, run_load
from gateway.bench.servers import Server
from gateway.bench.setup import KEY

Progress = Callable[[str], None]
Value = Callable[["Block"], float]

STREAM_EVENTS: Final = 132
"""Of the mock's streams: role, 128 tokens, finish, usage, [DONE]."""

_STEADY: Final = 0.99  # reads per event, at least, of paced streams that arrived one by one
_ATTEMPTS: Final = 3


class MissingFigureError(Exception):
    """A figure cannot be had; the text says why."""


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


@dataclass(frozen=True, slots=True)
class Series:
    """What is measured again and again. events: of each stream, if the load asks for usage; without it there is one less."""

    name: str
    server: Server
    load: Load
    events: int = STREAM_EVENTS


def in_turns(all_series: Iterable[Series], index: int, lg: Path, afterwork_s: float, progress: Progress) -> Iterator[Block]:
    """A block of each series, in their order, bunched ones again."""
    for series in all_series:
        for _ in range(_ATTEMPTS):
            block = _block(series, index, lg, afterwork_s)
            progress(_told(block))
            yield block
            if block.steady:
                break


def least(blocks: Iterable[Block], series: str, value: Value) -> float:
    """The least of the series' blocks that can count, bunched ones only in need. Raises MissingFigureError."""
    return min(map(value, _counting(blocks, series)))


def ratio(blocks: Iterable[Block], series: str, other: str, value: Value) -> float:
    """How many times the other series' value this one's is: the median over the blocks, each beside the other's of the same turn, so that
    one quiet or busy moment of either does not make the figure. Raises MissingFigureError."""
    blocks = tuple(blocks)
    beside = {block.block: value(block) for block in _counting(blocks, other)}
    found = [value(block) / beside[block.block] for block in _counting(blocks, series) if block.block in beside]
    if not found:
        raise MissingFigureError(f"{series} and {other} were never measured in the same turn")
    return statistics.median(found)


def _counting(blocks: Iterable[Block], series: str) -> list[Block]:
    """The series' blocks that can count, bunched ones only in need. Raises MissingFigureError."""
    found = [block for block in blocks if block.series == series]
    clean = [block for block in found if not block.problem]
    if not clean:
        raise MissingFigureError(found[0].problem if found else f"{series} was not measured")
    return [block for block in clean if block.steady] or clean


def evaluate(computations: Mapping[str, Callable[[], float]]) -> tuple[dict[str, float | None], dict[str, str]]:
    """The values, and for those that are None the reason."""
    values: dict[str, float | None] = {}
    reasons: dict[str, str] = {}
    for name, compute in computations.items():
        try:
            values[name] = compute()
        except MissingFigureError as error:
            values[name] = None
            reasons[name] = str(error)
    return values, reasons


def troubles(blocks: Iterable[Block]) -> list[str]:
    """What a reader of figures made of these blocks has to know of them."""
    blocks = tuple(blocks)
    notes = []
    troubled = sorted({block.series for block in blocks if block.problem})
    if troubled:
        notes.append(f"Blocks with errors were left out (see tables.blocks): {', '.join(troubled)}.")
    streams = {block.series for block in blocks if block.events}
    bunched = sorted(streams - {block.series for block in blocks if block.steady})
    if bunched:
        notes.append(f"The machine was too busy to tell an event's cost (too low, all events bunched): {', '.join(bunched)}.")
    return notes


def _block(series: Series, index: int, lg: Path, afterwork_s: float) -> Block:
    """afterwork_s: work that a server puts off (flushing a log, say) belongs to the requests that caused it, so its clock is read that
    much later."""
    load = series.load
    before = proctree.cpu(series.server.pid)
    result, error = run_load(lg, series.server.port, KEY, load)
    time.sleep(afterwork_s)
    cpu_us = proctree.used_us(before, proctree.cpu(series.server.pid))
    expected = (series.events - (not load.usage)) * result.n if load.stream else 0
    problem = ""
    if result.err or result.n != load.requests:
        problem = f"{result.err} of {result.n} requests failed ({load.requests} planned): {error or 'too slow'}"
    elif result.events != expected:
        problem = f"{result.events} stream events arrived where {expected} were expected"
    return Block(
        series=series.name,
        block=index,
        requests=result.n,
        errors=result.err,
        events=result.events,
        reads=result.reads,
        seconds=result.sec,
        cpu_us=None if series.name.startswith("direct/") else cpu_us,
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
    return f"block {block.block} {block.series:<20} {cost:<18} {latency}{problem}"
