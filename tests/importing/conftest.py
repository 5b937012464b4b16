"""Imports as a user sees them: what is written loads, can be served, and is looked at as a configuration."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.config.check import check
from gateway.config.load import parse
from gateway.config.schema import Config, Key
from gateway.importing.document import Value, load
from gateway.importing.dump import Dump, read
from gateway.importing.litellm import imported
from gateway.importing.report import Entry, Kind

CONFIGS = Path(__file__).parent / "configs"
DUMPS = Path(__file__).parent / "dumps"
NOW = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
EMPTY: Mapping[str, str] = {}


def digest(key: str) -> str:
    """What either gateway keeps of a key."""
    return hashlib.sha256(key.encode()).hexdigest()


def environment(text: str) -> dict[str, str]:
    """An answer for every variable that a written configuration refers to."""
    text = re.sub(r"^ *#.*$", "", text, flags=re.MULTILINE)
    names = set(re.findall(r"(?<!\$)\$\{([A-Za-z_][A-Za-z0-9_]*)\}", text))
    urls = set(re.findall(r"url: \$\{(\w+)\}", text))
    return {
        name: f"http://{name.lower().replace('_', '-')}.test:1"
        if name in urls
        else digest(name)
        if name.endswith("_SHA256")
        else f"sk-{name}"
        for name in names
    }


@dataclass
class Result:
    """An import: the text as written, the configuration that it is, and what was told."""

    text: str
    config: Config
    entries: tuple[Entry, ...]
    variables: tuple[str, ...]

    def told(self, kind: Kind) -> set[tuple[str, str]]:
        """(setting, the message's first words) of a kind: up to the first comma or colon, for brevity."""
        return {(entry.setting, entry.message) for entry in self.entries if entry.kind == kind}

    def says(self, kind: Kind, setting: str, *words: str) -> bool:
        """Whether an entry of that kind about that setting has all those words."""
        return any(
            entry.kind == kind and entry.setting == setting and all(word in entry.message for word in words) for entry in self.entries
        )

    def settings(self, kind: Kind) -> list[str]:
        """What the entries of a kind are about, in order."""
        return [entry.setting for entry in self.entries if entry.kind == kind]

    @property
    def keys(self) -> dict[str, Key]:
        """By name."""
        return {key.name: key for key in self.config.keys}

    @property
    def served(self) -> dict[str, dict[str, str]]:
        """Backend -> public name -> the engine's name."""
        return {name: backend.models for name, backend in self.config.backends.items()}


def convert(root: Value, dump: Dump | None = None, env: Mapping[str, str] = EMPTY) -> Result:
    """An import whose result loads and can be served; a test fails where it cannot."""
    found = imported(root, dump or Dump(), env, NOW)
    loaded = parse(found.text, environment(found.text))
    assert [finding for finding in check(loaded.config) if finding.severity == "error"] == []
    assert set(environment(found.text)) == set(found.variables)
    return Result(found.text, loaded.config, tuple(found.entries), tuple(found.variables))


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    """Writes a file into the test's folder."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def litellm(write: Callable[[str, str], Path]) -> Callable[..., Result]:
    """Imports a configuration given as text, with a master key where it names none."""

    def litellm(text: str, dump: Dump | None = None, env: Mapping[str, str] = EMPTY) -> Result:
        if "general_settings" not in text:
            text += "\ngeneral_settings: {master_key: sk-master}\n"
        return convert(load(write("config.yaml", text)), dump, env)

    return litellm


@pytest.fixture(scope="session")
def example() -> Callable[..., Result]:
    """Imports one of the configurations in `configs`, with the dump of that name."""

    def example(name: str, dump: str | None = None, env: Mapping[str, str] = EMPTY) -> Result:
        return convert(load(CONFIGS / f"{name}.yaml"), None if dump is None else read(DUMPS / dump), env)

    return example
