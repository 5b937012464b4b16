"""`trilemma up`: embedded engines and the gateway in one command, with a key and lines to try it.

The configuration is written once to STATE/trilemma.yaml and is the user's from then on; the key stays in STATE/key, readable by the owner
alone.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from string import Template

from gateway import serve
from gateway.access.fresh import digest, new_key
from gateway.engines.packaged import NAMES, EngineError, model_path
from gateway.engines.packaged import STRONG as STRONG_FILE
from gateway.engines.packaged import WEAK as WEAK_FILE

STRONG = "smollm2-135m"
WEAK = "smollm2-135m-weak"
_PORT = 8080

_CONFIG = Template("""\
# Written by `trilemma up`; change it as you like (docs/configuration.md). It is read again on SIGHUP and when this file changes.
version: 1
server: {host: 127.0.0.1, port: $port, watch: true, secret_file: $secret}

backends:
  # Two small real models in llama.cpp, started and watched by the gateway. One line adds your own engine:
  #   gpu: {url: "http://127.0.0.1:8000", engine: vllm, models: {qwen: Qwen/Qwen3-1.7B}}
  strong: {launch: llama-server, model: $strong_file, slots: 8, context: 1024, embeddings: true, models: {$strong: $strong}}
  weak: {launch: llama-server, model: $weak_file, slots: 8, context: 1024, models: {$weak: $weak}}

models:  # USD per million tokens; made-up prices, so that routing has something to weigh
  $strong: {context: 1024, capabilities: [json_schema, logprobs, embeddings], price: {input: 0.02, output: 0.06}}
  $weak: {context: 1024, capabilities: [json_schema, logprobs], price: {input: 0.005, output: 0.015}}

policies:
  # Learns from POST /v1/feedback which model is good enough (docs/routing.md).
  learn: {type: thompson, floor: 0.02, seed: 1, wrappers: [{type: sticky}]}

virtual_models:
  auto: {policy: learn, plans: {weak: {model: $weak}, strong: {model: $strong}}, baseline: weak}

keys:
  - {name: dev, sha256: $sha256, scopes: [inference, admin]}

storage: {url: "sqlite:///$database"}
""")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs in the foreground until Ctrl-C or SIGTERM. 1: something is missing or the port is taken; 2: the configuration has problems."""
    parser = argparse.ArgumentParser(prog="trilemma up", description=__doc__)
    parser.add_argument("--state", type=Path, default=Path(".trilemma"), metavar="DIR", help="configuration, key, models, logs")
    parser.add_argument("--port", type=_port, help="port to listen on (default: the configuration's; 8080 in a new one)")
    args = parser.parse_args(argv)
    state: Path = args.state
    try:
        key = _prepare(state, _PORT if args.port is None else args.port)
        for name in NAMES:  # before anything starts, so that a missing package is said plainly
            model_path(name, state)
    except (EngineError, OSError) as error:
        print(f"trilemma: {error}", file=sys.stderr)
        return 1
    return serve.run(state / "trilemma.yaml", state, "warning", lambda url: print(_welcome(url, key), flush=True), args.port)


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65_535:
        raise argparse.ArgumentTypeError("a port lies between 0 and 65535")
    return port


def _prepare(state: Path, port: int) -> str:
    """Writes what is not there yet; returns the key."""
    state.mkdir(parents=True, exist_ok=True)
    key_file = state / "key"
    config = state / "trilemma.yaml"
    secret = state / "secret"  # keeps ids of decisions good over restarts
    for file in (key_file, secret):
        if not file.exists():
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as opened:
                opened.write(new_key() + "\n")
    key = key_file.read_text().strip()
    if not config.exists():
        text = _CONFIG.substitute(
            port=port,
            strong=STRONG,
            weak=WEAK,
            strong_file=STRONG_FILE,
            weak_file=WEAK_FILE,
            sha256=digest(key),
            secret=secret.absolute(),
            database=(state / "trilemma.db").absolute(),
        )
        config.write_text(text)
    return key


def _welcome(url: str, key: str) -> str:
    body = json.dumps(
        {"model": STRONG, "messages": [{"role": "user", "content": "What is the capital of Japan?"}], "max_tokens": 32, "temperature": 0}
    )
    return f"""
Trilemma is ready on {url}

  key     {key}
  models  {STRONG}, {WEAK} (real, small), auto (a policy picks one)

  curl {url}/v1/chat/completions -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' -d '{body}'

  from openai import OpenAI
  client = OpenAI(base_url="{url}/v1", api_key="{key}")
  answer = client.chat.completions.create(model="auto", messages=[{{"role": "user", "content": "What is the capital of Japan?"}}])
  print(answer.choices[0].message.content)

Ctrl-C ends it and everything it started.
"""
