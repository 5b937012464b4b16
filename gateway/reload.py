"""Taking up a configuration: at the start, and again on request, signal or change. All or nothing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gateway.config.files import Stamp
from gateway.config.load import Loaded
from gateway.config.problems import ConfigError
from gateway.engines.packaged import EngineError
from gateway.engines.spec import free_port, specs
from gateway.engines.supervisor import Supervisor
from gateway.pool.backend import Backend
from gateway.pool.discovery.configured import specs as discovered
from gateway.pool.discovery.discovery import Discovery
from gateway.pool.discovery.endpoint import Endpoint
from gateway.serving.life import Gateway
from gateway.serving.state import Found, State, build

log = logging.getLogger("trilemma.config")


class Ports:
    """Where managed engines listen: a port, once chosen for a name, stays."""

    def __init__(self) -> None:
        self._chosen: dict[str, int] = {}

    def of(self, loaded: Loaded) -> Mapping[str, int]:
        """Name -> port of every managed backend."""
        for name, backend in loaded.config.backends.items():
            if backend.launch is not None:
                self._chosen[name] = backend.port or self._chosen.get(name) or self._free()
        return dict(self._chosen)

    def _free(self) -> int:
        while (port := free_port()) in self._chosen.values():
            pass
        return port


def state_of(loaded: Loaded, ports: Mapping[str, int], before: State | None = None, found: Found = lambda _: ()) -> State:
    """The state of a loaded configuration. Raises ValueError."""
    return build(loaded.config, loaded.hash, lambda name: f"http://127.0.0.1:{ports[name]}", before, found)


class Reloader:
    """Swaps the gateway's state. A failure keeps the old one and is kept to be seen."""

    def __init__(
        self,
        read: Callable[[], Loaded],
        loaded: Loaded,
        gateway: Gateway,
        ports: Ports,
        watched: Callable[[Iterable[Backend]], None],
        supervisor: Supervisor,
        group: asyncio.TaskGroup,
    ) -> None:
        self._read = read
        self._loaded = loaded
        self._gateway = gateway
        self._ports = ports
        self._watched = watched
        self._supervisor = supervisor
        self._discovery = Discovery(group, self._changed)
        self._endpoints: dict[str, Sequence[Endpoint]] = {}
        self._at = time.time()
        self._error: list[str] | None = None
        self._lock = asyncio.Lock()
        self.wanted = asyncio.Event()

    async def run(self) -> None:
        """Reloads whenever `wanted` is set."""
        while True:
            await self.wanted.wait()
            self.wanted.clear()
            try:
                await self.reload()
            except Exception:  # whatever it is, the gateway must not end of it: it shares a task group with this
                log.exception("reloading the configuration failed")

    async def discover(self, within_s: float) -> None:
        """Begins to follow what the configuration says, and waits until every source has spoken, or so long."""
        self._discovery.follow(discovered(self._loaded.config))
        await self._discovery.heard(within_s)

    def stop(self) -> None:
        """Ends all following."""
        self._discovery.stop()

    async def _changed(self, name: str, endpoints: Sequence[Endpoint]) -> None:
        """A source found other replicas: they are taken up as by a reload."""
        async with self._lock:
            self._endpoints[name] = endpoints
            state = state_of(self._loaded, self._ports.of(self._loaded), self._gateway.state, self._found)
            self._gateway.state = state
            self._watched(state.backends.values())
            log.info("backend %s has %d replicas", name, len(endpoints))

    def _found(self, name: str) -> Sequence[Endpoint]:
        return self._endpoints.get(name, ())

    async def reload(self) -> bool:
        """Reads, checks, builds and swaps. False when it could not: `status` says why."""
        async with self._lock:
            try:
                loaded = await asyncio.to_thread(self._read)
                ports = self._ports.of(loaded)
                state = state_of(loaded, ports, self._gateway.state, self._found)
                self._discovery.follow(discovered(loaded.config))
                if loaded.config.server != self._loaded.config.server:
                    log.warning(
                        "changes under `server`, but for `max_body_bytes`, `max_n` and `heartbeat_s`, take effect at the next start"
                    )
                if loaded.config.storage != self._loaded.config.storage:
                    log.warning("changes under `storage` take effect at the next start")
            except ConfigError as error:
                return self._failed([str(problem) for problem in error.problems])
            except ValueError as error:
                return self._failed([str(error)])
            self._gateway.state = state
            self._loaded, self._at, self._error = loaded, time.time(), None
            self._watched(state.backends.values())
            try:
                await self._supervisor.apply(specs(loaded.config, ports))
            except EngineError as error:  # the next supervisor process is told of these engines first of all
                self._error = [f"the configuration is in use, but its engines are late: {error}"]
                log.error("%s", self._error[0])  # noqa: TRY400 - its own words say it
            log.info("configuration %s is in use", loaded.hash[:12])
            return True

    def status(self) -> dict[str, Any]:
        """What runs, and what the last failed reload said."""
        return {
            "object": "config",
            "source": self._loaded.source,
            "hash": self._loaded.hash,
            "loaded_at": self._at,
            "last_error": self._error,
        }

    def engines(self) -> dict[str, dict[str, Any]]:
        """Managed engines as their supervisor sees them."""
        return {name: msgspec.structs.asdict(status) for name, status in self._supervisor.status().items()}

    def sources(self) -> dict[str, dict[str, Any]]:
        """How the sources of discovered backends do."""
        return {
            name: {"replicas": len(status.endpoints), "last_error": status.last_error, "age_s": status.age_s}
            for name, status in self._discovery.status().items()
        }

    def files(self) -> Mapping[Path, Stamp | None]:
        """The files that the configuration in use was read from."""
        return self._loaded.files

    def _failed(self, problems: list[str]) -> bool:
        self._error = problems
        log.error("the configuration was not taken up: %s", "; ".join(problems))
        return False
