"""`trilemma serve`: the gateway over a configuration file."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from gateway.config.load import Loaded, load_checked
from gateway.config.problems import ConfigError
from gateway.http.sockets import listening, listening_together, url_of
from gateway.telemetry.logs import LogOutput
from gateway.telemetry.redaction import Redactor, secrets_of, secrets_of_environment

Tell = Callable[[str], None]

_MOST_WORKERS: Final = 64


def main(argv: Sequence[str] | None = None) -> int:
    """The command; its status is that of `run`."""
    parser = argparse.ArgumentParser(prog="trilemma serve", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, metavar="FILE")
    parser.add_argument("--state", type=Path, default=Path(".trilemma"), metavar="DIR", help="engines' models and logs")
    parser.add_argument("--workers", type=_workers, metavar="N", help="processes that serve; wins over `server.workers`")
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), help="wins over `telemetry.logs.level`")
    args = parser.parse_args(argv)
    return run(args.config, args.state, args.log_level, workers=args.workers)


def run(
    config: Path,
    state: Path,
    log_level: str | None,
    when_ready: Tell = lambda _url: None,
    port: int | None = None,
    workers: int | None = None,
) -> int:
    """Serves until a signal. `when_ready` is told the gateway's URL once every model has a backend that answered. `port` and `workers` win
    over the configuration's.

    0: ended by a signal; 1: could not listen or start, or workers ended again and again; 2: the configuration has problems.
    """
    redactor = Redactor()
    redactor.know(secrets_of_environment(os.environ))
    output = LogOutput(redactor, log_level)
    output.install()

    def read() -> Loaded:
        """The configuration; the log knows its secrets before anything else does."""
        loaded = load_checked(config)
        redactor.know(secrets_of(loaded.config))
        output.apply(loaded.config.telemetry.logs)
        return loaded

    try:
        loaded = read()
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    given = {"port": port, "workers": workers}
    settings = loaded.config.server.model_copy(update={key: value for key, value in given.items() if value is not None})
    try:
        socks = [listening(settings)] if settings.workers == 1 else listening_together(settings, settings.workers)
    except OSError as error:
        print(f"trilemma: cannot listen on {settings.host}:{settings.port}: {error.strerror}", file=sys.stderr)
        return 1
    url = url_of(socks[0])

    def ready() -> None:
        when_ready(url)

    with contextlib.ExitStack() as stack:
        for sock in socks:
            stack.enter_context(sock)
        # Either is a good deal of code that the other does without: a parent serves nobody.
        if settings.workers == 1:
            from gateway.workers import alone

            output.tell(f"trilemma listens on {url}")
            return alone.run(read, settings, state, socks[0], ready)
        from gateway.workers import parent

        output.tell(f"trilemma listens on {url}")
        return parent.run(read, loaded, settings, state, socks, log_level, ready)


def _workers(text: str) -> int:
    count = int(text)
    if not 1 <= count <= _MOST_WORKERS:
        raise argparse.ArgumentTypeError(f"from 1 to {_MOST_WORKERS} processes can serve")
    return count
