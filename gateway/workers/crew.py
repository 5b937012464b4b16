"""The workers of one gateway as one of them sees them: what is said to one counts for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.reload import Engines, Reloader
from gateway.serving.idempotency import Claiming
from gateway.serving.life import Gateway
from gateway.store.urls import Location
from gateway.workers.messages import Change, Running


class Crew(Protocol):
    """All workers, this one included."""

    async def reload(self) -> Sequence[str]:
        """All take up the configuration file as it is now, or none does: what is wrong with it then."""
        ...

    async def change(self, change: Change) -> Sequence[int]:
        """Takes effect in all; the numbers of workers that did not say so in time."""
        ...

    async def running(self) -> Running:
        """The calls of all."""
        ...


@dataclass(frozen=True, slots=True)
class Shared:
    """What an application has in common with those of the other workers. location: where limits are counted when there is no database.
    engines: run elsewhere. join: is called once the application is complete."""

    location: Location
    engines: Engines
    claim: Claiming
    join: Callable[[Gateway, Reloader], Crew]


class Alone:
    """There is one process."""

    def __init__(self, gateway: Gateway, reloader: Reloader) -> None:
        self._gateway = gateway
        self._reloader = reloader

    async def reload(self) -> Sequence[str]:
        """See Crew."""
        return [] if await self._reloader.reload() else self._reloader.status()["last_error"]

    async def change(self, change: Change) -> Sequence[int]:
        """See Crew."""
        effect(change, self._gateway, self._reloader)
        return ()

    async def running(self) -> Running:
        """See Crew."""
        return Running(calls(self._gateway), [])


def effect(change: Change, gateway: Gateway, reloader: Reloader) -> None:
    """Does in this process what an operator asked for; a backend that is not there is none to be changed."""
    backend = gateway.state.backends.get(change.backend)
    if backend is None:
        return
    if change.state is not None:
        backend.draining, backend.disabled = change.state == "draining", change.state == "disabled"
        reloader.watch()
    if change.accept:
        backend.accept()


def calls(gateway: Gateway) -> dict[str, int]:
    """This process's, by backend."""
    return {name: backend.running for name, backend in gateway.state.backends.items()}
