"""A worker's part in the talk with its parent: what it asks for, and what it does when it is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from gateway.config.load import Loaded
from gateway.engines.spec import EngineSpec, EngineStatus
from gateway.reload import Reloader
from gateway.serving.call import Answer
from gateway.serving.idempotency import conflict
from gateway.serving.life import Gateway
from gateway.wire.errors import ApiError
from gateway.workers.channel import Channel, ChannelError, Handler
from gateway.workers.crew import calls, effect
from gateway.workers.given import received
from gateway.workers.messages import Change, Claim, Given, Kept, Note, Running, Start, Status

log = logging.getLogger("trilemma.workers")

_START_S: Final = 60.0
# The parent asks all workers, and gives up before.
_RELOAD_S: Final = 180.0
_CHANGE_S: Final = 10.0
_RUNNING_S: Final = 5.0
_CLOSING_S: Final = 1.0


class Member:
    """One of several workers; to its application the crew, and who owns the engines.

    learn: is told each configuration before anything else does something with it. now: the grace is over.
    """

    def __init__(self, learn: Callable[[Loaded], None], now: Callable[[], None]) -> None:
        self._learn = learn
        self._now = now
        self._channel: Channel | None = None
        self._joined = asyncio.Event()
        self._gateway: Gateway | None = None
        self._reloader: Reloader | None = None
        self._states: Mapping[str, str] = {}
        self._engines: Mapping[str, EngineStatus] = {}

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """What the parent may ask."""
        return {
            "try": self._try,
            "take": self._take,
            "note": self._note,
            "engines": self._hear_engines,
            "change": self._change,
            "running": self._own_calls,
            "states": self._own_states,
            "kept": self._kept,
            "now": self._over,
        }

    async def start(self, channel: Channel) -> Start:
        """What this worker is to do. Raises ChannelError, TimeoutError."""
        self._channel = channel
        start = msgspec.convert(await channel.ask("start", within_s=_START_S), Start)
        self._states, self._engines = start.states, start.engines
        return start

    def received(self, given: Given) -> Loaded:
        """A configuration that was handed over."""
        loaded = received(given)
        self._learn(loaded)
        return loaded

    def join(self, gateway: Gateway, reloader: Reloader) -> Member:
        """The application is complete: backends that an operator took out of use are so here as well."""
        for name, state in self._states.items():
            effect(Change(name, state, accept=False), gateway, reloader)
        self._gateway, self._reloader = gateway, reloader
        self._joined.set()
        return self

    # -- to the parent

    def listens(self) -> None:
        """This worker accepts connections."""
        self._said_by().tell("listening")

    def report(self, running: int) -> None:
        """How it is. running: requests that have not ended."""
        waiting = [] if self._gateway is None else self._gateway.state.unanswered()
        self._said_by().tell("status", Status(waiting, running))

    async def closing(self) -> None:
        """It will not listen any longer; whoever connects from now on is for the others."""
        try:
            await self._said_by().ask("closing", within_s=_CLOSING_S)
        except (ChannelError, TimeoutError) as error:
            log.debug("the parent does not hear of the end: %r", error)

    async def claim(self, caller: str, key: bytes, digest: bytes) -> Answer | None:
        """See Claiming. Without its parent, a worker goes by what it knows itself."""
        try:
            found = await self._said_by().ask("claim", Claim(caller, key, digest))
        except ChannelError:
            return None
        if found is None:
            return None
        kept = msgspec.convert(found, Kept)
        if kept.conflict:
            raise conflict()
        return Answer(kept.status, list(kept.headers), kept.body)

    # -- crew

    async def reload(self) -> Sequence[str]:
        """See Crew."""
        try:
            return msgspec.convert(await self._said_by().ask("reload", within_s=_RELOAD_S), list[str])
        except (ChannelError, TimeoutError):
            return ["the parent process of the workers does not answer"]

    async def change(self, change: Change) -> Sequence[int]:
        """See Crew. Without its parent, it takes effect here alone."""
        effect(change, *await self._both())
        try:
            return msgspec.convert(await self._said_by().ask("change", change, within_s=_CHANGE_S), list[int])
        except (ChannelError, TimeoutError):
            return [0]

    async def running(self) -> Running:
        """See Crew."""
        try:
            others = msgspec.convert(await self._said_by().ask("running", within_s=_RUNNING_S), Running)
        except (ChannelError, TimeoutError):
            others = Running({}, [0])
        gateway, _ = await self._both()
        return Running(added(calls(gateway), others.calls), others.unheard)

    # -- engines

    def status(self) -> Mapping[str, EngineStatus]:
        """See Engines: as the parent last told."""
        return self._engines

    async def apply(self, engines: Sequence[EngineSpec]) -> None:
        """See Engines: they are the parent's."""

    # -- from the parent

    async def _try(self, body: Any) -> list[str]:
        _, reloader = await self._both()
        return reloader.problems(self.received(msgspec.convert(body, Given)))

    async def _take(self, body: Any) -> None:
        _, reloader = await self._both()
        await reloader.take(self.received(msgspec.convert(body, Given)))

    async def _note(self, body: Any) -> None:
        note = msgspec.convert(body, Note)
        _, reloader = await self._both()
        reloader.note(note.problems, counts=note.counts)

    async def _hear_engines(self, body: Any) -> None:
        self._engines = msgspec.convert(body, dict[str, EngineStatus])

    async def _change(self, body: Any) -> None:
        effect(msgspec.convert(body, Change), *await self._both())

    async def _own_calls(self, _body: Any) -> dict[str, int]:
        return {} if self._gateway is None else calls(self._gateway)

    async def _own_states(self, _body: Any) -> dict[str, str]:
        if self._gateway is None:
            return dict(self._states)
        backends = self._gateway.state.backends.items()
        return {name: "disabled" if each.disabled else "draining" for name, each in backends if each.disabled or each.draining}

    async def _kept(self, body: Any) -> Kept | None:
        claim = msgspec.convert(body, Claim)
        if self._gateway is None:
            return None
        try:
            answer = await self._gateway.idempotency.kept(claim.caller, claim.key, claim.digest)
        except ApiError:
            return Kept(conflict=True)
        return None if answer is None else Kept(answer.status, list(answer.headers), answer.body)

    async def _over(self, _body: Any) -> None:
        self._now()

    # --

    async def _both(self) -> tuple[Gateway, Reloader]:
        await self._joined.wait()
        assert self._gateway is not None and self._reloader is not None, "it has joined"
        return self._gateway, self._reloader

    def _said_by(self) -> Channel:
        assert self._channel is not None, "it has started"
        return self._channel


def added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """The sums, name by name."""
    return {name: one.get(name, 0) + other.get(name, 0) for name in one.keys() | other.keys()}
