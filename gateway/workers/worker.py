"""One worker of several: a process that serves, and does what its parent says.

    python -m gateway.workers.worker --parent PID --number N --listen FD --channel FD

SIGTERM, SIGINT and the end of its parent begin its end; only the parent can end its grace, for a service manager's signals may reach every
process of the gateway.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import uvloop

from gateway.app import create_app
from gateway.config.load import Loaded
from gateway.engines.guard import bind
from gateway.http.server import Server
from gateway.store.urls import SqliteUrl
from gateway.telemetry.logs import LogOutput
from gateway.telemetry.redaction import Redactor, secrets_of, secrets_of_environment
from gateway.telemetry.snapshots import SnapshotFolder
from gateway.workers.channel import Channel, ChannelError
from gateway.workers.crew import Shared
from gateway.workers.folder import LIMITS
from gateway.workers.member import Member
from gateway.workers.process import doubled, prepare

_REPORT_S: Final = 1.0


def main(argv: Sequence[str] | None = None) -> int:
    """0: ended as asked; 1: it could not start, and the log says why."""
    parser = argparse.ArgumentParser(prog="python -m gateway.workers.worker", description="One worker of `trilemma serve --workers N`.")
    parser.add_argument("--parent", type=int, required=True, help="process id")
    parser.add_argument("--number", type=int, required=True, help="which worker this is")
    parser.add_argument("--listen", type=int, required=True, help="descriptor of the socket to listen on")
    parser.add_argument("--channel", type=int, required=True, help="descriptor of the socket to the parent")
    options = parser.parse_args(argv)
    bind(options.parent)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it is for the parent
    worker = _Worker(options.number, socket.socket(fileno=options.listen))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(worker.run(socket.socket(fileno=options.channel)))


class _Worker:
    """number: from 1. sock: to listen on."""

    def __init__(self, number: int, sock: socket.socket) -> None:
        self._number = number
        self._sock = sock
        self._redactor = Redactor()
        self._redactor.know(secrets_of_environment(os.environ))
        self._output: LogOutput | None = None
        self._server: Server | None = None
        self._ending = False
        self._member = Member(self._learn, self._end_now)

    async def run(self, sock: socket.socket) -> int:
        """Serves until its end; sock: to the parent."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._end)
        channel = await Channel.over(sock, self._member.handlers)
        talk = asyncio.create_task(channel.run(), name="channel")
        talk.add_done_callback(lambda _: self._end())  # a worker without its parent is of no use
        try:
            return await self._serve(channel)
        except (ChannelError, TimeoutError):
            return 1
        finally:
            talk.cancel()
            await asyncio.wait({talk})

    async def _serve(self, channel: Channel) -> int:
        member = self._member
        start = await member.start(channel)
        self._output = LogOutput(self._redactor, start.log_level)
        self._output.install()
        loaded = member.received(start.given)
        app = create_app(
            lambda: loaded,
            Path(start.state),
            snapshots=SnapshotFolder(Path(start.folder), start.run, self._number),
            shared=Shared(SqliteUrl(Path(start.folder) / LIMITS), engines=member, claim=member.claim, join=member.join),
        )
        prepare()
        settings = loaded.config.server
        server = self._server = Server(app, settings, app.drain, on_start=member.listens, on_close=member.closing, signals=False)
        app.clients = lambda: len(server.server_state.connections)
        if self._ending:
            return 0
        report = asyncio.create_task(self._report(server), name="report")
        try:
            await server.serve(sockets=doubled(self._sock))
        finally:
            report.cancel()
        return 0 if server.started or self._ending else 1

    async def _report(self, server: Server) -> None:
        """Tells the parent, now and then, how it goes, and thereby that the event loop turns."""
        while True:
            self._member.report(server.running)
            await asyncio.sleep(_REPORT_S)

    def _learn(self, loaded: Loaded) -> None:
        """The log knows a configuration's secrets before anything else does."""
        self._redactor.know(secrets_of(loaded.config))
        if self._output is not None:
            self._output.apply(loaded.config.telemetry.logs)

    def _end(self) -> None:
        """Begins the end, once."""
        if not self._ending:
            self._ending = True
            if self._server is not None:
                self._server.handle_exit(signal.SIGTERM, None)

    def _end_now(self) -> None:
        """Ends the grace."""
        self._end()
        if self._server is not None:
            self._server.force_exit = True


if __name__ == "__main__":
    sys.exit(main())
