"""What cannot work in `backends` and `server`: engines that cannot start or that collide, unusable secrets."""

from __future__ import annotations

import importlib.util
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from pydantic import SecretStr

from gateway.config.files import read_secret, unreadable
from gateway.config.places import model_file
from gateway.config.problems import Finding, Loc, did_you_mean
from gateway.config.schema import Backend, Config, Server
from gateway.engines.packaged import NAMES

_MANAGED_ONLY = ("model", "slots", "context", "embeddings", "python", "args", "port")
_SENDABLE = re.compile(r"[!-~]+")


def check_engines(config: Config) -> Iterator[Finding]:
    """Findings about engines and the server's own secret."""
    yield from _secret_file(("server", "secret_file"), config.server.secret_file)
    if (verifier := config.learning.verifier) is not None:
        loc: Loc = ("learning", "verifier")
        yield from _secret_file((*loc, "key_file"), verifier.key_file)
        yield from _sendable(loc, verifier.key, verifier.key_file)
    for name, spec in config.strategies.items():
        if spec.verifier is not None:
            loc = ("strategies", name, "verifier")
            yield from _secret_file((*loc, "key_file"), spec.verifier.key_file)
            yield from _sendable(loc, spec.verifier.key, spec.verifier.key_file)
    for name, endpoint in config.embeddings.items():
        loc = ("embeddings", name)
        yield from _secret_file((*loc, "key_file"), endpoint.key_file)
        yield from _sendable(loc, endpoint.key, endpoint.key_file)
    for name, backend in config.backends.items():
        loc = ("backends", name)
        yield from _secret_file((*loc, "key_file"), backend.key_file)
        yield from _sendable(loc, backend.key, backend.key_file)
        yield from _given(loc, backend) if backend.launch is None else _managed(loc, backend)
    yield from _collisions(config.server, {name: b for name, b in config.backends.items() if b.launch is not None})


def _sendable(loc: Loc, secret: SecretStr | None, file: Path | None) -> Iterator[Finding]:
    if secret is not None and not _SENDABLE.fullmatch(secret.get_secret_value()):
        message = "the key cannot be sent in a header: it holds spaces, line ends or letters beyond ASCII"
        yield Finding((*loc, "key" if file is None else "key_file"), message)


def _secret_file(loc: Loc, file: Path | None) -> Iterator[Finding]:
    if file is None:
        return
    try:
        read_secret(file)
        mode = file.stat().st_mode
    except OSError as error:
        yield Finding(loc, unreadable(file, error))
        return
    if mode & stat.S_IROTH:
        yield Finding(loc, f"every user of this machine can read {file}", "warning")


def _given(loc: Loc, backend: Backend) -> Iterator[Finding]:
    for key in _MANAGED_ONLY:
        if key in backend.model_fields_set:
            yield Finding(
                (*loc, key),
                "has no effect with `url`: it is for engines that `launch` starts",
                "warning",
                about_key=True,
            )


def _managed(loc: Loc, backend: Backend) -> Iterator[Finding]:
    file = model_file(backend)
    if file is not None and not _there(file):
        hint = did_you_mean(file.name, NAMES) if backend.launch == "llama-server" else ""
        packaged = f"; packaged models: {', '.join(NAMES)}" if backend.launch == "llama-server" and not hint else hint
        yield Finding((*loc, "model"), f"there is no model file {file}{packaged}")
    elif file is not None and backend.launch == "llama-server" and not file.is_file():
        yield Finding((*loc, "model"), f"{file} is not a file: llama-server loads one GGUF file")
    if backend.python is not None:
        if shutil.which(backend.python) is None:
            yield Finding((*loc, "python"), f"there is no program {backend.python}")
    elif backend.launch == "vllm" and importlib.util.find_spec("vllm") is None:
        yield Finding((*loc, "launch"), "vLLM is not installed beside the gateway: name its interpreter in `python`")


def _there(file: Path) -> bool:
    try:
        file.stat()
    except (OSError, ValueError):
        return False
    return True


def _collisions(server: Server, managed: dict[str, Backend]) -> Iterator[Finding]:
    ports: dict[int, str] = {}
    folded: dict[str, str] = {}
    for name, backend in managed.items():
        port = backend.port
        if port is not None and port == server.port:
            yield Finding(("backends", name, "port"), "the gateway itself listens on this port")
        elif port is not None and ports.setdefault(port, name) != name:
            yield Finding(("backends", name, "port"), f"`{ports[port]}` has this port too")
        file_name = re.sub(r"[^a-z0-9._-]", "-", name.lower())
        if folded.setdefault(file_name, name) != name:
            message = f"too like `{folded[file_name]}`: the engines' logs would share one file"
            yield Finding(("backends", name), message, about_key=True)
