"""What is wrong with a configuration, and where.

A Finding speaks of a place in the configuration (a path of keys), a Problem of a place in the file (line and column,
from 1). Neither shows a value that may be a secret.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

Loc = tuple[str | int, ...]
Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong at `loc`: keys and list indices from the root. `about_key`: the key itself, not its value."""

    loc: Loc
    message: str
    severity: Severity = "error"
    about_key: bool = False


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """Something wrong at a line and column (both from 1; 0 where the file has no such place)."""

    line: int
    column: int
    path: str
    message: str
    severity: Severity = "error"

    def text(self, source: str) -> str:
        """One line in the form that editors and terminals make clickable: `file:line:column: path: message`."""
        return f"{source}:{self}" if self.line else f"{source}: {self}"

    def __str__(self) -> str:
        place = f"{self.line}:{self.column}: " if self.line else ""
        warning = "warning: " if self.severity == "warning" else ""
        path = f"{self.path}: " if self.path else ""
        return f"{place}{warning}{path}{self.message}"


class ConfigError(Exception):
    """A configuration that cannot be used: every problem at once, sorted by line."""

    def __init__(self, problems: Iterable[Problem], source: str) -> None:
        self.problems = tuple(sorted(problems))
        self.source = source
        super().__init__("\n".join(problem.text(source) for problem in self.problems))


class UnreadableConfigError(ConfigError):
    """The configuration file itself cannot be read."""


def dotted(loc: Loc) -> str:
    """`("keys", 0, "name")` -> `keys[0].name`."""
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{shown(part)}" if text else shown(part)
    return text


def shown(name: str) -> str:
    """A key or name as a message shows it: on one line, and short."""
    return name if len(name) <= 80 and name.isprintable() else ascii(name[:80])[1:-1] + ("..." if len(name) > 80 else "")


def did_you_mean(name: str, known: Collection[str]) -> str:
    """The end of a sentence that offers the nearest known name; empty when none is near."""
    near = get_close_matches(name[:200], known, n=1, cutoff=0.5)
    return f"; did you mean `{shown(near[0])}`?" if near else ""
