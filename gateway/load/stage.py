"""What a scenario plays on: its backends and the gateway over them, or a gateway that runs already."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gateway.access.fresh import digest
from gateway.bench.ctools import compile_tools
from gateway.bench.servers import free_port
from gateway.load.admin import Admin
from gateway.load.asking import until_answers
from gateway.load.backends import BackendProcess
from gateway.load.processes import Process
from gateway.load.scenario import Scenario
from gateway.pool.http1 import Http1Transport

ADMIN_KEY = "load-admin"


@dataclass(frozen=True)
class Cpus:
    """Who runs where; None: wherever the kernel likes."""

    gateway: frozenset[int] | None
    backends: frozenset[int] | None
    client: frozenset[int] | None


@dataclass(frozen=True)
class Stage:
    """url: of the gateway. keys: by tenant. admin, process: of the gateway, when it was started here."""

    url: str
    keys: Mapping[str, str]
    admin: Admin | None
    process: Process | None
    backends: Mapping[str, BackendProcess]
    transport: Http1Transport
    cpus: Cpus


def cpus(pin: bool) -> Cpus:
    """The gateway alone on the last CPU; the callers alone on the first, too, where there are more than two."""
    allowed = sorted(os.sched_getaffinity(0))
    if not pin or len(allowed) < 2:
        return Cpus(None, None, None)
    others = frozenset(allowed[:-1])
    if len(others) == 1:
        return Cpus(frozenset(allowed[-1:]), others, others)
    return Cpus(frozenset(allowed[-1:]), others - {allowed[0]}, frozenset(allowed[:1]))


def key_of(tenant: str) -> str:
    """The key of a tenant of a started gateway: it guards nothing."""
    return f"sk-load-{tenant}"


def gateway_config(scenario: Scenario, port: int, backends: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """The configuration of the gateway; backends: name -> (url, the model's name there)."""
    instances = scenario.instances()
    keys: list[dict[str, Any]] = [{"name": ADMIN_KEY, "sha256": digest(key_of(ADMIN_KEY)), "scopes": ["admin", "metrics"]}]
    for name, tenant in scenario.tenants.items():
        keys.append({"name": name, "sha256": digest(key_of(name)), "tenant": name, **tenant.key})
    generated = {
        "version": 1,
        "server": {"host": "127.0.0.1", "port": port, "grace_s": 1},
        "backends": {
            name: {"url": url, "engine": "vllm", "models": {instances[name].model: model}, **instances[name].config}
            for name, (url, model) in backends.items()
        },
        "keys": keys,
    }
    return _laid_over(generated, scenario.gateway.config)


@asynccontextmanager
async def staged(scenario: Scenario, folder: Path) -> AsyncIterator[Stage]:
    """Starts everything, waits until it is ready, and ends it with the block. Raises ScenarioError, BenchError."""
    async with AsyncExitStack() as stack:
        transport = Http1Transport()
        stack.push_async_callback(transport.close)
        if scenario.target is not None:
            keys = dict.fromkeys(scenario.tenants, scenario.target.key())
            yield Stage(scenario.target.url.rstrip("/"), keys, None, None, {}, transport, cpus(pin=False))
            return
        where = cpus(scenario.pin)
        program = compile_tools().mock if any(group.kind == "c" for group in scenario.backends.values()) else None
        backends = {
            name: BackendProcess(name, group, program, folder, where.backends, transport) for name, group in scenario.instances().items()
        }
        for backend in backends.values():
            stack.push_async_callback(backend.process.end)
            backend.process.start()
        for backend in backends.values():
            await backend.start()
        port = free_port()
        process = Process("gateway", _serve(scenario, folder, port, backends), folder / "gateway.log", where.gateway)
        stack.push_async_callback(process.end)
        process.start()
        url = f"http://127.0.0.1:{port}"
        await until_answers(transport, f"{url}/ready", process)
        keys = {tenant: key_of(tenant) for tenant in scenario.tenants}
        yield Stage(url, keys, Admin(url, key_of(ADMIN_KEY), transport), process, backends, transport, where)


def _serve(scenario: Scenario, folder: Path, port: int, backends: Mapping[str, BackendProcess]) -> list[str]:
    config = folder / "gateway.json"  # JSON is YAML, too
    made = gateway_config(scenario, port, {name: (one.url, one.engine_model) for name, one in backends.items()})
    config.write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=2))
    return [sys.executable, "-m", "gateway", "serve", "--config", str(config), "--state", str(folder / "state"), "--log-level", "warning"]


def _laid_over(under: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings are merged, all else is replaced."""
    merged = dict(under)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = _laid_over(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged
