"""The life of one managed engine inside the supervisor process: start, wait until it answers, watch, start again, stop.

An engine is a process group of its own, tied to this process by `guard`, with all its output in one file. After a
crash it is started again, at first after half a second, then twice as long each time up to half a minute, until it
has been well for a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import shutil
import signal
import socket
import time
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gateway.engines import llama_server, vllm_server
from gateway.engines.guard import guarded
from gateway.engines.spec import EngineSpec, EngineStatus, Kind, State

_HOPELESS = frozenset({llama_server.EX_CONFIG, 126, 127})
_PRIVATE = "TRILEMMA_"
_HEALTH = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True)
class Limits:
    """Seconds, except `log_bytes`."""

    start: Mapping[Kind, float] = field(default_factory=lambda: {"llama-server": 300.0, "vllm": 1_800.0, "command": 300.0})
    grace: float = 10.0
    first_pause: float = 0.5
    longest_pause: float = 30.0
    healthy: float = 60.0
    port: float = 10.0
    log_check: float = 30.0
    log_bytes: int = 32 * 2**20


class ManagedEngine:
    """Keeps one engine running as its spec says; `announce` is told of every change of its status."""

    def __init__(self, spec: EngineSpec, state: Path, announce: Callable[[EngineStatus], None], limits: Limits | None = None) -> None:
        self.spec = spec
        self.log = log_path(spec.name, state)
        self._state = state
        self._announce = announce
        self._limits = limits or Limits()
        self.status = EngineStatus(engine=spec.name, state="starting", port=spec.port, log=str(self.log))
        self._ready_at: float | None = None

    async def run(self, after: Collection[asyncio.Task[None]] = ()) -> None:
        """Until cancelled; then the engine's whole process group is ended first. Starts after the tasks `after`."""
        try:
            if after:
                await asyncio.wait(after)
            _rotate(self.log)
            pause = self._limits.first_pause
            while True:
                code, why = await self._live()
                if code in _HOPELESS:
                    self._say("failed", pid=None, exit_code=code, detail=why)
                    await asyncio.get_running_loop().create_future()  # only a change helps, and that cancels this
                if self._ready_at is not None and time.monotonic() - self._ready_at >= self._limits.healthy:
                    pause = self._limits.first_pause
                self._say("exited", pid=None, exit_code=code, detail=why)
                await asyncio.sleep(pause)
                pause = min(2 * pause, self._limits.longest_pause)
                self._say("starting", restarts=self.status.restarts + 1)
        finally:
            self._say("stopped", pid=None)

    async def _live(self) -> tuple[int | None, str]:
        """One process of the engine, from its start to its end: exit code (None: it never started) and the reason."""
        self._ready_at = None
        if not await self._port_is_free():
            return None, f"port {self.spec.port} is taken by another program"
        command, environment = launch(self.spec, self._state, os.environ)
        try:
            with self.log.open("ab") as output:
                process = await asyncio.create_subprocess_exec(
                    *guarded(command),
                    stdin=DEVNULL,
                    stdout=output,
                    stderr=STDOUT,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:  # no process, no file, no space: may pass
            return None, str(error)
        try:
            self._say("starting", pid=process.pid, detail="")
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(self._watch())
                leader = group.create_task(process.wait())
                await asyncio.wait({watch, leader}, return_when=asyncio.FIRST_COMPLETED)
                late = not leader.done()
                if late:
                    await end(process, self._limits.grace)
                watch.cancel()
        finally:
            await end(process, self._limits.grace)
        return process.returncode, self._why(process.returncode, late)

    async def _watch(self) -> None:
        """Announces readiness, then keeps the log bounded. Returns only when the engine is not ready in time."""
        try:
            async with asyncio.timeout(self._limits.start[self.spec.kind]):
                pause = 0.05
                while not await healthy(self.spec.port):
                    await asyncio.sleep(pause)
                    pause = min(1.2 * pause, 0.2)
        except TimeoutError:
            return
        self._ready_at = time.monotonic()
        self._say("ready")
        while True:
            await asyncio.sleep(self._limits.log_check)
            await asyncio.to_thread(_bound, self.log, self._limits.log_bytes)

    async def _port_is_free(self) -> bool:
        """Waits a little for what an engine before this one left behind."""
        deadline = time.monotonic() + self._limits.port
        while _taken(self.spec.port):
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(0.1)
        return True

    def _why(self, code: int | None, late: bool) -> str:
        if late:
            return f"not ready within {self._limits.start[self.spec.kind]:g} s"
        if code is not None and code < 0:
            return f"ended by signal {-code} ({signal.strsignal(-code)})"
        return _last_line(self.log)

    def _say(self, state: State, **changes: object) -> None:
        self.status = msgspec.structs.replace(self.status, state=state, **changes)
        self._announce(self.status)


def launch(spec: EngineSpec, state: Path, inherited: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Command line and environment of an engine; the gateway's own secrets are not handed on."""
    clean = {name: value for name, value in inherited.items() if not name.startswith(_PRIVATE)}
    match spec.kind:
        case "llama-server":
            return llama_server.command(spec, state), {**llama_server.OPENMP, **clean, **spec.env}
        case "vllm":
            cpu = vllm_server.is_cpu_build(spec.python)
            return vllm_server.command(spec), vllm_server.environment(spec, clean, cpu=cpu)
        case "command":
            return list(spec.args), {**clean, **spec.env}


async def healthy(port: int) -> bool:
    """Whether GET /health on 127.0.0.1:`port` answers 200 within five seconds."""
    try:
        async with asyncio.timeout(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(_HEALTH)
                line = await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError, ValueError):  # ValueError: a first line beyond all bounds
        return False
    return line.split()[1:2] == [b"200"]


async def end(process: Process, grace: float) -> None:
    """End the process group of `process`: SIGTERM, after `grace` seconds SIGKILL, also for what outlived its leader."""
    if process.returncode is None:
        signal_group(process.pid, signal.SIGTERM)
        await asyncio.wait({asyncio.ensure_future(process.wait())}, timeout=grace)
    signal_group(process.pid, signal.SIGKILL)
    await process.wait()


def log_path(name: str, state: Path) -> Path:
    """The file for the output of the engine `name`; names that differ get files that differ."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:100]
    if plain != name:
        plain += "-" + hashlib.sha256(name.encode()).hexdigest()[:8]
    return state / "logs" / f"{plain}.log"


def signal_group(group: int, number: int) -> bool:
    """Signal a process group (0: only ask); False when all of it is gone."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


def _taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a connection in TIME_WAIT does not count
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def _older(log: Path) -> Path:
    return log.with_name(f"{log.name}.1")


def _rotate(log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists():
        log.replace(_older(log))


def _bound(log: Path, size: int) -> None:
    # The engine appends to the open file, so after the cut it goes on at the new end. Somebody may have removed it.
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > size:
            shutil.copyfile(log, _older(log))
            os.truncate(log, 0)


def _last_line(log: Path) -> str:
    """The last line of text in `log`, at most 300 characters; nothing where the file was removed."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4_096))
            lines = file.read().decode(errors="replace").split("\n")
    except FileNotFoundError:
        return ""
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")
