"""A database is brought up by a process of its own, which tells how it went."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from gateway.store import revisions, upgrade
from gateway.store.upgrade import bring_up
from gateway.store.writer import StoreError
from tests.support.stored import stored


def test_it_brings_it_up(tmp_path: Path) -> None:
    bring_up(f"sqlite:///{tmp_path}/d.db")
    assert stored(tmp_path / "d.db", "alembic_version") == [{"version_num": revisions.known()[-1]}]


def test_why_it_cannot(tmp_path: Path) -> None:
    """The reason is for anybody to read; where it looked, for the log."""
    with pytest.raises(StoreError) as failed:
        bring_up(f"postgresql://user:hunter2@/trilemma?host={tmp_path}")
    assert str(failed.value) == "the schema cannot be brought up: the database cannot be reached"
    assert str(tmp_path) in failed.value.detail
    assert "hunter2" not in failed.value.detail


@pytest.mark.parametrize(
    ("comes", "reason"),
    [
        (subprocess.CompletedProcess([], 1, "", "where\nwhy\n"), "the schema cannot be brought up: why"),
        (subprocess.CompletedProcess([], -9, "", ""), "the schema cannot be brought up: status -9"),
        (subprocess.TimeoutExpired("", 1), "the migration did not end"),
        (PermissionError(13, "Permission denied"), "the migration cannot be started: Permission denied"),
    ],
)
def test_whatever_comes_of_it(monkeypatch: pytest.MonkeyPatch, comes: Any, reason: str) -> None:
    """And nobody who lists processes sees a password."""
    commands: list[str] = []

    def run(command: list[str], **_options: Any) -> Any:
        commands.extend(command)
        if isinstance(comes, Exception):
            raise comes
        return comes

    monkeypatch.setattr(upgrade.subprocess, "run", run)
    with pytest.raises(StoreError) as failed:
        bring_up("postgresql://user:hunter2@db/trilemma")
    assert str(failed.value) == reason
    assert "gateway.store.migrate" in commands
    assert not any("hunter2" in word for word in commands)
