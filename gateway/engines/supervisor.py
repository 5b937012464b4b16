"""The supervisor of managed engines: one process per gateway that owns them, and the gateway's handle on it.

    python -m gateway.engines.supervisor --state DIR [--grace SECONDS]

reads JSON lines on stdin: {"engines": [EngineSpec...], "revision": N} is the complete wished set (what is new starts,
what is gone stops, what changed restarts, what is equal is left alone; answered by {"applied": N}); {"restart": NAME}
starts one again. It writes an EngineStatus per change on stdout. The end of stdin, SIGTERM, SIGINT or the death of
its parent ends all engines, then itself.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from gateway.engines.guard import bind
from gateway.engines.managed import Limits, ManagedEngine, signal_group
from gateway.engines.packaged import EngineError
from gateway.engines.spec import EngineSpec, EngineStatus

_LONGEST_LINE = 16 * 2**20


class Wish(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the gateway: a complete set of engines, or the name of one to start again."""

    engines: list[EngineSpec] | None = None
    revision: int = 0
    restart: str | None = None


class _Fleet:
    """The engines of the supervisor process, each with the task that keeps it."""

    def __init__(self, state: Path, limits: Limits, group: asyncio.TaskGroup) -> None:
        self._state = state
        self._limits = limits
        self._group = group
        self._kept: dict[str, tuple[ManagedEngine, asyncio.Task[None]]] = {}
        self._ending: dict[str, set[asyncio.Task[None]]] = {}

    def obey(self, wish: Wish) -> None:
        """Begin what `wish` asks for; what was begun before goes on."""
        if wish.engines is not None:
            wished = {spec.name: spec for spec in wish.engines}
            for name in self._kept.keys() - wished.keys():
                self._end(name)
            for name, spec in wished.items():
                if name not in self._kept or self._kept[name][0].spec != spec:
                    self._start(spec)
            _write({"applied": wish.revision})
        if wish.restart in self._kept:
            self._start(self._kept[wish.restart][0].spec)

    def end(self) -> None:
        """Begin to end every engine."""
        for name in list(self._kept):
            self._end(name)

    def _start(self, spec: EngineSpec) -> None:
        if spec.name in self._kept:
            self._end(spec.name)
        engine = ManagedEngine(spec, self._state, lambda status: self._hear(engine, status), self._limits)
        # Who ended under this name may still hold the port, so the new one waits for it.
        task = self._group.create_task(engine.run(after=frozenset(self._ending.get(spec.name, ()))))
        self._kept[spec.name] = engine, task
        _write(engine.status)

    def _end(self, name: str) -> None:
        _, task = self._kept.pop(name)
        task.cancel()
        ending = self._ending.setdefault(name, set())
        ending.add(task)
        task.add_done_callback(ending.discard)

    def _hear(self, engine: ManagedEngine, status: EngineStatus) -> None:
        current = self._kept.get(status.engine)
        if current is None or current[0] is engine:  # a replaced engine is heard no more
            _write(status)


async def _supervise(state: Path, limits: Limits) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_LONGEST_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with asyncio.TaskGroup() as group:
        fleet = _Fleet(state, limits, group)
        listener = group.create_task(_listen(reader, fleet))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, listener.cancel)
        await asyncio.wait({listener})
        fleet.end()


async def _listen(reader: asyncio.StreamReader, fleet: _Fleet) -> None:
    decoder = msgspec.json.Decoder(Wish)
    while line := await reader.readline():
        fleet.obey(decoder.decode(line))


def _write(message: object) -> None:
    # The reader may be dead; then this process ends in order, through stdin and the parent-death signal.
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
        sys.stdout.buffer.flush()


def main(argv: Sequence[str] | None = None) -> None:
    """Run as the supervisor process."""
    parser = argparse.ArgumentParser(prog="python -m gateway.engines.supervisor", description="Owns managed engines.")
    parser.add_argument("--state", type=Path, required=True, help="folder for logs and made models")
    parser.add_argument("--grace", type=float, default=Limits.grace, help="seconds between SIGTERM and SIGKILL")
    options = parser.parse_args(argv)
    bind(os.getppid())
    asyncio.run(_supervise(options.state, Limits(grace=options.grace)))


class Supervisor:
    """The gateway's handle on its supervisor process, which starts with the first wished engine and is replaced when
    it dies.

    An async context manager; leaving it ends all engines. Use it on the main thread: the engines' lives hang on that
    thread. `on_change` is called with every new EngineStatus, on the event loop.
    """

    def __init__(self, state: Path, *, on_change: Callable[[EngineStatus], None] | None = None, grace_s: float = Limits.grace) -> None:
        self._state = state
        self._on_change = on_change
        self._grace = grace_s
        self._wished: dict[str, EngineSpec] = {}
        self._status: dict[str, EngineStatus] = {}
        self._revision = 0
        self._applied = 0
        self._closing = False
        self._changed = asyncio.Event()
        self._process: Process | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._closing = True
        if self._keeper is None:
            return
        if self._process is None or self._process.stdin is None:
            self._keeper.cancel()
        else:
            self._process.stdin.close()
        await asyncio.wait({self._keeper}, timeout=2 * self._grace + 5)
        if self._process is not None:  # it hangs; the kernel tells its engines
            self._process.kill()
        with contextlib.suppress(asyncio.CancelledError):
            await self._keeper

    @property
    def pid(self) -> int | None:
        """The process id of the supervisor process, while there is one."""
        return None if self._process is None else self._process.pid

    def status(self) -> Mapping[str, EngineStatus]:
        """The latest status of every wished engine, by name."""
        return {name: self._status[name] for name in self._wished if name in self._status}

    async def apply(self, engines: Sequence[EngineSpec]) -> None:
        """Make `engines` the complete set. Returns once the supervisor has begun and `status` tells of it."""
        self._wished = {spec.name: spec for spec in engines}
        self._revision += 1
        revision = self._revision
        if self._keeper is None:
            if not engines:
                return
            self._keeper = asyncio.create_task(self._keep())
        else:
            self._send(Wish(engines=list(engines), revision=revision))
        if not await self._until(lambda: self._applied >= revision, 30.0):
            raise EngineError("the supervisor of the engines does not answer")

    def restart(self, name: str) -> None:
        """Start the engine `name` again, also one that had failed. KeyError when it is not managed."""
        if name not in self._wished:
            raise KeyError(name)
        if name in self._status:
            self._note(msgspec.structs.replace(self._status[name], state="starting", pid=None))
        self._send(Wish(restart=name))

    async def wait_ready(self, names: Collection[str], timeout: float) -> None:  # noqa: ASYNC109 - part of the question
        """Until all of `names` are ready. EngineError when one has failed for good, or after `timeout` seconds."""
        if unknown := set(names) - self._wished.keys():
            raise EngineError(f"not managed: {', '.join(sorted(unknown))}")
        found: dict[str, EngineStatus] = {}

        def settled() -> bool:
            found.update((name, status) for name, status in self.status().items() if name in names)
            states = [found[name].state if name in found else "starting" for name in names]
            return "failed" in states or all(state == "ready" for state in states)

        done = await self._until(settled, timeout)
        complaints = [
            f"the engine {name} is {status.state}: {status.detail or 'no reason given'} (log: {status.log})"
            for name, status in found.items()
            if status.state == "failed" or (not done and status.state != "ready")
        ]
        if complaints or not done:
            raise EngineError("; ".join(complaints) or "the supervisor of the engines tells nothing")

    async def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Whether `condition` came true; it is asked again after every change."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    if self._keeper is not None and self._keeper.done():
                        self._keeper.result()  # its error, if that is why nothing changes any more
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _keep(self) -> None:
        try:
            pause = Limits.first_pause
            while True:
                started = time.monotonic()
                why = await self._serve()
                if self._closing:
                    return
                await self._lose(why)
                if time.monotonic() - started >= Limits.healthy:
                    pause = Limits.first_pause
                await asyncio.sleep(pause)
                pause = min(2 * pause, Limits.longest_pause)
        finally:
            self._notify()

    async def _serve(self) -> str:
        """One supervisor process from start to end; why it ended."""
        command = (sys.executable, "-P", "-m", "gateway.engines.supervisor")
        options = ("--state", str(self._state), "--grace", str(self._grace))
        try:
            # A session of its own: Ctrl-C is for the gateway, which drains before it lets the engines go.
            process = await asyncio.create_subprocess_exec(
                *command, *options, stdin=PIPE, stdout=PIPE, limit=_LONGEST_LINE, start_new_session=True
            )
        except OSError as error:
            return f"the supervisor cannot start: {error}"
        self._process = process
        try:
            self._send(Wish(engines=list(self._wished.values()), revision=self._revision))
            assert process.stdout is not None  # asked for above
            while line := await process.stdout.readline():
                self._hear(line)
            return f"the supervisor ended with exit code {await process.wait()}"
        finally:
            self._process = None

    async def _lose(self, why: str) -> None:
        """After the supervisor's death: its engines were told to end; whatever does not is killed."""
        groups = {status.pid for status in self._status.values() if status.pid is not None}
        for status in self.status().values():
            self._note(msgspec.structs.replace(status, state="exited", pid=None, detail=why))
        deadline = time.monotonic() + self._grace
        while groups := {group for group in groups if signal_group(group, 0)}:
            if time.monotonic() >= deadline:
                for group in groups:
                    signal_group(group, signal.SIGKILL)
                return
            await asyncio.sleep(0.1)

    def _send(self, wish: Wish) -> None:
        # Without a process nothing is lost: the next one is told the whole wish.
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(msgspec.json.encode(wish) + b"\n")

    def _hear(self, line: bytes) -> None:
        message = msgspec.json.decode(line)
        if "applied" in message:
            self._applied = message["applied"]
            self._notify()
        else:
            self._note(msgspec.convert(message, EngineStatus))

    def _note(self, status: EngineStatus) -> None:
        self._status[status.engine] = status
        if self._on_change is not None:
            self._on_change(status)
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


if __name__ == "__main__":
    main()
