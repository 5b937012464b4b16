"""`trilemma serve`: the gateway over a configuration file."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import httptools  # noqa: F401  (uvicorn falls back to a parser ten times slower without a word)
import uvloop

from gateway.app import App, create_app
from gateway.config.load import load
from gateway.config.problems import ConfigError
from gateway.config.schema import Server as Settings
from gateway.http.server import Server, listening


def main(argv: Sequence[str] | None = None) -> int:
    """Runs until a signal. 0: ended by one; 1: could not listen; 2: the configuration has problems."""
    parser = argparse.ArgumentParser(prog="trilemma serve", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, metavar="FILE")
    parser.add_argument("--state", type=Path, default=Path(".trilemma"), metavar="DIR", help="engines' models and logs")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    args = parser.parse_args(argv)
    logging.basicConfig(level=args.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("uvicorn").setLevel("WARNING")
    try:
        loaded = load(args.config)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    settings = loaded.config.server
    app = create_app(lambda: load(args.config), args.state)
    try:
        sock = listening(settings)
    except OSError as error:
        print(f"trilemma: cannot listen on {settings.host}:{settings.port}: {error.strerror}", file=sys.stderr)
        return 1
    with sock:
        host, port = sock.getsockname()[:2]
        print(f"trilemma listens on http://{host}:{port}", file=sys.stderr, flush=True)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(app, settings, sock))
    return 0


async def _run(app: App, settings: Settings, sock: socket.socket) -> None:
    if hasattr(signal, "SIGHUP"):
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, app.request_reload)
    server = Server(app, settings, app.drain)
    # What is loaded now stays: without this, every full collection walks some 200,000 objects of the libraries.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
    await server.serve(sockets=[sock])
