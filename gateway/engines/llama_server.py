"""Runs llama.cpp's own HTTP server, from the wheel xllamacpp, as one process:

    python -m gateway.engines.llama_server --model FILE --port P --alias NAME [--slots 8] [--context 1024]
    [--embeddings] [--threads N]

FILE may be the name of a packaged model (with --state, where a made one is kept). Each of the `slots` sequences has
`context` tokens of its own. With --embeddings the engine pools by mean for /v1/embeddings, and still chats. Listens
on 127.0.0.1 only. SIGTERM and SIGINT end it with exit code 0; what cannot work (no model, no xllamacpp) ends it with
EX_CONFIG (78) and one line on stderr.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import msgspec

from gateway.engines.packaged import EngineError, model_path
from gateway.engines.spec import EngineSpec

EX_CONFIG = 78
"""Exit code of sysexits.h: started wrongly, so starting again cannot help."""

OPENMP: Mapping[str, str] = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
"""Read by OpenMP when the process starts. On shared cores, threads that spin while waiting halve the speed."""

_PROMPT_CACHE_MIB = 256
_MOST_THREADS = 8
_LONGEST_EMBEDDED = 2_048


def command(spec: EngineSpec, state: Path) -> list[str]:
    """What starts this runner for `spec`."""
    return [
        *(spec.python or sys.executable, "-P", "-m", "gateway.engines.llama_server"),
        *("--model", spec.model),
        *("--state", str(state)),
        *("--port", str(spec.port)),
        *("--alias", next(iter(spec.served_names), spec.name)),
        *("--slots", str(spec.slots)),
        *("--context", str(spec.context)),
        *(("--embeddings",) if spec.embeddings else ()),
        *spec.args,
    ]


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Serve until a signal."""
    options = _parse(argv)
    if any(name not in os.environ for name in OPENMP):
        os.execve(sys.executable, sys.orig_argv, {**OPENMP, **os.environ})  # noqa: S606 - this very program again
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # while C++ loads the model, Python cannot answer a signal
    try:
        server = _serve(options)
    except EngineError as error:
        _say(f"cannot start: {error}")
        raise SystemExit(EX_CONFIG) from error
    except RuntimeError as error:
        _say(f"cannot start: {error} (the reason is above; often a used port or an unreadable model)")
        raise SystemExit(1) from error
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, _leave)
    _say(f"listening on {server.listening_address}")
    threading.Event().wait()
    raise AssertionError("nobody sets the event")


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m gateway.engines.llama_server", description="llama.cpp's HTTP server.")
    parser.add_argument("--model", required=True, help="a GGUF file, or the name of a packaged model")
    parser.add_argument("--state", type=Path, default=Path(".trilemma"), help="folder where a made model is kept")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--alias", required=True, help="the model's name in answers")
    parser.add_argument("--slots", type=int, default=8, help="sequences decoded at once")
    parser.add_argument("--context", type=int, default=1024, help="tokens of each slot")
    parser.add_argument("--embeddings", action="store_true", help="serve /v1/embeddings too, mean pooling")
    parser.add_argument("--threads", type=int, help="computing threads; default: the cores of this process, at most 8")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=JSON", help="any other xllamacpp parameter")
    return parser.parse_args(argv)


def _serve(options: argparse.Namespace) -> Any:
    model = model_path(options.model, options.state)
    try:
        import xllamacpp
    except ImportError as error:
        raise EngineError("llama.cpp's server is not installed: pip install 'trilemma[local]'") from error
    return xllamacpp.Server(_parameters(xllamacpp, options, model))


def _parameters(xllamacpp: Any, options: argparse.Namespace, model: Path) -> Any:
    p = xllamacpp.CommonParams()
    p.model.path = str(model)
    p.model_alias = {options.alias}
    p.hostnames = ["127.0.0.1"]
    p.port = options.port
    p.n_parallel = options.slots
    p.n_ctx = options.slots * options.context
    p.kv_unified = False
    p.fit_params = False  # the context asked for, or an error: never silently less
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = options.threads or min(_cores(), _MOST_THREADS)
    p.cache_ram_mib = _PROMPT_CACHE_MIB
    p.endpoint_metrics = p.endpoint_slots = True
    p.use_jinja = True
    p.warmup = True
    p.ui = False
    p.cors_origins = ""  # no web page may read what this keyless server answers
    if options.embeddings:
        p.embedding = True
        p.n_batch = p.n_ubatch = min(options.context, _LONGEST_EMBEDDED)  # a text is pooled in one batch, or refused
        p.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    for setting in options.set:
        name, _, value = setting.partition("=")
        setattr(p, name, msgspec.json.decode(value))
    return p


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - a program's message to its log


def _leave(_signum: int, _frame: FrameType | None) -> NoReturn:
    # The server's threads are in C++ and may be in the middle of a token: nothing of theirs needs saving.
    os._exit(0)


if __name__ == "__main__":
    main()
