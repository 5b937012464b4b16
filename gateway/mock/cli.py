"""`trilemma mock-backend`: the mock as a process."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import uvloop

from gateway.mock.behaviour import Behaviour, read_script
from gateway.mock.prefix_cache import BLOCK_TOKENS
from gateway.mock.server import MockBackend


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trilemma mock-backend",
        description="A scriptable, wire-faithful mock of vLLM. Prints one JSON line with its url once it listens. "
        "POST /mock/script takes a JSON list of behaviours, GET /mock/requests shows what was received, "
        "POST /mock/reset forgets both.",
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--model", action="append", dest="models", help="a served model (repeatable; default mock-model)")
    parser.add_argument("--script", type=Path, help="JSON file: a list of behaviours")
    parser.add_argument("--tokens-per-second", type=float, default=0.0, help="per choice; 0: as fast as possible")
    parser.add_argument("--first-token-delay", type=float, default=0.0, help="seconds")
    parser.add_argument(
        "--prefill-tokens-per-second", type=float, default=0.0, help="prompt tokens that are not cached delay the first token; 0: not"
    )
    parser.add_argument("--kv-tokens", type=int, default=46_592, help="room of the prefix cache, in tokens (blocks of 32)")
    parser.add_argument("--max-model-len", type=int, default=4096)
    parser.add_argument("--max-num-seqs", type=int, default=256, help="sequences above this show as waiting in /metrics")
    parser.add_argument("--keep-alive", type=float, default=5.0, help="seconds an idle connection stays open")
    parser.add_argument("--keep", type=int, default=1000, help="how many requests are remembered")
    parser.add_argument("--key", help="bearer key demanded below /v1/")
    return parser


async def _run(mock: MockBackend) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with mock:
        sys.stdout.write(json.dumps({"url": mock.url}) + "\n")
        sys.stdout.flush()
        await ended.wait()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs until SIGINT or SIGTERM; 2 when the arguments or the script cannot be used, 1 when the port cannot."""
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        script = read_script(options.script.read_bytes()) if options.script else []
    except (OSError, msgspec.DecodeError) as problem:
        parser.error(f"--script: {problem}")
    if options.kv_tokens < BLOCK_TOKENS:
        parser.error(f"--kv-tokens: at least one block of {BLOCK_TOKENS}")
    pace = Behaviour(
        tokens_per_second=options.tokens_per_second,
        first_token_delay_s=options.first_token_delay,
        prefill_tokens_per_second=options.prefill_tokens_per_second,
    )
    mock = MockBackend(
        options.models or ["mock-model"],
        host=options.host,
        port=options.port,
        default=pace,
        script=script,
        key=options.key,
        max_model_len=options.max_model_len,
        max_num_seqs=options.max_num_seqs,
        kv_tokens=options.kv_tokens,
        keep_alive_s=options.keep_alive,
        keep=options.keep,
    )
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(mock))
    except OSError as problem:
        sys.stderr.write(f"trilemma mock-backend: {problem}\n")
        return 1
    return 0
