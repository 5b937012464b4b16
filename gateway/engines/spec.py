"""What a managed engine should be (EngineSpec) and how it is (EngineStatus); they travel as JSON."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from gateway.config.schema import Config

Kind = Literal["llama-server", "vllm", "command"]
State = Literal["starting", "ready", "exited", "failed", "stopped"]


class EngineSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One engine to run on 127.0.0.1:`port`. It counts as ready when GET /health answers 200.

    `model`: a packaged model's name or a path (llama-server), a folder or a hub's name (vllm). `served_names`: what
    the engine calls it. `slots` sequences at once, `context` tokens each. `python`: the interpreter that has the
    engine; default: this one. `args` are added to the engine's command line; of the kind `command` they are the whole
    of it. `env` wins over the inherited environment.
    """

    name: str
    kind: Kind
    port: int
    model: str = ""
    served_names: tuple[str, ...] = ()
    slots: int = 8
    context: int = 1_024
    embeddings: bool = False
    python: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}


class EngineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine is.

    `starting`: its process loads. `ready`: it answers. `exited`: it ended unasked or was not ready in time, and is
    started again soon. `failed`: it cannot work as configured (exit codes 78, 126, 127) and waits for a change or a
    restart. `stopped`: ended as asked. `exit_code` is the last one, negative for a signal; `detail` says why in a
    line; `log` is the file with all its output.
    """

    engine: str
    state: State
    port: int
    pid: int | None = None
    restarts: int = 0
    exit_code: int | None = None
    log: str = ""
    detail: str = ""


def specs(config: Config, ports: Mapping[str, int]) -> list[EngineSpec]:
    """The engines that `config` asks to manage, on the ports given by backend name (a port written in the config wins).

    Give the same ports again after a reload: an engine whose spec changes in anything is restarted.
    """
    wished = []
    for name, backend in config.backends.items():
        if backend.launch is None or backend.model is None:
            continue
        wished.append(
            EngineSpec(
                name=name,
                kind=backend.launch,
                port=backend.port or ports[name],
                model=backend.model,
                served_names=tuple(dict.fromkeys(backend.models.values())),
                slots=backend.slots,
                context=backend.context,
                embeddings=backend.embeddings,
                python=None if backend.python is None else str(backend.python),
                args=tuple(backend.args),
            )
        )
    return wished


def free_port() -> int:
    """A TCP port of 127.0.0.1 on which nothing listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
