from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.config.places import anchored, model_file
from gateway.config.schema import Backend, Config

FOLDER = Path("/etc/trilemma")


def with_backend(**keys: Any) -> Backend:
    backend = {"models": {"m": "m"}, **keys}
    return anchored(Config.model_validate({"version": 1, "backends": {"a": backend}}), FOLDER).backends["a"]


def with_storage(url: str) -> str:
    backends = {"a": {"url": "http://a", "models": {"m": "m"}}}
    config = Config.model_validate({"version": 1, "backends": backends, "storage": {"url": url}})
    return anchored(config, FOLDER).storage.url


@pytest.mark.parametrize(
    ("launch", "model", "meant"),
    [
        ("llama-server", "smollm2", "smollm2"),
        ("llama-server", "smollm2-weak", "smollm2-weak"),
        ("llama-server", "models/x.gguf", "/etc/trilemma/models/x.gguf"),
        ("llama-server", "x", "/etc/trilemma/x"),
        ("llama-server", "/srv/x.gguf", "/srv/x.gguf"),
        ("vllm", "Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B"),
        ("vllm", "./weights", "/etc/trilemma/weights"),
        ("vllm", "x.gguf", "/etc/trilemma/x.gguf"),
    ],
)
def test_models(launch: str, model: str, meant: str) -> None:
    assert with_backend(launch=launch, model=model).model == meant


def test_a_given_engine_has_no_model_file() -> None:
    assert model_file(with_backend(url="http://a")) is None


def test_files_start_at_the_configuration_s_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert with_backend(url="http://a", key_file="secrets/a").key_file == FOLDER / "secrets/a"
    assert with_backend(url="http://a", key_file="/run/a").key_file == Path("/run/a")
    assert with_backend(url="http://a", key_file="~/a").key_file == Path("/home/somebody/a")


def test_an_interpreter_by_path_or_by_name() -> None:
    assert with_backend(launch="vllm", model="m", python="venv/bin/python").python == FOLDER / "venv/bin/python"
    assert with_backend(launch="vllm", model="m", python="python3.12").python == Path("python3.12")


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("", ""),
        ("sqlite:///decisions.db", "sqlite:////etc/trilemma/decisions.db"),
        ("sqlite+aiosqlite:///data/d.db?timeout=5", "sqlite+aiosqlite:////etc/trilemma/data/d.db?timeout=5"),
        ("sqlite:////var/lib/d.db", "sqlite:////var/lib/d.db"),
        ("sqlite:///:memory:", "sqlite:///:memory:"),
        ("sqlite://", "sqlite://"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
    ],
)
def test_only_relative_sqlite_files_move(url: str, meant: str) -> None:
    assert with_storage(url) == meant
