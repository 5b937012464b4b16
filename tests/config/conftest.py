from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from gateway.config.load import Loaded, load, parse
from gateway.config.problems import ConfigError, Problem
from tests.support.databases import database, migrated, place, postgres, server

__all__ = ["database", "migrated", "place", "postgres", "server"]

MINIMAL = """\
version: 1
backends:
  local: {launch: llama-server, model: smollm2, models: {small: small}}
models:
  small: {price: {input: 0.1}}
keys:
  - {name: dev, sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08}
"""

Write = Callable[..., Path]
Problems = Callable[..., tuple[Problem, ...]]


@pytest.fixture
def minimal() -> str:
    """The least that can be served."""
    return MINIMAL


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file under the test's folder, private to its user, and returns its path."""

    def write(name: str, text: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        path.chmod(0o600)
        return path

    return write


@pytest.fixture
def problems() -> Problems:
    """What is wrong with a text that must not load."""

    def problems(text: str, env: Mapping[str, str] | None = None) -> tuple[Problem, ...]:
        with pytest.raises(ConfigError) as caught:
            parse(text, env or {})
        return caught.value.problems

    return problems


@pytest.fixture
def loaded(write: Write) -> Callable[..., Loaded]:
    """A text loaded from `config.yaml` in the test's folder."""

    def loaded(text: str, env: Mapping[str, str] | None = None) -> Loaded:
        return load(write("config.yaml", text), env or {})

    return loaded
