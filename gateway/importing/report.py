"""What an import did not simply take over, and where it stood.

An entry's `kind` says what follows for the operator:

    lost        nothing in Trilemma does this
    changed     taken over, but it means something a little different
    todo        only the operator can do it
    unneeded    Trilemma has no use for it, and does without

Messages show names of settings, models and keys, never a value that may be a secret.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

Kind = Literal["lost", "changed", "todo", "unneeded"]

TITLES: Final[Mapping[Kind, str]] = MappingProxyType(
    {
        "lost": "could not be mapped",
        "changed": "mapped, but not quite the same",
        "todo": "needs you",
        "unneeded": "not needed",
    }
)

_PLACES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands: line and column from 1; 0 where the source has no such thing. `path`: keys from the root."""

    file: str
    line: int = 0
    column: int = 0
    path: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing to know, for all the places where it holds. `setting`: what it is about."""

    kind: Kind
    setting: str
    message: str
    places: tuple[Place, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        places = [{"file": each.file, "line": each.line, "column": each.column, "path": each.path} for each in self.places]
        return {"kind": self.kind, "setting": self.setting, "message": self.message, "places": places}


class Report:
    """Collects entries while an import runs; the same words about the same setting become one entry with several places."""

    def __init__(self) -> None:
        self._found: dict[tuple[Kind, str, str], dict[Place, None]] = {}

    def lost(self, place: Place, setting: str, message: str) -> None:
        """Nothing in Trilemma does this."""
        self.add("lost", place, setting, message)

    def changed(self, place: Place, setting: str, message: str) -> None:
        """Taken over, with another meaning."""
        self.add("changed", place, setting, message)

    def todo(self, place: Place, setting: str, message: str) -> None:
        """For the operator to do."""
        self.add("todo", place, setting, message)

    def add(self, kind: Kind, place: Place, setting: str, message: str) -> None:
        """An entry of any kind."""
        self._found.setdefault((kind, setting, message), {})[place] = None

    @property
    def entries(self) -> tuple[Entry, ...]:
        """By kind, in the order in which they were found."""
        found = [Entry(kind, setting, message, tuple(places)) for (kind, setting, message), places in self._found.items()]
        return tuple(entry for kind in TITLES for entry in found if entry.kind == kind)


def counts(entries: Iterable[Entry]) -> dict[Kind, int]:
    """Kind -> number of entries, every kind named."""
    counted = Counter(entry.kind for entry in entries)
    return {kind: counted[kind] for kind in TITLES}


def table(entries: Iterable[Entry]) -> str:
    """The entries as text: under each kind, columns of place, setting and message."""
    entries = tuple(entries)
    rows = [(entry.kind, _places(entry.places), entry.setting, entry.message) for entry in entries]
    widths = [max((len(row[column]) for row in rows), default=0) for column in (1, 2)]
    lines: list[str] = []
    for kind, title in TITLES.items():
        own = [row for row in rows if row[0] == kind]
        if own:
            lines += [f"{title} ({len(own)}):"]
            lines += [f"  {places:{widths[0]}}  {setting:{widths[1]}}  {message}" for _, places, setting, message in own]
    return "".join(line + "\n" for line in lines)


def _places(places: tuple[Place, ...]) -> str:
    """`config.yaml:3,9,12 +4`: lines of one file stand together."""
    by_file: dict[str, list[str]] = {}
    for place in places[:_PLACES_SHOWN]:
        by_file.setdefault(place.file, []).extend([str(place.line)] if place.line else [])
    text = " ".join(f"{file}:{','.join(dict.fromkeys(lines))}" if lines else file for file, lines in by_file.items())
    return text + (f" +{len(places) - _PLACES_SHOWN}" if len(places) > _PLACES_SHOWN else "")
