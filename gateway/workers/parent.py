"""The process that owns the port, the engines and the workers, and serves nobody itself.

    SIGTERM, SIGINT    all workers end in good order; the same again: at once
    SIGHUP             all workers take up the configuration file

A worker that ends unasked is started again; its socket, with those who wait there, is the next one's.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from gateway.config.load import Loaded
from gateway.config.schema import Server as Settings
from gateway.config.watch import watch
from gateway.engines.packaged import EngineError
from gateway.engines.supervisor import Supervisor
from gateway.sd_notify import Manager
from gateway.store.sqlite import SqliteFile
from gateway.store.urls import SqliteUrl, located
from gateway.store.writer import StoreError
from gateway.workers.channel import Handler
from gateway.workers.child import COMMAND, Child
from gateway.workers.folder import LIMITS, shared
from gateway.workers.messages import Status
from gateway.workers.process import raise_open_files
from gateway.workers.restarts import Restarts
from gateway.workers.status import line
from gateway.workers.switchboard import Common, Switchboard

log = logging.getLogger("trilemma.workers")

_LONGER_S: Final = 15.0
_LOOK_S: Final = 0.2


def run(
    read: Callable[[], Loaded],
    loaded: Loaded,
    settings: Settings,
    state: Path,
    socks: Sequence[socket.socket],
    log_level: str | None,
    when_ready: Callable[[], None],
) -> int:
    """Serves by a worker for each of the sockets, until a signal. 0: ended by it; 1: what starts first could not start, or workers ended
    again and again."""
    raise_open_files()
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(shared(state))
        except OSError as error:
            log.error("%s cannot hold what the workers share: %s", state, error.strerror)  # noqa: TRY400 - its own words say it
            return 1
        common = Common(
            state=str(state.absolute()),
            folder=str(folder),
            run=secrets.token_hex(8),
            secret=secrets.token_hex(32),
            log_level=log_level,
            workers=len(socks),
        )
        return asyncio.run(_serve(read, loaded, settings, socks, common, when_ready))


async def _serve(
    read: Callable[[], Loaded],
    loaded: Loaded,
    settings: Settings,
    socks: Sequence[socket.socket],
    common: Common,
    when_ready: Callable[[], None],
) -> int:
    async with Supervisor(Path(common.state), on_change=lambda _: switchboard.tell_engines()) as engines:
        switchboard = Switchboard(read, loaded, common, engines)
        try:
            await switchboard.apply()
        except EngineError as error:
            log.error("%s", error)  # noqa: TRY400 - its own words say it
            return 1
        file = database_file(loaded.config.storage.url, Path(common.folder))
        made = asyncio.create_task(asyncio.to_thread(make, file)) if file is not None else None
        parent = Parent(switchboard, socks, settings.grace_s, Manager.of(os.environ), when_ready)
        try:
            return await parent.run(watched=settings.watch)
        finally:
            if made is not None:
                await made


def database_file(url: str, folder: Path) -> Path | None:
    """The SQLite file that all workers write to: the database, or where limits are counted if there is none. None: it is no file."""
    location = located(url)
    if location is None:
        return folder / LIMITS
    return location.file if isinstance(location, SqliteUrl) else None


def make(file: Path) -> None:
    """Makes the file, or brings it up, before each of the workers would do so."""
    sink = SqliteFile(file)
    try:
        sink.ready()
    except StoreError as error:
        log.warning("%s cannot be made ready: %s", file, error)
    finally:
        sink.close()


@dataclass(slots=True, eq=False)
class _Post:
    """A worker's place: which number it has, and where it listens. sock: None once nobody is to listen there any more."""

    number: int
    sock: socket.socket | None
    restarts: Restarts
    child: Child | None = None

    def close(self) -> None:
        """New connections are for the others."""
        if self.sock is not None:
            self.sock.close()
            self.sock = None


class Parent:
    """socks: one for each worker. grace_s: how long a shutdown waits for requests. when_ready: is told once every model has a backend that
    answered all workers. longer_s: after the grace, how long a worker may take for last words, rows and all else."""

    def __init__(
        self,
        switchboard: Switchboard,
        socks: Sequence[socket.socket],
        grace_s: float,
        manager: Manager,
        when_ready: Callable[[], None],
        command: Sequence[str] = COMMAND,
        restarts: Callable[[], Restarts] = Restarts,
        longer_s: float = _LONGER_S,
    ) -> None:
        self._switchboard = switchboard
        self._posts = [_Post(number, sock, restarts()) for number, sock in enumerate(socks, 1)]
        self._grace_s = grace_s
        self._manager = manager
        self._when_ready = when_ready
        self._command = command
        self._longer_s = longer_s
        self._ending = asyncio.Event()
        self._signals = 0
        self._given_up = False
        self._started = False
        self._wanted = asyncio.Event()

    async def run(self, *, watched: bool) -> int:
        """Until all workers have ended; the status. watched: whether to reload when a file of the configuration changes."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signal)
        loop.add_signal_handler(signal.SIGHUP, self._reload_soon)
        async with asyncio.TaskGroup() as group:
            keepers = [group.create_task(self._keep(post), name=f"worker {post.number}") for post in self._posts]
            beside = [group.create_task(each) for each in (self._reloads(), self._look(), self._manager.report(self._status))]
            if watched:
                reload = self._switchboard.reload
                watcher = watch(self._switchboard.files, reload, logger=logging.getLogger("trilemma.config"))
                beside.append(group.create_task(watcher))
            await asyncio.wait(keepers)
            for task in beside:
                task.cancel()
        return 1 if self._given_up else 0

    # -- workers

    async def _keep(self, post: _Post) -> None:
        """A worker, and the next one when it ends, until the end of all or until it is given up."""
        while not self._ending.is_set() and post.sock is not None:
            served_s = await self._one(post, post.sock)
            if self._ending.is_set():
                break
            pause_s = None if not self._started and served_s == 0 else post.restarts.after(served_s)
            if pause_s is None:
                log.critical("worker %d cannot be kept alive: the gateway ends", post.number)
                self._given_up = True
                self.end()
                break
            try:
                async with asyncio.timeout(pause_s):
                    await self._ending.wait()
            except TimeoutError:
                pass
        post.close()

    async def _one(self, post: _Post, sock: socket.socket) -> float:
        """A worker from start to end; for how long it served."""
        try:
            child = post.child = await Child.start(self._command, post.number, sock, lambda child: self._handlers(post, child))
        except OSError as error:
            log.error("worker %d cannot be started: %s", post.number, error.strerror)  # noqa: TRY400 - its own words say it
            return 0.0
        talk = asyncio.create_task(child.talk(), name=f"worker {post.number} channel")
        try:
            if self._ending.is_set():  # the signal came before there was anybody to hear it
                child.send(signal.SIGTERM)
            code = await child.process.wait()
        finally:
            child.send(signal.SIGKILL)
            post.child = None
            self._switchboard.leave(child)
            talk.cancel()
            await asyncio.wait({talk})
            child.close()
        if not self._ending.is_set():
            log.error("worker %d (process %d) has ended: %s", post.number, child.process.pid, _cause(code))
        elif code not in (0, -signal.SIGTERM):
            log.warning("worker %d (process %d) has not ended well: %s", post.number, child.process.pid, _cause(code))
        return time.monotonic() - child.listened_at if child.listens else 0.0

    def _handlers(self, post: _Post, child: Child) -> Mapping[str, Handler]:
        async def listening(_body: Any) -> None:
            child.listens, child.listened_at = True, time.monotonic()
            log.info("worker %d (process %d) serves", child.number, child.process.pid)
            if not self._started and all(each.child is not None and each.child.listens for each in self._posts):
                self._started = True
                self._manager.ready(self._status())

        async def status(body: Any) -> None:
            child.heard(msgspec.convert(body, Status))

        async def closing(_body: Any) -> None:
            if self._ending.is_set():
                post.close()

        return {**self._switchboard.handlers(child), "listening": listening, "status": status, "closing": closing}

    # -- the end

    def _signal(self) -> None:
        self._signals += 1
        if self._signals == 1:
            self.end()
        else:
            self._end_now()

    def end(self) -> None:
        """Begins the end: all workers are told."""
        if self._ending.is_set():
            return
        self._ending.set()
        self._manager.stopping()
        for child in self._children():
            child.send(signal.SIGTERM)
        asyncio.get_running_loop().call_later(self._grace_s + self._longer_s, self._kill)

    def _end_now(self) -> None:
        for child in self._children():
            if child in self._switchboard.members:
                child.tell("now")
            else:
                child.send(signal.SIGKILL)
        asyncio.get_running_loop().call_later(self._longer_s, self._kill)

    def _kill(self) -> None:
        for child in self._children():
            log.error("worker %d (process %d) does not end, and is killed", child.number, child.process.pid)
            child.send(signal.SIGKILL)

    # -- beside

    def _reload_soon(self) -> None:
        self._manager.reloading()
        self._wanted.set()

    async def _reloads(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self._switchboard.reload()
            except Exception:  # whatever it is, the workers serve on
                log.exception("reloading the configuration failed")
            self._manager.ready(self._status())

    async def _look(self) -> None:
        """Says when all is ready; and kills a worker whose event loop stands still for as long as a service manager would wait for one."""
        ready = False
        while True:
            await asyncio.sleep(_LOOK_S)
            if not ready and self._is_ready():
                ready = True
                self._when_ready()
            if self._manager.watchdog_s is not None:
                silent_since = time.monotonic() - self._manager.watchdog_s
                for child in self._children():
                    if child.status is not None and child.heard_at < silent_since:
                        log.error("worker %d (process %d) stands still, and is killed", child.number, child.process.pid)
                        child.send(signal.SIGKILL)

    def _is_ready(self) -> bool:
        children = list(self._children())
        known = [child.status for child in children if child.listens and child.status is not None]
        return len(known) == len(self._posts) and not any(status.waiting for status in known)

    def _status(self) -> str:
        known = [child.status for child in self._children() if child.status is not None]
        return line(
            started=self._started,
            stopping=self._ending.is_set(),
            running=sum(status.running for status in known),
            waiting=list(dict.fromkeys(name for status in known for name in status.waiting)),
            reload_failed=self._switchboard.failed,
        )

    def _children(self) -> list[Child]:
        return [post.child for post in self._posts if post.child is not None]


def _cause(code: int) -> str:
    try:
        return f"status {code}" if code >= 0 else signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
