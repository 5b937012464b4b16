"""From a scenario to its requests, all of them before the first is sent: the same seed asks the same things at the same times."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import msgspec
import orjson

from gateway.load.prompts import BYTES_PER_TOKEN, Block, prompt
from gateway.load.scenario import Burst, Count, Leave, Load, Replay, Scenario
from gateway.load.traces import BLOCK_TOKENS, Row, read_trace


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One request to be sent. at: when, seconds from the start. What its caller will do: take bytes_per_s at most (None: all that comes),
    leave after so many events, at a moment, or never.
    """

    number: int
    at: float
    load: str
    tenant: str
    stream: bool
    blocks: tuple[Block, ...]
    max_tokens: int
    bytes_per_s: float | None = None
    leave_after_events: int | None = None
    leave_at: float | None = None


class _Moment(msgspec.Struct, frozen=True):
    """An arrival, with what a trace says of it."""

    at: float
    row: Row | None = None


def asks(scenario: Scenario) -> list[Ask]:
    """Every request of the scenario, in order of time. Raises TraceMissing."""
    made = [ask for name in scenario.load for ask in _of_load(scenario, name)]
    made.sort(key=lambda ask: ask.at)
    return [msgspec.structs.replace(ask, number=number) for number, ask in enumerate(made)]


def body(ask: Ask, load: Load) -> bytes:
    """The request's JSON."""
    fields: dict[str, Any] = {"model": load.model, "max_tokens": ask.max_tokens}
    if ask.stream:
        fields["stream"] = True
    if ask.stream and load.usage:
        fields["stream_options"] = {"include_usage": True}
    messages = b'"messages":[{"role":"user","content":"%b"}],' % prompt(ask.blocks)
    return b"{" + messages + orjson.dumps(fields | load.body)[1:]


def _of_load(scenario: Scenario, name: str) -> Iterator[Ask]:
    load = scenario.load[name]
    dice = random.Random(f"{scenario.seed}/{name}")  # noqa: S311 - repeatable traffic is the point
    until = min(scenario.duration_s, load.from_s + (load.for_s or scenario.duration_s))
    shares = load.tenants or {tenant: one.share for tenant, one in scenario.tenants.items()}
    tenants, ladder = list(shares), list(accumulate(shares.values()))
    for number, moment in enumerate(_moments(load, until, dice)):
        leaves, after_events, leave_at = _leaving(load.leave, moment.at, dice)
        stream = dice.random() < load.stream
        slow = load.slow is not None and dice.random() < load.slow.share
        yield Ask(
            number=number,
            at=moment.at,
            load=name,
            tenant=dice.choices(tenants, cum_weights=ladder)[0],
            stream=stream,
            blocks=_blocks(load, moment.row, f"{scenario.seed}/{name}/{number}", dice),
            max_tokens=_drawn(load.max_tokens, dice) if moment.row is None else max(1, moment.row.output_tokens),
            bytes_per_s=load.slow.bytes_per_s if slow and load.slow is not None else None,
            leave_after_events=after_events if leaves and stream else None,
            leave_at=leave_at if leaves else None,
        )


def _moments(load: Load, until: float, dice: random.Random) -> Iterator[_Moment]:
    if load.trace is not None:
        yield from _replayed(load.trace, load.from_s, until)
        return
    for at in _burst(load.burst) if load.burst is not None else _rate(load, dice):
        if at >= until:
            break
        yield _Moment(at)


def _burst(burst: Burst) -> Iterator[float]:
    return (at for at in sorted(burst.at) for _ in range(burst.size))


def _rate(load: Load, dice: random.Random) -> Iterator[float]:
    """Evenly spaced, or with exponential gaps; without end."""
    rate = load.constant or load.poisson or 0.0
    at = load.from_s + (dice.expovariate(rate) if load.poisson else 0.0)
    number = 0
    while True:
        yield at
        number += 1
        at = at + dice.expovariate(rate) if load.poisson else load.from_s + number / rate


def _replayed(trace: Replay, begin: float, end: float) -> Iterator[_Moment]:
    """Every 1/share-th row of the window, so that its bursts keep their shape, at scaled times."""
    rows = read_trace(trace.name)
    first, last = trace.window_s or (0.0, rows[-1].at)
    kept = 0.0
    for row in rows:
        if not first <= row.at <= last:
            continue
        kept += trace.share
        if kept >= 1:
            kept -= 1
            yield _Moment(begin + (row.at - first) * (end - begin) / ((last - first) or 1.0), row)


def _blocks(load: Load, row: Row | None, own: str, dice: random.Random) -> tuple[Block, ...]:
    """What the prompt is made of: the trace's shared blocks, or a text of its own."""
    if row is not None and row.blocks:
        sizes = [min(BLOCK_TOKENS, row.prompt_tokens - BLOCK_TOKENS * place) for place in range(len(row.blocks))]
        return tuple(Block(f"shared/{block}", size) for block, size in zip(row.blocks, sizes, strict=True) if size > 0)
    if row is not None:
        return (Block(own, max(1, row.prompt_tokens)),)
    if load.prompt_bytes is not None:
        return (Block(own, max(1, load.prompt_bytes // BYTES_PER_TOKEN)),)
    return (Block(own, _drawn(load.prompt_tokens, dice)),)


def _leaving(leave: Leave | None, at: float, dice: random.Random) -> tuple[bool, int | None, float | None]:
    if leave is None or dice.random() >= leave.share:
        return False, None, None
    if leave.after_events is not None:
        return True, dice.randint(*leave.after_events), None
    if leave.between is not None:
        return True, None, dice.uniform(*leave.between)
    return True, None, at + dice.uniform(*(leave.after_s or (0.0, 0.0)))


def _drawn(count: Count, dice: random.Random) -> int:
    return count if isinstance(count, int) else dice.randint(*count)
