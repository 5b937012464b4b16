"""The table of all gateways: ratios to nginx of the same minutes, and to Trilemma."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from gateway.bench.report import columns, measured_on, number, pipes
from loadtests.peers.measure import Contender, Row, Sizes
from loadtests.peers.peer import USUAL

OURS: Final = "trilemma"
_HEAD: Final = (
    "gateway",
    "CPU us per request",
    "x nginx",
    "x Trilemma",
    "CPU us per event",
    "x nginx",
    "x Trilemma",
    "added p50, p99 ms",
    "p50, p99 ms at 32",
    "requests/s",
    "RSS MB",
    "start s",
    "",
)
_SAID: Final = 160


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON object of a run. data: source -> SHA-256; rows: nginx first."""

    version: str
    commit: str | None
    data: dict[str, str]
    sizes: Sizes
    seconds: float
    rows: list[Row]
    machine: dict[str, Any]
    notes: list[str]

    def json(self) -> bytes:
        """The object, indented, with a final newline."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    def text(self) -> str:
        """For a terminal."""
        lines = cells(self.rows)
        said = [f"{line[0]}: {line[-1]}" for line in lines[1:]]
        return "\n".join([*columns([line[:-1] for line in lines]), "", *said, "", *self.notes, *self._missing(), self._where()]) + "\n"

    def markdown(self) -> str:
        """For a page."""
        missing = [f"- {line}" for line in self._missing()]
        parts = ["\n".join(pipes(cells(self.rows))), " ".join(self.notes), *(["\n".join(missing)] if missing else []), self._where()]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _missing(self) -> list[str]:
        """For each gateway and reason, the figures that it lacks because of it."""
        grouped: dict[tuple[str, str], list[str]] = {}
        for row in self.rows:
            for name, reason in row.reasons.items():
                grouped.setdefault((row.title, reason), []).append(name)
        return [f"{title}, {', '.join(names)}: {reason}" for (title, reason), names in grouped.items()]

    def _where(self) -> str:
        return measured_on(self.version, self.commit, self.machine)


def cells(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """The head, and a line for each gateway; one that could not be measured has its reason in the last cell."""
    ours = next((row for row in rows if row.name == OURS), None)
    return [_HEAD, *(_line(row, ours) for row in rows)]


def times(row: Row, ours: Row | None, ratio: str) -> float | None:
    """How many times Trilemma's cost this one's is: both as ratios to nginx in their own minutes."""
    value, our_value = row.figures.get(ratio), ours.figures.get(ratio) if ours is not None else None
    return None if value is None or not our_value else value / our_value


def shortened(problem: str) -> str:
    """A problem that fits in a cell: its first line, and the last one if there are more, for a log speaks last."""
    lines = [line.strip() for line in problem.splitlines() if line.strip()]
    text = " ... ".join(dict.fromkeys((lines[0], lines[-1]))) if lines else ""
    return text if len(text) <= _SAID else f"{text[: _SAID - 3]}..."


def _line(row: Row, ours: Row | None) -> tuple[str, ...]:
    name = f"{row.title} {row.version}".rstrip()
    if row.problem:
        return (name, *("-" for _ in _HEAD[2:]), f"not measured: {shortened(row.problem)}")

    def of(figure: str) -> str:
        return number(row.figures.get(figure))

    return (
        name,
        of("cpu_us_per_request"),
        of("request_x_nginx"),
        number(times(row, ours, "request_x_nginx")),
        of("cpu_us_per_event"),
        of("event_x_nginx"),
        number(times(row, ours, "event_x_nginx")),
        _both(of("added_p50_ms"), of("added_p99_ms")),
        _both(of("p50_ms"), of("p99_ms")),
        of("rps"),
        of("rss_mb"),
        of("start_s"),
        row.remark,
    )


def _both(one: str, other: str) -> str:
    return f"{one}, {other}"


def notes_of(contenders: Iterable[Contender]) -> list[str]:
    """What a reader of the table has to know."""
    notes = [
        "CPU time is the whole process tree's; the least of the blocks counts. x nginx: nginx took turns with it, block by block, on the "
        "same CPU.",
        f"Requests come over {USUAL.connections} connections at once, streams over {USUAL.stream_connections}, 10 ms between their events; "
        "added: over one connection, less the same asked of the backend directly.",
    ]
    for one in contenders:
        if one.work.connections != USUAL.connections:
            notes.append(f"{one.title}, and nginx beside it: {one.work.connections} connections at once.")
        if one.work.stream_connections != USUAL.stream_connections and not one.without_streams:
            notes.append(f"{one.title}, and nginx beside it: {one.work.stream_connections} streams at once.")
    return notes
