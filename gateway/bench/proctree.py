"""CPU time and memory of a process and its descendants, from /proc (Linux)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
# The two clocks of one process may disagree by a tick of user and one of system time without either being wrong.
_SLACK_TICKS = 2

# A process or thread may end between listing and reading it.
_gone = contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError)


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU time used so far per process, by two clocks.

    run_ns: the scheduler's run time summed over the live threads: exact, but a thread that ends takes its share along.
    tick_ns: user + system time of the process: keeps ended threads, resolves 10 ms.
    """

    run_ns: Mapping[int, int]
    tick_ns: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes resident, and bytes with shared pages divided among their users, summed over a process tree."""

    rss: int
    pss: int
    processes: int


def tree(root: int) -> list[int]:
    """The process `root` and all that descend from it; `root` alone when it has no children."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with _gone:
                children.setdefault(int(_stat_fields(entry)[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def cpu(root: int) -> Cpu:
    """Read both clocks of every process of the tree."""
    run_ns: dict[int, int] = {}
    tick_ns: dict[int, int] = {}
    for pid in tree(root):
        folder = _PROC / str(pid)
        with _gone:
            fields = _stat_fields(folder)
            tick_ns[pid] = (int(fields[11]) + int(fields[12])) * _TICK_NS
            run_ns[pid] = sum(_thread_run_times(folder))
    return Cpu(run_ns, tick_ns)


def used_us(before: Cpu, after: Cpu) -> float:
    """CPU microseconds used between two readings: by run time, or by ticks where they show that ended threads lack."""
    total = 0
    for pid, ticks in after.tick_ns.items():
        run = after.run_ns.get(pid, 0) - before.run_ns.get(pid, 0)
        tick = ticks - before.tick_ns.get(pid, 0)
        total += tick if tick > run + _SLACK_TICKS * _TICK_NS else run
    return total / 1_000


def memory(root: int) -> Memory:
    """Resident memory of the tree now."""
    rss = pss = count = 0
    for pid in tree(root):
        with _gone:
            sizes = dict(_sizes(_PROC / str(pid) / "smaps_rollup"))
            rss += sizes.get("Rss", 0)
            pss += sizes.get("Pss", 0)
            count += 1
    return Memory(rss, pss, count)


def _stat_fields(folder: Path) -> list[str]:
    """The fields of /proc/PID/stat behind the command's name (which may hold anything): state, parent, ..."""
    return (folder / "stat").read_text().rpartition(")")[2].split()


def _thread_run_times(folder: Path) -> Iterator[int]:
    for task in (folder / "task").iterdir():
        with _gone:
            yield int((task / "schedstat").read_text().split()[0])


def _sizes(rollup: Path) -> Iterator[tuple[str, int]]:
    for line in rollup.read_text().splitlines():
        name, _, rest = line.partition(":")
        if rest.endswith(" kB"):
            yield name, int(rest.split()[0]) * 1024
