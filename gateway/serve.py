"""`trilemma serve`: the gateway over a configuration file."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import resource
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import httptools  # noqa: F401  (uvicorn falls back to a parser ten times slower without a word)
import uvloop

from gateway.app import App, create_app
from gateway.config.load import load_checked
from gateway.config.problems import ConfigError
from gateway.config.schema import Server as Settings
from gateway.http.server import Server, listening

Tell = Callable[[str], None]
_LISTENERS: Final = 16


def main(argv: Sequence[str] | None = None) -> int:
    """The command; its status is that of `run`."""
    parser = argparse.ArgumentParser(prog="trilemma serve", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, metavar="FILE")
    parser.add_argument("--state", type=Path, default=Path(".trilemma"), metavar="DIR", help="engines' models and logs")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    args = parser.parse_args(argv)
    return run(args.config, args.state, args.log_level)


def run(config: Path, state: Path, log_level: str, when_ready: Tell = lambda _url: None, port: int | None = None) -> int:
    """Serves until a signal. `when_ready` is told the gateway's URL once every model has a backend that answered. `port` wins over the
    configuration's.

    0: ended by a signal; 1: could not listen or start; 2: the configuration has problems.
    """
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("uvicorn").setLevel("WARNING")
    try:
        settings = load_checked(config).config.server
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    if port is not None:
        settings = settings.model_copy(update={"port": port})
    app = create_app(lambda: load_checked(config), state)
    try:
        sock = listening(settings)
    except OSError as error:
        print(f"trilemma: cannot listen on {settings.host}:{settings.port}: {error.strerror}", file=sys.stderr)
        return 1
    raise_open_files()
    # What is loaded now stays: without this, every full collection walks some 200,000 objects of the libraries.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
    with sock:
        url = _url(sock)
        print(f"trilemma listens on {url}", file=sys.stderr, flush=True)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            started = runner.run(_serve(app, settings, sock, lambda: when_ready(url)))
    return 0 if started else 1


def raise_open_files() -> None:
    """As many open files as this process may have: each stream has two sockets, and the usual soft limit is 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # some systems name a hard limit that they do not grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(app: App, settings: Settings, sock: socket.socket, when_ready: Callable[[], None]) -> bool:
    """Whether it ever started; the log says why it did not."""
    if hasattr(signal, "SIGHUP"):
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, app.request_reload)
    server = Server(app, settings, app.drain)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(_when_ready(app, server, when_ready))
        # uvloop takes one new connection per turn of the loop and listening socket: with one socket, a busy loop lets callers wait.
        await server.serve(sockets=[sock, *(sock.dup() for _ in range(_LISTENERS - 1))])
        waiting.cancel()
    return server.started


async def _when_ready(app: App, server: Server, tell: Callable[[], None]) -> None:
    while not server.started or app.gateway.state.unanswered():  # noqa: ASYNC110 (probes change it, one by one)
        await asyncio.sleep(0.1)
    tell()


def _url(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
