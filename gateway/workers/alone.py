"""The gateway as one process: no parent, no workers."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import uvloop

from gateway.app import App, Read, create_app
from gateway.config.schema import Server as Settings
from gateway.http.server import Server
from gateway.sd_notify import Manager
from gateway.workers.process import doubled, prepare
from gateway.workers.status import line


def run(read: Read, settings: Settings, state: Path, sock: socket.socket, when_ready: Callable[[], None]) -> int:
    """Serves until a signal. 0: ended by it; 1: it could not start, and the log says why."""
    app = create_app(read, state)
    prepare()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return 0 if runner.run(_serve(app, settings, sock, when_ready)) else 1


async def _serve(app: App, settings: Settings, sock: socket.socket, when_ready: Callable[[], None]) -> bool:
    """Whether it ever started; the log says why it did not."""
    manager = Manager.of(os.environ)

    def status() -> str:
        return _status(app, server)

    def ready() -> None:
        manager.ready(status())

    def stop() -> None:
        app.drain()
        manager.stopping()

    def reload() -> None:
        manager.reloading()
        app.request_reload(ready)

    server = Server(app, settings, stop, on_start=ready)
    app.clients = lambda: len(server.server_state.connections)
    if hasattr(signal, "SIGHUP"):
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
    async with asyncio.TaskGroup() as group:
        beside = (group.create_task(_when_ready(app, server, when_ready)), group.create_task(manager.report(status)))
        await server.serve(sockets=doubled(sock))
        for task in beside:
            task.cancel()
    return server.started


def _status(app: App, server: Server) -> str:
    if not server.started:
        return line(started=False, stopping=False, running=0, waiting=(), reload_failed=False)
    return line(
        started=True,
        stopping=server.should_exit,
        running=server.running,
        waiting=app.gateway.state.unanswered(),
        reload_failed=app.reloader.status()["last_error"] is not None,
    )


async def _when_ready(app: App, server: Server, tell: Callable[[], None]) -> None:
    while not server.started or app.gateway.state.unanswered():  # noqa: ASYNC110 (probes change it, one by one)
        await asyncio.sleep(0.1)
    tell()
