"""What a benchmark suite returns: one JSON object, and the same as a table for people."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

import gateway


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON object of `trilemma bench SUITE --json`.

    seeds: the random seeds that were used; data: input -> SHA-256; figures: name -> number, or null when it cannot be
    had here; tables: whatever shows how the figures came about. Three tables have a fixed meaning: `bars` (figure ->
    the largest value that passes), `reasons` (figure -> why it is null) and `notes` (sentences for the reader).
    """

    suite: str
    version: str = gateway.__version__
    commit: str | None
    seeds: list[int] = []
    data: dict[str, str] = {}
    figures: dict[str, float | None]
    tables: dict[str, Any]

    def json(self) -> bytes:
        """The object, indented, with a final newline."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    def missed(self) -> list[str]:
        """Figures that have a bar and do not keep it; one that could not be had does not keep it either."""
        bars: Mapping[str, float] = self.tables.get("bars", {})
        return [name for name, bar in bars.items() if not _keeps(self.figures.get(name), bar)]

    def text(self) -> str:
        """Figures with their bars beside them, then the reasons and notes."""
        bars: Mapping[str, float] = self.tables.get("bars", {})
        reasons: Mapping[str, str] = self.tables.get("reasons", {})
        rows = [("figure", "value", "bar", "")]
        for name, value in self.figures.items():
            bar = bars.get(name)
            verdict = "" if bar is None else "kept" if _keeps(value, bar) else "MISSED"
            rows.append((name, _number(value), "" if bar is None else f"<= {bar:g}", verdict))
        parts = [f"trilemma bench {self.suite}   version {self.version}   commit {self.commit or 'unknown'}", ""]
        parts += columns(rows)
        if reasons:
            parts += ["", "not to be had here:", *(f"  {name}: {reason}" for name, reason in reasons.items())]
        parts += ["", *self.tables.get("notes", ())]
        return "\n".join(parts).rstrip() + "\n"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as aligned lines: the first column to the left, numbers to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(cell.rjust(width) if i else cell.ljust(width) for i, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip()
        for row in rows
    ]


def commit() -> str | None:
    """The commit of the clone that runs, with `-dirty` when files differ from it; None outside a clone."""
    root = Path(gateway.__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - git, on this clone
    except FileNotFoundError:
        return None
    return done.stdout.strip() or None


def machine() -> dict[str, Any]:
    """What the numbers were taken on. Load averages: runnable processes over 1, 5 and 15 minutes."""
    return {
        "cpu": _cpu_model(),
        "cpus": os.cpu_count(),
        "cpus_allowed": sorted(os.sched_getaffinity(0)),
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "memory_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1_000_000,
        "system": f"{platform.system()} {platform.release()}",
    }


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Python and the installed ones of these packages."""
    found = {"python": platform.python_version(), "implementation": sys.implementation.name}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except FileNotFoundError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _keeps(value: float | None, bar: float) -> bool:
    return value is not None and value <= bar


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"
