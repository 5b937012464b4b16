"""How the gateway is set up when it is measured: with everything on, or with its key check alone; and how to tell that it was."""

from __future__ import annotations

import hashlib
import http.client
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from gateway.config.schema import Config, Rules

KEY: Final = "sk-trilemma-bench"
MODEL, PACED_MODEL, WEIGHTED_MODEL, ROUTED_MODEL, DECODED_MODEL = "mock", "mock-slow", "auto", "learn", "best"
CANDIDATES: Final = 8
"""Of a request for DECODED_MODEL."""
LANES: Final = ("asgi", "route")
"""The ways for a request that the gateway takes when the short one is not to be had (lanes.py)."""


# Counted for each request, and never reached.
_AMPLE: Final[Mapping[str, int]] = {"rpm": 10**9, "tpm": 10**12, "concurrency": 10**6}
_COUNTER: Final = "trilemma_requests_total{"
_LAG: Final = "trilemma_loop_lag_seconds"


class Recorded(msgspec.Struct, frozen=True):
    """What a gateway kept of the requests it was measured with. asked: requests of the load generator; counted: by its metrics, rows: in
    its database, both with the few that asked whether it was ready; null when they could not be read."""

    asked: int
    counted: int | None
    rows: int | None

    @property
    def whole(self) -> bool:
        """Whether every request left its trace, so that its price is the price of everything."""
        return self.counted is not None and self.rows is not None and min(self.counted, self.rows) >= self.asked


@dataclass(frozen=True, slots=True)
class Setup:
    """A gateway over one backend, a port of the loopback. folder: where its database lies. everything: else nothing is counted or kept.
    learns: it has a virtual model behind which LinUCB reads hashed features and has eight plans to choose from, too. decodes: it has one
    whose strategy asks for eight answers, of which the longest wins."""

    name: str
    backend: int
    folder: Path
    everything: bool = True
    learns: bool = False
    decodes: bool = False

    @property
    def database(self) -> Path:
        """Where decisions are kept, if they are."""
        return self.folder / f"{self.name}.db"

    def file(self, port: int) -> bytes:
        """The configuration file; JSON is YAML, too."""
        price = {"price": {"input": 0.1, "output": 0.4}}
        plans = {"one": {"model": MODEL}, "two": {"model": PACED_MODEL}}
        policies: dict[str, Any] = {"split": {"type": "weighted", "params": {"weights": {"one": 1, "two": 1}}, "seed": 1}}
        virtual: dict[str, Any] = {WEIGHTED_MODEL: {"policy": "split", "plans": plans}}
        if self.learns:
            policies["linucb"] = {"type": "linucb", "params": {"features": ["hashed"]}, "floor": 0.02, "seed": 1}
            virtual[ROUTED_MODEL] = {"policy": "linucb", "plans": {f"plan-{number}": {"model": MODEL} for number in range(8)}}
        strategies: dict[str, Any] = {}
        if self.decodes:
            strategies["longest"] = {"type": "best_of_n", "params": {"n": CANDIDATES, "select": "longest"}, "temperature": 0.7}
            policies["fixed"] = {"type": "fixed"}
            virtual[DECODED_MODEL] = {"policy": "fixed", "plans": {"one": {"model": MODEL, "strategy": "longest"}}}
        key: dict[str, Any] = {"name": "bench", "sha256": hashlib.sha256(KEY.encode()).hexdigest(), "scopes": ["inference", "metrics"]}
        return msgspec.json.encode(
            {
                "version": 1,
                "server": {"host": "127.0.0.1", "port": port, "grace_s": 1},
                "backends": {
                    "mock": {
                        "url": f"http://127.0.0.1:{self.backend}",
                        "engine": "vllm",
                        "models": {MODEL: MODEL, PACED_MODEL: PACED_MODEL},
                    }
                },
                "models": {MODEL: price, PACED_MODEL: price},
                "strategies": strategies,
                "policies": policies,
                "virtual_models": virtual,
                "keys": [key],
                "limits": {"key": _AMPLE, "tenants": {"default": _AMPLE}} if self.everything else {},
                "storage": {"url": f"sqlite:///{self.database}" if self.everything else ""},
                "telemetry": {"metrics": {"enabled": self.everything}},
            }
        )


def switched_on(file: bytes) -> dict[str, str]:
    """What a configuration file of ours switches on, in words."""
    config = Config.model_validate_json(file)
    return {
        "keys": f"{len(config.keys)}, by digest",
        "limits of a key": _limits(config.limits.key),
        "limits of a tenant": _limits(config.limits.tenants.get(config.keys[0].tenant, Rules())),
        "metrics": "on" if config.telemetry.metrics.enabled else "off",
        "decision rows": config.storage.url.partition(":")[0] or "off",
        "prices": "on" if any(model.price.output for model in config.models.values()) else "off",
    }


def _limits(rules: Rules) -> str:
    return ", ".join(rules.model_dump(exclude_none=True)) or "off"


def counted(port: int) -> int | None:
    """Requests that the gateway at this port has counted; None when it does not tell."""
    found = _metric(port, _COUNTER)
    return None if found is None else int(sum(found))


def loop_lag_s(port: int) -> float | None:
    """How late the event loop of the gateway at this port was, at most, in the last 10 seconds; None when it does not tell."""
    found = _metric(port, _LAG)
    return max(found) if found else None


def _metric(port: int, prefix: str) -> list[float] | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {KEY}"})
        response = connection.getresponse()
        text = response.read().decode()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    if response.status != 200:
        return None
    return [float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(prefix)]


def rows(database: Path) -> int | None:
    """Decisions in a database that nobody writes to any more; None when it cannot be read."""
    if not database.is_file():
        return None
    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        try:
            return int(connection.execute("SELECT count(*) FROM decisions").fetchone()[0])
        except sqlite3.Error:
            return None
