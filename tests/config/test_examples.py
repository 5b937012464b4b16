"""The examples under deploy/ are complete: with the environment and the files they ask for, they can be served."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from gateway.config.check import check
from gateway.config.load import load

EXAMPLES = Path(__file__).parents[2] / "deploy/examples"
DIGESTS = {"TRILEMMA_KEY_SHA256": "a" * 64, "WEB_KEY_SHA256": "b" * 64, "BATCH_KEY_SHA256": "c" * 64, "OPS_KEY_SHA256": "d" * 64}
Write = Callable[..., Path]


@pytest.fixture
def env(tmp_path: Path, write: Write) -> Mapping[str, str]:
    """What the examples ask for."""
    for secret in ("trilemma", "vllm-small", "vllm-large"):
        write(f"secrets/{secret}", f"{secret}-secret\n")
    python = write("venv/bin/python", "#!/bin/sh\n")
    python.chmod(0o700)
    return {
        **DIGESTS,
        "SECRETS": str(tmp_path / "secrets"),
        "SERVICE_API_KEY_FILE": str(write("service", "service-secret\n")),
        "GGUF": str(write("own.gguf", "GGUF")),
        "VLLM_PYTHON": str(python),
    }


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.yaml")))
def test_an_example_can_be_served(name: str, tmp_path: Path, env: Mapping[str, str]) -> None:
    loaded = load(Path(shutil.copy(EXAMPLES / name, tmp_path)), env)
    assert [problem.text(name) for problem in loaded.located(check(loaded.config))] == []


def test_the_vllm_example_means_what_it_says(tmp_path: Path, env: Mapping[str, str]) -> None:
    config = load(Path(shutil.copy(EXAMPLES / "vllm.yaml", tmp_path)), env).config
    small, large = config.backends["small-a"], config.backends["large"]
    assert small.url == "http://small-a:8000"
    assert small.key is not None
    assert small.key.get_secret_value() == "vllm-small-secret"
    assert (small.timeouts.first_byte_s, large.timeouts.first_byte_s) == (120, 300)
    assert small.timeouts.total_s == large.timeouts.total_s == 1_800
    assert config.virtual_models["auto"].caps.deadline_ms == 120_000


def test_a_key_of_the_environment_s_file_reaches_its_backend(tmp_path: Path, env: Mapping[str, str]) -> None:
    service = load(Path(shutil.copy(EXAMPLES / "own-model.yaml", tmp_path)), env).config.backends["service"]
    assert service.key is not None
    assert service.key.get_secret_value() == "service-secret"
