"""Relative paths in a configuration: they start at the folder of its file, wherever the gateway was started.

That holds for `key_file`, `secret_file`, the files of `discover`, SQLite URLs (`sqlite:///decisions.db`), `python` when it has a `/`
(a bare `python3` is looked up in PATH), and `model` of a managed backend when it is a file: for llama-server whatever is no packaged
model, for vLLM what ends in `.gguf` or begins with `./` or `../`. `~` is the home of the gateway's user.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from gateway.config.schema import Backend, Config, Discover
from gateway.engines.packaged import NAMES

_SQLITE_FILE = re.compile(r"(sqlite(?:\+\w+)?:///)(?![/:]|file:|\?|$)(.*)", re.DOTALL)


def model_file(backend: Backend) -> Path | None:
    """The file or folder that a managed backend's `model` names; None for a packaged or published model."""
    if backend.launch is None or backend.model is None:
        return None
    is_path = backend.model.endswith(".gguf") or backend.model.startswith(("/", "./", "../", "~"))
    if is_path or (backend.launch == "llama-server" and backend.model not in NAMES):
        return Path(backend.model)
    return None


def anchored(config: Config, folder: Path) -> Config:
    """The configuration with its relative paths made absolute from `folder`."""
    backends = {name: _backend(backend, folder) for name, backend in config.backends.items()}
    server, storage = config.server, config.storage
    if server.secret_file is not None:
        server = server.model_copy(update={"secret_file": _from(folder, server.secret_file)})
    if match := _SQLITE_FILE.fullmatch(storage.url):
        storage = storage.model_copy(update={"url": f"{match[1]}{folder.absolute()}/{match[2]}"})
    learning = config.learning
    if (verifier := learning.verifier) is not None and verifier.key_file is not None:
        verifier = verifier.model_copy(update={"key_file": _from(folder, verifier.key_file)})
        learning = learning.model_copy(update={"verifier": verifier})
    strategies = {
        name: spec
        if (checker := spec.verifier) is None or checker.key_file is None
        else spec.model_copy(update={"verifier": checker.model_copy(update={"key_file": _from(folder, checker.key_file)})})
        for name, spec in config.strategies.items()
    }
    embeddings = {
        name: each if each.key_file is None else each.model_copy(update={"key_file": _from(folder, each.key_file)})
        for name, each in config.embeddings.items()
    }
    parts = {"backends": backends, "embeddings": embeddings, "server": server, "storage": storage}
    return config.model_copy(update={**parts, "learning": learning, "strategies": strategies})


def _backend(backend: Backend, folder: Path) -> Backend:
    changes: dict[str, Any] = {}
    if backend.key_file is not None:
        changes["key_file"] = _from(folder, backend.key_file)
    if (discover := backend.discover) is not None:
        changes["discover"] = _discover(discover, folder)
    if backend.python is not None and len(backend.python.parts) > 1:
        changes["python"] = _from(folder, backend.python)
    if (file := model_file(backend)) is not None:
        changes["model"] = str(_from(folder, file))
    return backend.model_copy(update=changes)


def _discover(discover: Discover, folder: Path) -> Discover:
    if discover.file is not None:
        return discover.model_copy(update={"file": discover.file.model_copy(update={"path": _from(folder, discover.file.path)})})
    if (cluster := discover.kubernetes) is not None:
        files = {key: _from(folder, path) for key in ("token_file", "ca_file") if (path := getattr(cluster, key)) is not None}
        return discover.model_copy(update={"kubernetes": cluster.model_copy(update=files)})
    return discover


def _from(folder: Path, path: Path) -> Path:
    """`path` from `folder`; symbolic links stay as they are, for they may be swapped later."""
    try:
        path = path.expanduser()
    except RuntimeError:  # `~` of nobody known: the path is not there, and the check says so
        pass
    return folder.absolute() / path
