"""The README's commands, run as a reader runs them, against a gateway that `trilemma up` started."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from gateway.engines.packaged import model_path
from tests.support.engine import STRONG, WEAK, Started

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """The fenced blocks in a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


COMMANDS = [block for block in blocks("sh") if not block.startswith("make ")]
EXPORTS, CURL, CHECK = COMMANDS


@pytest.fixture
def clone(stack: Started, tmp_path: Path) -> Path:
    """A folder that looks like a clone in which `make up` runs."""
    (tmp_path / ".trilemma").mkdir()
    for name in ("key", "trilemma.yaml"):
        shutil.copy(stack.output.parent / "state" / name, tmp_path / ".trilemma")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    return tmp_path


def shell(stack: Started, clone: Path, script: str, *, status: int = 0) -> str:
    """What a script prints in the clone, where the gateway listens on another port."""
    script = script.replace("http://127.0.0.1:8080", stack.url)
    ran = subprocess.run(["sh", "-euc", script], cwd=clone, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == status, ran.stdout + ran.stderr
    return ran.stdout


def test_its_two_commands_are_targets() -> None:
    named = set(re.findall(r"(?:^|`)make ([a-z][a-z-]*)", README, re.MULTILINE))
    assert {"up", "test"} <= named
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named <= targets


def test_its_python_runs_from_top_to_bottom(stack: Started, clone: Path) -> None:
    (clone / "readme.py").write_text("\n".join(blocks("python")))
    lines = shell(stack, clone, f'{EXPORTS}\nexec "{sys.executable}" readme.py').splitlines()
    assert re.fullmatch(r"\d+ tokens in, \d+ out", lines[1])
    (picked,) = [line for line in lines if " picked by " in line]
    assert re.fullmatch(rf"({STRONG}|{WEAK}) picked by learn for USD [0-9.e-]+", picked)
    assert "2 vectors of 576 numbers" in lines
    assert lines[-1] == "404 model_not_found model"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_its_curl_line_streams(stack: Started, clone: Path) -> None:
    told = shell(stack, clone, EXPORTS + CURL)
    assert told.startswith('data: {"')
    assert told.endswith("data: [DONE]\n\n")


def test_its_lines_of_configuration_fit(stack: Started, clone: Path) -> None:
    config = clone / ".trilemma" / "trilemma.yaml"
    assert "good" in shell(stack, clone, CHECK)
    (lines,) = blocks("yaml")
    (clone / ".trilemma" / "models").mkdir()
    (clone / ".trilemma" / "models" / "mine.gguf").symlink_to(model_path("smollm2", clone))
    config.write_text(config.read_text().replace("\nmodels:", f"\n{lines}\nmodels:", 1))
    assert yaml.safe_load(config.read_text())["backends"].keys() == {"strong", "weak", "gpu", "mine"}
    assert "good" in shell(stack, clone, CHECK)
    config.write_text(config.read_text().replace("launch:", "lunch:", 1))
    assert "did you mean `launch`" in shell(stack, clone, CHECK, status=1)


def links() -> Iterator[str]:
    """Where it points to in this repository."""
    return (target for target in re.findall(r"\]\(([^)]+)\)", README) if "://" not in target)


def test_its_links_lead_somewhere() -> None:
    assert [target for target in links() if not (ROOT / target).exists()] == []
