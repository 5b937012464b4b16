"""What a benchmark suite returns: one JSON object, and the same as a table for people."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

import gateway


class Bar(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a figure has to keep to: at least, at most."""

    least: float | None = None
    most: float | None = None

    def kept(self, value: float | None) -> bool:
        """Whether the value keeps to it; one that could not be had does not."""
        return value is not None and (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def __str__(self) -> str:
        bounds = ((">=", self.least), ("<=", self.most))
        return ", ".join(f"{sign} {bound:,.6g}" for sign, bound in bounds if bound is not None)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON object of `trilemma bench SUITE --json`.

    seeds: the random seeds that were used; data: input -> SHA-256; figures: name -> number, or null when it cannot be
    had here; tables: whatever shows how the figures came about. Some tables have a fixed meaning: `bars` (figure -> Bar),
    `reasons` (figure -> why it is null), `notes` (sentences for the reader), `machine` (what machine() says) and `shown`
    (names of tables row -> column -> number that people are shown too).
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
        bars: Mapping[str, Bar] = self.tables.get("bars", {})
        return [name for name, bar in bars.items() if not bar.kept(self.figures.get(name))]

    def text(self) -> str:
        """Figures with their bars beside them, other tables that are shown, then the reasons and notes."""
        reasons: Mapping[str, str] = self.tables.get("reasons", {})
        parts = [f"trilemma bench {self.suite}   version {self.version}   commit {self.commit or 'unknown'}"]
        for rows in self._rows():
            parts += ["", *columns(rows)]
        if reasons:
            parts += ["", "not to be had here:", *(f"  {name}: {reason}" for name, reason in reasons.items())]
        parts += ["", *self.tables.get("notes", ())]
        return "\n".join(parts).rstrip() + "\n"

    def markdown(self) -> str:
        """The same for a page."""
        reasons: Mapping[str, str] = self.tables.get("reasons", {})
        notes: Sequence[str] = self.tables.get("notes", ())
        parts = ["\n".join(pipes(rows)) for rows in self._rows()]
        parts += ["\n".join(f"- `{name}` could not be had: {reason}." for name, reason in reasons.items())] if reasons else []
        parts += [" ".join(notes)] if notes else []
        return "\n\n".join([*parts, measured_on(self.version, self.commit, self.tables["machine"])]) + "\n"

    def _rows(self) -> Iterator[list[tuple[str, ...]]]:
        """The tables for people, the figures first."""
        bars: Mapping[str, Bar] = self.tables.get("bars", {})
        rows: list[tuple[str, ...]] = [("figure", "value", "bar", "")]
        for name, value in self.figures.items():
            bar = bars.get(name)
            verdict = "" if bar is None else "kept" if bar.kept(value) else "MISSED"
            rows.append((name, number(value), "" if bar is None else str(bar), verdict))
        yield rows
        for table in self.tables.get("shown", ()):
            found: Mapping[str, Mapping[str, float | None]] = self.tables[table]
            if found:
                head = tuple(next(iter(found.values())))
                yield [(table, *head), *((name, *(number(row[column]) for column in head)) for name, row in found.items())]


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as aligned lines: the first column to the left, numbers to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(cell.rjust(width) if i else cell.ljust(width) for i, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip()
        for row in rows
    ]


def pipes(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as a table in Markdown, the first row its head: the first column to the left, the others to the right."""
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return [lines[0], f"|---|{'---:|' * (len(rows[0]) - 1)}", *lines[1:]]


def put(page: str, name: str, text: str) -> str:
    """The page with the text between its marks `<!-- NAME -->` and `<!-- /NAME -->`. Raises ValueError when it has none."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, found, rest = page.partition(begin)
    _, also, after = rest.partition(end)
    if not found or not also:
        raise ValueError(f"the page has no {begin} ... {end}")
    return f"{before}{begin}\n\n{text}\n{end}{after}"


def measured_on(version: str, of: str | None, where: Mapping[str, Any]) -> str:
    """A sentence on what was measured, and on what machine."""
    load = f"load average {where['load_average'][0]:g}"
    return f"Version {version}, commit {of or 'unknown'}; {where['cpus']} CPUs ({where['cpu']}), {where['system']}, {load} before."


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


def number(value: float | None) -> str:
    """For people, to three digits; a dash for none."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"
