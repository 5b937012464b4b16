"""Taking up a configuration: at the start, and again on request, signal or change. All or nothing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from gateway.config.changes import at_next_start, late
from gateway.config.files import Stamp
from gateway.config.load import Loaded
from gateway.config.problems import ConfigError
from gateway.engines.packaged import EngineError
from gateway.engines.ports import Ports
from gateway.engines.spec import EngineSpec, EngineStatus, specs
from gateway.pool.backend import Backend
from gateway.pool.discovery.configured import specs as discovered
from gateway.pool.discovery.discovery import Discovery
from gateway.pool.discovery.endpoint import Endpoint
from gateway.serving.life import Gateway
from gateway.serving.state import Found, State, build

log = logging.getLogger("trilemma.config")


class Engines(Protocol):
    """Who owns the managed engines."""

    def status(self) -> Mapping[str, EngineStatus]:
        """Every wished engine's, by name."""
        ...

    async def apply(self, engines: Sequence[EngineSpec]) -> None:
        """Makes these the complete set. Raises EngineError."""
        ...


def state_of(loaded: Loaded, ports: Mapping[str, int], before: State | None = None, found: Found = lambda _: ()) -> State:
    """The state of a loaded configuration. Raises ValueError."""
    return build(loaded.config, loaded.hash, lambda name: f"http://127.0.0.1:{ports[name]}", before, found)


class Reloader:
    """Swaps the gateway's state. A failure keeps the old one and is kept to be seen. took: hears of every configuration that is in use."""

    def __init__(
        self,
        read: Callable[[], Loaded],
        loaded: Loaded,
        gateway: Gateway,
        ports: Ports,
        watched: Callable[[Iterable[Backend]], None],
        engines: Engines,
        group: asyncio.TaskGroup,
        took: Callable[[Loaded], None],
    ) -> None:
        self._read = read
        self._loaded = loaded
        self._gateway = gateway
        self._ports = ports
        self._watched = watched
        self._engines = engines
        self._took = took
        self._discovery = Discovery(group, self._changed)
        self._endpoints: dict[str, Sequence[Endpoint]] = {}
        self._at = time.time()
        self._error: list[str] | None = None
        self.failures = 0
        self._lock = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._then: list[Callable[[], None]] = []

    def request(self, then: Callable[[], None]) -> None:
        """Asks for a reload soon; `then` is called when it has ended, well or not."""
        self._then.append(then)
        self._wanted.set()

    async def run(self) -> None:
        """Reloads whenever that is requested."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            asked, self._then = self._then, []
            try:
                await self.reload()
            except Exception:  # whatever it is, the gateway must not end of it: it shares a task group with this
                log.exception("reloading the configuration failed")
            for then in asked:
                then()

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
            self._take_up(self._built(self._loaded))
            log.info("backend %s has %d replicas", name, len(endpoints))

    def _found(self, name: str) -> Sequence[Endpoint]:
        return self._endpoints.get(name, ())

    async def reload(self) -> bool:
        """Reads, checks, builds and swaps. False when it could not: `status` says why."""
        async with self._lock:
            try:
                loaded = await asyncio.to_thread(self._read)
            except ConfigError as error:
                return self._failed([str(problem) for problem in error.problems])
            try:
                state = self._built(loaded)
            except ValueError as error:
                return self._failed([str(error)])
            for sentence in at_next_start(self._loaded.config, loaded.config):
                log.warning("%s", sentence)
            await self._take(loaded, state)
            return True

    def problems(self, loaded: Loaded) -> list[str]:
        """Why it could not be taken up; nothing is changed."""
        try:
            self._built(loaded)
        except ValueError as error:
            return [str(error)]
        return []

    async def take(self, loaded: Loaded) -> None:
        """Takes up a configuration without `problems`, as `reload` does."""
        async with self._lock:
            await self._take(loaded, self._built(loaded))

    def note(self, problems: Sequence[str], *, counts: bool) -> None:
        """What was wrong with a reload that this process has no other part in. counts: it is one more that failed."""
        self._error = list(problems)
        self.failures += counts

    def _built(self, loaded: Loaded) -> State:
        self._discovery.check(discovered(loaded.config))
        return state_of(loaded, self._ports.of(loaded), self._gateway.state, self._found)

    async def _take(self, loaded: Loaded, state: State) -> None:
        self._discovery.follow(discovered(loaded.config))
        self._take_up(state)
        self._loaded, self._at, self._error = loaded, time.time(), None
        self._took(loaded)
        try:
            await self._engines.apply(specs(loaded.config, self._ports.of(loaded)))
        except EngineError as error:  # the next supervisor process is told of these engines first of all
            self._error = [late(str(error))]
            log.error("%s", self._error[0])  # noqa: TRY400 - its own words say it
        log.info("configuration %s is in use", loaded.hash[:12])

    @property
    def loaded(self) -> Loaded:
        """The configuration in use."""
        return self._loaded

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
        return {name: msgspec.structs.asdict(status) for name, status in self._engines.status().items()}

    def sources(self) -> dict[str, dict[str, Any]]:
        """How the sources of discovered backends do."""
        return {
            name: {"replicas": len(status.endpoints), "last_error": status.last_error, "age_s": status.age_s}
            for name, status in self._discovery.status().items()
        }

    def files(self) -> Mapping[Path, Stamp | None]:
        """The files that the configuration in use was read from."""
        return self._loaded.files

    def watch(self) -> None:
        """The operator has said of backends whether they are to be looked at."""
        self._watched(self._gateway.state.backends.values())

    def _take_up(self, state: State) -> None:
        self._gateway.state = state
        state.take_up()
        self._watched(state.backends.values())

    def _failed(self, problems: list[str]) -> bool:
        self.note(problems, counts=True)
        log.error("the configuration was not taken up: %s", "; ".join(problems))
        return False
