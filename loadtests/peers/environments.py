"""Environments of the peers: a virtual environment for each, made on demand, in .trilemma/peers.

What stands there has a file `installed.json` in it; what could not be installed left its reason beside it, `NAME.problem`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from gateway.bench.servers import environment
from loadtests.peers.peer import Peer

FOLDER: Final = Path(__file__).resolve().parents[2] / ".trilemma" / "peers"
INSTALL_WITHIN_S: Final = 600.0
# Of packages for other machines than these peers are measured on; torch brings gigabytes of them where a registry has no other torch.
_UNWANTED: Final = ("nvidia-", "cuda-", "triton")
_DONE: Final = "installed.json"


class InstallError(Exception):
    """A peer could not be installed; the text says why."""


class _Installed(msgspec.Struct, frozen=True):
    steps: list[list[str]]
    packages: list[str]


def programs(peer: Peer, folder: Path = FOLDER) -> Path:
    """Where the programs of its environment are."""
    return folder / peer.name / "bin"


def missing(peer: Peer, folder: Path = FOLDER) -> str:
    """Why it cannot be started, "" when it can."""
    problem = _problem(peer, folder)
    if _found(peer, folder):
        return ""
    return problem.read_text() if problem.is_file() else f"not installed: python -m loadtests.peers install {peer.name}"


def install(peer: Peer, folder: Path = FOLDER, within_s: float = INSTALL_WITHIN_S) -> bool:
    """Makes its environment, unless it stands; whether it had to. Raises InstallError, and leaves the reason for `missing`."""
    if _found(peer, folder):
        return False
    home = folder / peer.name
    _problem(peer, folder).unlink(missing_ok=True)
    try:
        _make(peer, home, time.monotonic() + within_s)
    except InstallError as error:
        _problem(peer, folder).write_text(str(error))
        raise
    finally:
        if not (home / _DONE).is_file():  # half an environment is none
            shutil.rmtree(home, ignore_errors=True)
    return True


def unwanted(names: Iterable[str]) -> list[str]:
    """Those packages that no peer may bring."""
    return sorted(name for name in names if name.lower().startswith(_UNWANTED))


def pip_commands(python: Path, steps: Sequence[Sequence[str]], report: Path) -> Iterator[tuple[list[str], list[str]]]:
    """For each step, the command that tells in a report what it would bring, and the one that brings it."""
    for step in steps:
        pip = [str(python), "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
        yield [*pip, "--dry-run", "--report", str(report), *step], [*pip, *step]


def _make(peer: Peer, home: Path, until: float) -> None:
    shutil.rmtree(home, ignore_errors=True)
    home.parent.mkdir(parents=True, exist_ok=True)
    _run([sys.executable, "-m", "venv", str(home)], until)
    python, report = home / "bin" / "python", home / "report.json"
    for ask, bring in pip_commands(python, peer.steps, report):
        _run(ask, until)
        found = unwanted(one["metadata"]["name"] for one in json.loads(report.read_bytes())["install"])
        if found:
            raise InstallError(f"left out, for it would bring {', '.join(found[:3])}{' and more' if len(found) > 3 else ''}")
        _run(bring, until)
    frozen = _run([str(python), "-m", "pip", "freeze"], until).splitlines()
    (home / _DONE).write_bytes(msgspec.json.encode(_Installed(_steps(peer), frozen)))


def _run(command: Sequence[str], until: float) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter's venv and pip
            command, capture_output=True, text=True, check=False, timeout=max(1.0, until - time.monotonic()), env=environment(os.environ)
        )
    except subprocess.TimeoutExpired:
        raise InstallError("left out, for its installation takes too long") from None
    if done.returncode != 0:
        raise InstallError(f"pip: {_last_words(done.stderr)}")
    return done.stdout


def _last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else "no word of it")


def _found(peer: Peer, folder: Path) -> bool:
    done = folder / peer.name / _DONE
    if not done.is_file():
        return False
    return msgspec.json.decode(done.read_bytes(), type=_Installed).steps == _steps(peer)


def _steps(peer: Peer) -> list[list[str]]:
    """Without the place of this clone."""
    return [[Path(word).name if word.startswith("/") else word for word in step] for step in peer.steps]


def _problem(peer: Peer, folder: Path) -> Path:
    return folder / f"{peer.name}.problem"
