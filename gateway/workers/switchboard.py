"""What one worker says that counts for all: the parent asks the others, and keeps what a worker that starts later has to know."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from gateway.config.changes import at_next_start, late
from gateway.config.files import Stamp
from gateway.config.load import Loaded
from gateway.config.problems import ConfigError
from gateway.engines.packaged import EngineError
from gateway.engines.ports import Ports
from gateway.engines.spec import specs
from gateway.engines.supervisor import Supervisor
from gateway.workers.channel import ChannelError, Gone, Handler
from gateway.workers.child import Child
from gateway.workers.claims import Claims
from gateway.workers.given import Place, given
from gateway.workers.messages import Change, Claim, Given, Kept, Note, Running, Start

log = logging.getLogger("trilemma.workers")

_RELOAD_S: Final = 30.0
_CHANGE_S: Final = 5.0
_RUNNING_S: Final = 1.0
_STATES_S: Final = 2.0
_NOTE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Common:
    """What all workers are told at their start. secret: in place of one that is not configured."""

    state: str
    folder: str
    run: str
    secret: str
    log_level: str | None
    workers: int


class Switchboard:
    """members: the workers that have been told what to do. failed: whether the last reload did."""

    def __init__(self, read: Callable[[], Loaded], loaded: Loaded, common: Common, engines: Supervisor) -> None:
        self._read = read
        self._first = self._loaded = loaded
        self._common = common
        self._engines = engines
        self._ports = Ports()
        self._claims: Claims[Child] = Claims(self._kept)
        self._states: dict[str, str] = {}
        self._changes = 0
        # A reload sees all workers that there are, and one that starts sees the configuration before it or after it.
        self._lock = asyncio.Lock()
        self.members: list[Child] = []
        self.failed = False

    def handlers(self, child: Child) -> Mapping[str, Handler]:
        """What a worker may ask that counts for all."""

        def by(handler: Callable[[Child, Any], Awaitable[Any]]) -> Handler:
            return lambda body: handler(child, body)

        return {
            "start": by(self._start),
            "reload": by(self._reload),
            "change": by(self._change),
            "running": by(self._running),
            "claim": by(self._claim),
        }

    def leave(self, child: Child) -> None:
        """It has ended."""
        if child in self.members:
            self.members.remove(child)
        self._claims.leave(child)

    def files(self) -> Mapping[Any, Stamp | None]:
        """The files that the configuration in use was read from."""
        return self._loaded.files

    def tell_engines(self) -> None:
        """Managed engines have changed."""
        status = dict(self._engines.status())
        for child in self.members:
            child.tell("engines", status)

    async def apply(self) -> None:
        """Starts the engines of the configuration. Raises EngineError."""
        await self._engines.apply(specs(self._loaded.config, self._ports.of(self._loaded)))

    async def reload(self) -> list[str]:
        """All workers take up the file as it is now, or none does: what is wrong then."""
        async with self._lock:
            try:
                loaded = await asyncio.to_thread(self._read)
            except ConfigError as error:
                return await self._refused([str(problem) for problem in error.problems])
            if problems := await self._problems(loaded):
                return await self._refused(problems)
            for sentence in at_next_start(self._loaded.config, loaded.config):
                log.warning("%s", sentence)
            await self._take(loaded)
            return []

    # -- a reload

    async def _problems(self, loaded: Loaded) -> list[str]:
        """Why any worker could not take it up."""
        asked = list(self.members)
        answers = await self._ask(asked, "try", [self._given(loaded, child) for child in asked], _RELOAD_S)
        found = {child.number: _said(answer) for child, answer in zip(asked, answers, strict=True) if not isinstance(answer, Gone)}
        if len({*map(tuple, found.values())}) <= 1:
            return next(iter(found.values()), [])
        return [f"worker {number}: {problem}" for number, problems in found.items() for problem in problems]

    async def _take(self, loaded: Loaded) -> None:
        self._loaded, self.failed = loaded, False
        asked = list(self.members)
        answers = await self._ask(asked, "take", [self._given(loaded, child) for child in asked], _RELOAD_S)
        for child, answer in zip(asked, answers, strict=True):
            if isinstance(answer, Exception) and not isinstance(answer, Gone):
                log.error("worker %d does not take up the configuration, and is started again", child.number)
                child.send(signal.SIGKILL)
        try:
            await self.apply()
        except EngineError as error:  # the next supervisor process is told of these engines first of all
            self.failed = True
            log.error("%s", late(str(error)))  # noqa: TRY400 - its own words say it
            await self._note([late(str(error))], failed=False)

    async def _refused(self, problems: list[str]) -> list[str]:
        self.failed = True
        log.error("the configuration was not taken up: %s", "; ".join(problems))
        await self._note(problems, failed=True)
        return problems

    async def _note(self, problems: list[str], *, failed: bool) -> None:
        asked = list(self.members)
        await self._ask(asked, "note", [Note(problems, counts=failed and child is asked[0]) for child in asked], _NOTE_S)

    def _given(self, loaded: Loaded, child: Child) -> Given:
        place = Place(self._first.config, self._common.secret, self._ports.of(loaded), child.number, self._common.workers)
        return given(loaded, place)

    # -- what workers ask

    async def _start(self, child: Child, _body: Any) -> Start:
        async with self._lock:
            self.members.append(child)  # before anything is waited for: what is said meanwhile it hears itself
            await self._learn_states(child)
            return Start(
                given=self._given(self._loaded, child),
                state=self._common.state,
                folder=self._common.folder,
                run=self._common.run,
                log_level=self._common.log_level,
                states=self._states,
                engines=dict(self._engines.status()),
            )

    async def _learn_states(self, child: Child) -> None:
        """Of another worker: a replica that went away and came back is serving again, and only those who saw it know."""
        changes = self._changes
        for other in self._others(child):
            (answer,) = await self._ask([other], "states", [None], _STATES_S)
            if not isinstance(answer, Exception):
                if changes == self._changes:
                    self._states = msgspec.convert(answer, dict[str, str])
                return

    async def _reload(self, _child: Child, _body: Any) -> list[str]:
        return await self.reload()

    async def _change(self, child: Child, body: Any) -> list[int]:
        change = msgspec.convert(body, Change)
        self._changes += 1
        if change.state == "serving":
            self._states.pop(change.backend, None)
        elif change.state is not None:
            self._states[change.backend] = change.state
        others = self._others(child)
        answers = await self._ask(others, "change", [change] * len(others), _CHANGE_S)
        return _unheard(others, answers)

    async def _running(self, child: Child, _body: Any) -> Running:
        others = self._others(child)
        answers = await self._ask(others, "running", [None] * len(others), _RUNNING_S)
        calls: dict[str, int] = {}
        for answer in answers:
            if not isinstance(answer, Exception):
                for name, count in msgspec.convert(answer, dict[str, int]).items():
                    calls[name] = calls.get(name, 0) + count
        return Running(calls, _unheard(others, answers))

    async def _claim(self, child: Child, body: Any) -> Kept | None:
        return await self._claims.claim(child, msgspec.convert(body, Claim))

    async def _kept(self, owner: Child, claim: Claim) -> Kept | None:
        (answer,) = await self._ask([owner], "kept", [claim], None)
        return None if answer is None or isinstance(answer, Exception) else msgspec.convert(answer, Kept)

    # --

    def _others(self, child: Child) -> list[Child]:
        return [each for each in self.members if each is not child]

    async def _ask(self, children: Iterable[Child], name: str, bodies: Sequence[Any], within_s: float | None) -> list[Any]:
        """Their answers, or why there is none, in order."""
        return await asyncio.gather(*(_answer(child, name, body, within_s) for child, body in zip(children, bodies, strict=True)))


async def _answer(child: Child, name: str, body: Any, within_s: float | None) -> Any:
    try:
        return await child.ask(name, body, within_s=within_s)
    except (ChannelError, TimeoutError) as error:
        return error


def _said(answer: Any) -> list[str]:
    if isinstance(answer, Exception):
        return ["it does not answer" if isinstance(answer, TimeoutError) else "it fails, see its log"]
    return msgspec.convert(answer, list[str])


def _unheard(children: Sequence[Child], answers: Sequence[Any]) -> list[int]:
    """One that has ended is not among them: it runs nothing, and whoever takes its place is told at its start."""
    failed = ((child, answer) for child, answer in zip(children, answers, strict=True) if isinstance(answer, Exception))
    return [child.number for child, answer in failed if not isinstance(answer, Gone)]
