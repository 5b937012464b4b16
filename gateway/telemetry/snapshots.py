"""Several workers' numbers: each writes its own to a file in a shared folder, and whoever is asked adds the others' to his.

    folder = SnapshotFolder(path, run="c0ffee", slot=2)
    base = folder.before()         what processes that had this slot before counted; add it to one's own from then on
    folder.write(snapshot)         once a second, and a last time at the end
    folder.others()                what the other slots hold

A run is one start of the gateway: files of another are ignored, as are torn ones and whatever else lies there. A slot has one process at a
time; the next one goes on where the last one stood, so counters never go back. Of a process that has ended, or has not written for ten
seconds, only counters count.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from gateway.telemetry.families import FAMILIES, Family
from gateway.telemetry.numbers import Bins, Labels, Snapshot, Value, lasting

STALE_S: Final = 10.0
_SUFFIX: Final = ".numbers"


class _Single(msgspec.Struct, array_like=True):
    labels: tuple[str, ...]
    value: float


class _Histogram(msgspec.Struct, array_like=True):
    labels: tuple[str, ...]
    counts: tuple[int, ...]
    total: float


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """at: time.monotonic(), which all processes of a machine share. ended: nothing more will come."""

    run: str
    slot: int
    at: float
    ended: bool
    singles: dict[str, list[_Single]]
    histograms: dict[str, list[_Histogram]]


class SnapshotFolder:
    """run: the same for all workers of one start. slot: this worker's; None: of one that only reads. now: a clock that all processes
    share."""

    def __init__(self, folder: Path, run: str, slot: int | None, now: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._run = run
        self._slot = slot
        self._now = now
        self._writing = threading.Lock()
        self._over = False

    def before(self) -> Snapshot:
        """The counters of this slot's earlier processes."""
        found = None if self._slot is None else self._read(self._path(self._slot))
        return {} if found is None else lasting(_numbers(found))

    def write(self, snapshot: Snapshot, *, ended: bool = False) -> None:
        """Replaces this slot's file, whole; any thread. After what is written as `ended` nothing changes any more. Raises OSError."""
        assert self._slot is not None, "it only reads"
        path = self._path(self._slot)
        fresh = path.with_suffix(".new")
        data = msgspec.json.encode(_file(self._run, self._slot, self._now(), snapshot, ended=ended))
        with self._writing:
            if not self._over:
                self._over = ended
                fresh.write_bytes(data)
                fresh.replace(path)

    def others(self) -> list[Snapshot]:
        """What the other slots hold; only counters of those whose process is gone, or silent."""
        found: list[Snapshot] = []
        for path in sorted(self._folder.glob(f"*{_SUFFIX}")):
            if self._slot is not None and path == self._path(self._slot):
                continue
            file = self._read(path)
            if file is not None:
                numbers = _numbers(file)
                silent = file.ended or self._now() - file.at > STALE_S
                found.append(lasting(numbers) if silent else numbers)
        return found

    def _path(self, slot: int) -> Path:
        return self._folder / f"{slot}{_SUFFIX}"

    def _read(self, path: Path) -> _File | None:
        with contextlib.suppress(OSError, msgspec.DecodeError, msgspec.ValidationError):
            file = msgspec.json.decode(path.read_bytes(), type=_File)
            if file.run == self._run and path == self._path(file.slot) and _sound(file):
                return file
        return None


def _file(run: str, slot: int, at: float, snapshot: Snapshot, *, ended: bool) -> _File:
    file = _File(run, slot, at, ended, {}, {})
    for name, values in snapshot.items():
        for labels, value in values.items():
            if isinstance(value, Bins):
                file.histograms.setdefault(name, []).append(_Histogram(labels, value.counts, value.total))
            else:
                file.singles.setdefault(name, []).append(_Single(labels, value))
    return file


def _numbers(file: _File) -> dict[str, dict[Labels, Value]]:
    found: dict[str, dict[Labels, Value]] = {name: {each.labels: each.value for each in values} for name, values in file.singles.items()}
    found.update({name: {each.labels: Bins(each.counts, each.total) for each in values} for name, values in file.histograms.items()})
    return found


def _sound(file: _File) -> bool:
    """Whether all of it fits what this version counts."""
    for name, singles in file.singles.items():
        family = FAMILIES.get(name)
        if family is None or family.kind == "histogram" or not all(_labelled(family, each.labels) for each in singles):
            return False
    for name, histograms in file.histograms.items():
        family = FAMILIES.get(name)
        if family is None or family.kind != "histogram":
            return False
        if not all(_labelled(family, each.labels) and len(each.counts) == len(family.bounds) + 1 for each in histograms):
            return False
    return math.isfinite(file.at)


def _labelled(family: Family, labels: tuple[str, ...]) -> bool:
    return len(labels) == len(family.labels)
