"""The backends of a run: mock engines as processes, told over their control endpoints how to misbehave."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from gateway.bench.servers import free_port
from gateway.load.asking import call, in_one_breath, until_answers
from gateway.load.processes import Process
from gateway.load.scenario import Group
from gateway.mock.behaviour import Behaviour
from gateway.pool.transport import Transport, TransportError

# Longer than any trace's prompt and answer together.
_CONTEXT: Final = "10000000"
_GAUGES: Final = "/mock/requests"


class Gauges(msgspec.Struct, frozen=True):
    """What a mock counts: requests in flight, received and left by their client, and open connections. Health probes count, too, but for
    `calls`: requests received that want an answer of the model.
    """

    connections: int = 0
    in_flight: int = 0
    total: int = 0
    calls: int = 0
    aborted: int = 0


class BackendProcess:
    """One backend. `seen`: its gauges as last read, totals since the run began; None while they cannot be read."""

    def __init__(
        self, name: str, group: Group, program: Path | None, folder: Path, cpus: frozenset[int] | None, transport: Transport
    ) -> None:
        self.name = name
        self.group = group
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.seen: Gauges | None = Gauges()
        self.process = Process(name, _command(group, self.port, program), folder / f"{name}.log", cpus)
        self._transport = transport
        self._before = Gauges()
        self._scripts: list[Behaviour] = []

    @property
    def engine_model(self) -> str:
        """The model's name as the backend knows it."""
        if self.group.kind == "mock":
            return self.group.model
        return "mock-slow" if self.group.tokens_per_second else "mock"

    async def start(self) -> None:
        """Starts it, unless it runs, and waits until it answers; what it was told to do holds again. Raises ScenarioError."""
        self.process.start()
        await until_answers(self._transport, f"{self.url}/health", self.process)
        if self._scripts or self.group.behaviour is not None:
            await self._tell()

    async def kill(self) -> None:
        """SIGKILL. What it counted so far is kept."""
        self._before = await self.read() or self._before
        self.process.kill()
        self.seen = None

    def freeze(self) -> None:
        """SIGSTOP."""
        self.process.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self.process.signal(signal.SIGCONT)

    async def misbehave(self, script: Behaviour) -> None:
        """Answers as the script says; the script given last holds."""
        self._scripts.append(script)
        await self._tell()

    async def behave(self, script: Behaviour) -> None:
        """Forgets that script."""
        self._scripts.remove(script)
        await self._tell()

    async def read(self) -> Gauges | None:
        """Its gauges now; None when it cannot say. The C mock counts nothing."""
        if self.group.kind == "c":
            return None
        try:
            status, body = await call(self._transport, "GET", f"{self.url}{_GAUGES}")
        except (TransportError, TimeoutError):
            self.seen = None
            return None
        self.seen = self._since_ever(body) if status == 200 else None
        return self.seen

    async def count_from_now(self) -> None:
        """Forgets what it has counted."""
        seen = await self.read() or Gauges()
        before = self._before
        self._before = Gauges(total=before.total - seen.total, calls=before.calls - seen.calls, aborted=before.aborted - seen.aborted)

    async def metrics(self) -> str:
        """Its /metrics; "" when it cannot say."""
        try:
            status, body = await call(self._transport, "GET", f"{self.url}/metrics")
        except (TransportError, TimeoutError):
            return ""
        return body.decode() if status == 200 else ""

    def _since_ever(self, gauges: bytes) -> Gauges:
        now, before = msgspec.json.decode(gauges, type=Gauges), self._before
        return Gauges(
            connections=now.connections - 1,  # the one that asks
            in_flight=now.in_flight,
            total=before.total + now.total,
            calls=before.calls + now.calls,
            aborted=before.aborted + now.aborted,
        )

    async def _tell(self) -> None:
        """Replaces what the mock was told. One that is dead is told when it starts again."""
        behaviour = self._scripts[-1] if self._scripts else self.group.behaviour
        script = [] if behaviour is None else [msgspec.structs.replace(behaviour, times=0)]
        requests = [("GET", _GAUGES, b""), ("POST", "/mock/reset", b""), ("POST", "/mock/script", msgspec.json.encode(script))]
        try:
            gauges, *_ = await in_one_breath(self.port, requests)
        except (OSError, TimeoutError, ValueError):
            self.seen = None
            return
        seen = self._since_ever(gauges)
        # A reset forgets the totals, and counts again what is in flight.
        self._before = Gauges(total=seen.total - seen.in_flight, calls=seen.calls, aborted=seen.aborted)


def _command(group: Group, port: int, program: Path | None) -> Sequence[str]:
    if group.kind == "c":
        return [str(program), str(port)]
    # The requests are counted, not remembered: their prompts would fill the memory.
    options = ["--port", str(port), "--model", group.model, "--max-model-len", _CONTEXT, "--keep", "0"]
    options += ["--tokens-per-second", str(group.tokens_per_second), "--first-token-delay", str(group.first_token_s)]
    options += ["--prefill-tokens-per-second", str(group.prefill_tokens_per_second), "--kv-tokens", str(group.kv_tokens)]
    return [sys.executable, "-m", "gateway", "mock-backend", *options]
