"""The gateway without its short way for requests (http/hot.py), so that the others can be measured; the product takes the quickest.

    python -m gateway.bench.lanes {asgi,route} --config FILE --state DIR

asgi: in front of FastAPI (http/lane.py); route: FastAPI's own routes (http/routes.py).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import uvloop

from gateway.app import create_app
from gateway.bench.setup import LANES
from gateway.config.load import load_checked
from gateway.http.request_ids import RequestIds
from gateway.http.server import Server
from gateway.http.sockets import listening
from gateway.workers.process import prepare


def main(argv: Sequence[str] | None = None) -> int:
    """Serves until a signal. 0: ended by one; 1: it could not start."""
    parser = argparse.ArgumentParser(prog="python -m gateway.bench.lanes", description="Serve by one lane.")
    parser.add_argument("lane", choices=LANES)
    parser.add_argument("--config", type=Path, required=True, metavar="FILE")
    parser.add_argument("--state", type=Path, required=True, metavar="DIR")
    options = parser.parse_args(argv)
    settings = load_checked(options.config).config.server
    app = create_app(lambda: load_checked(options.config), options.state)
    if options.lane == "route":
        app.in_front = RequestIds(app.api)
    prepare()

    async def serve() -> bool:
        server = Server(app, settings, app.drain, hot=False)
        await server.serve(sockets=[sock])
        return server.started

    with listening(settings) as sock, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return 0 if runner.run(serve()) else 1


if __name__ == "__main__":
    sys.exit(main())
