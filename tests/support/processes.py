"""Looking at real processes (Linux): who belongs to whom, and who is still there."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """A process, told from a later one of the same id by when it began."""

    pid: int
    began: str
    command: str


def family(pid: int) -> frozenset[Process]:
    """The process and all below it; nothing when it has ended."""
    parents = {int(entry.name): _parent(entry) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    members, more = set[int](), {pid}
    while more:
        members |= more
        more = {child for child, parent in parents.items() if parent in more}
    return frozenset(found for member in members if (found := _look(member)) is not None)


def alive(processes: Iterable[Process]) -> list[Process]:
    """Those that still run; one that has ended and waits to be reaped does not."""
    return [process for process in processes if _look(process.pid) == process]


def kill(processes: Iterable[Process]) -> None:
    """Ends what is left of them."""
    for process in alive(processes):
        os.kill(process.pid, signal.SIGKILL)


def until(condition: Callable[[], bool], what: str, within_s: float = 30.0, pause_s: float = 0.05) -> None:
    """Asks again and again, `pause_s` apart, until it is so; fails with `what` when it never was."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        time.sleep(pause_s)


def _stat(entry: Path) -> list[str]:
    """/proc/PID/stat from the third field (the state) on, after the name, which may hold anything."""
    try:
        return (entry / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _parent(entry: Path) -> int:
    fields = _stat(entry)
    return int(fields[1]) if fields else 0


def _look(pid: int) -> Process | None:
    entry = Path("/proc", str(pid))
    fields = _stat(entry)
    if not fields or fields[0] in "ZX":
        return None
    try:
        command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Process(pid, fields[19], command)
