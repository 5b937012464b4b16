"""Faults happen: each at its time, each undone when it is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from gateway.load.admin import Admin
from gateway.load.backends import BackendProcess
from gateway.load.faults import AnyFault, Drain, Flap, Freeze, Kill, Restart, Scripted, Undrain
from gateway.load.scenario import ScenarioError

Clock = Callable[[], float]


class Happened(msgspec.Struct, kw_only=True):
    """A fault as it was: when it began and ended (null: it did not, or has no end), seconds from the start of the load.

    requests: what the backend received meanwhile, probes included (null where it counts nothing or was dead).
    """

    do: str
    backend: str
    began: float | None = None
    ended: float | None = None
    requests: int | None = None


async def inject(fault: AnyFault, backend: BackendProcess, clock: Clock, happened: Happened, admin: Admin | None = None) -> None:
    """Waits for the fault's time, lets it happen to one backend, and undoes it. What happened is written down. Raises ScenarioError."""
    await _until(fault.at, clock)
    if isinstance(fault, Drain | Undrain):
        if admin is None:
            raise ScenarioError(f"{fault.backend}: nobody can be told to drain it")
        happened.began = clock()
        if isinstance(fault, Undrain):
            await admin.undrain(backend.name)
        elif await admin.drain(backend.name, fault.within_s):
            happened.ended = clock()
    elif isinstance(fault, Kill):
        await backend.kill()
        happened.began = clock()
    elif isinstance(fault, Restart):
        await backend.start()
        happened.began = clock()
    elif isinstance(fault, Freeze):
        backend.freeze()
        happened.began = clock()
        try:
            await _until(fault.at + fault.for_s, clock)
        finally:
            backend.thaw()
            happened.ended = clock()
    else:
        before = await backend.read()
        happened.began = clock()
        try:
            await (_flap(fault, backend, clock) if isinstance(fault, Flap) else _scripted(fault, backend, clock))
        finally:
            happened.ended = clock()
        after = await backend.read()
        if before is not None and after is not None:
            happened.requests = after.total - before.total


async def _scripted(fault: Scripted, backend: BackendProcess, clock: Clock) -> None:
    script = fault.script()
    await backend.misbehave(script)
    try:
        await _until(fault.at + fault.for_s, clock)
    finally:
        await backend.behave(script)


async def _flap(fault: Flap, backend: BackendProcess, clock: Clock) -> None:
    script = fault.script()
    bad = fault.at
    while bad < fault.at + fault.for_s:
        await _until(bad, clock)
        await backend.misbehave(script)
        try:
            await _until(min(bad + fault.period_s / 2, fault.at + fault.for_s), clock)
        finally:
            await backend.behave(script)
        bad += fault.period_s


async def _until(moment: float, clock: Clock) -> None:
    await asyncio.sleep(max(0.0, moment - clock()))
