"""What a run returns: one JSON object, the same as tables for people, and its requests one by one as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any, Final

import msgspec

import gateway
from gateway.bench.report import columns, commit, machine, versions
from gateway.load.figures import Figures, figures, names, statuses, tenants, timeline
from gateway.load.outcome import Record
from gateway.load.placement import compare
from gateway.load.run import Observed
from gateway.load.scenario import Scenario
from gateway.load.traces import digest

_PACKAGES = ("fastapi", "httptools", "msgspec", "orjson", "uvicorn", "uvloop")
# Without an expectation these say little to a reader in a hurry; the JSON has them all.
_QUIET = ("late_p99_ms", "overhead_p50_ms", "total_p50_s", "rss_before_mb", "sockets_before")
# From here on it is the machine that is measured.
_LATE_MS: Final = 20.0
_WAITED_SHARE: Final = 0.05


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """A bound on a figure, and whether it was kept."""

    figure: str
    min: float | None
    max: float | None
    value: float | None
    kept: bool

    def bound(self) -> str:
        """The bound in signs."""
        if self.min is not None and self.min == self.max:
            return f"= {self.min:g}"
        return " and ".join(f"{sign} {limit:g}" for sign, limit in ((">=", self.min), ("<=", self.max)) if limit is not None)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON object of `trilemma load SCENARIO --json`.

    data: trace -> SHA-256. figures: name -> number, or null when it cannot be had here. passed: every expectation was kept and the gateway
    lived. tables: `tenants`, `statuses`, `faults`, `backends`, `placements`, `timeline` (by second), `machine`, `versions`, `notes`.
    """

    scenario: str
    about: str
    version: str = gateway.__version__
    commit: str | None
    seed: int
    duration_s: float
    data: dict[str, str]
    figures: dict[str, float | None]
    expectations: list[Expectation]
    passed: bool
    tables: dict[str, Any]

    def json(self) -> bytes:
        """The object, indented, with a final newline."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    def text(self) -> str:
        """Figures with what is expected of them, tenants, faults, notes."""
        verdicts = {one.figure: one for one in self.expectations}
        rows = [("figure", "value", "expected", "")]
        for name, value in self.figures.items():
            one = verdicts.get(name)
            if one is not None:
                rows.append((name, _number(value), one.bound(), "kept" if one.kept else "MISSED"))
            elif value is not None and name not in _QUIET and "." not in name:
                rows.append((name, _number(value), "", ""))
        parts = [
            f"trilemma load {self.scenario}   version {self.version}   commit {self.commit or 'unknown'}",
            self.about,
            "",
            *columns(rows),
        ]
        if len(self.tables["tenants"]) > 1:
            tenants = ((name, *map(_number, one.values())) for name, one in self.tables["tenants"].items())
            parts += ["", *columns([("tenant", "weight", "offered", "served", "fair"), *tenants])]
        if self.tables["placements"]:
            placements = ((name, *map(_number, one.values())) for name, one in self.tables["placements"].items())
            parts += ["", *columns([("simulated placement", "prefix hit share", "calls spread"), *placements])]
        if self.tables["faults"]:
            faults = (
                (one["do"], one["backend"], *(_number(one[key]) for key in ("began", "ended", "requests"))) for one in self.tables["faults"]
            )
            parts += ["", *columns([("fault", "backend", "began", "ended", "requests"), *faults])]
        answers = ((name, _number(count)) for name, count in self.tables["statuses"].items())
        parts += ["", *columns([("answers", ""), *answers]), "", *self.tables["notes"], "passed" if self.passed else "NOT PASSED"]
        return "\n".join(parts) + "\n"


def report(scenario: Scenario, seen: Observed) -> Report:
    """The report of a run."""
    placed = compare(scenario)
    found = figures(scenario, seen, placed)
    expectations = [
        Expectation(figure=name, min=bound.min, max=bound.max, value=found[name], kept=bound.keeps(found[name]))
        for name, bound in scenario.bounds().items()
    ]
    return Report(
        scenario=scenario.name,
        about=scenario.about,
        commit=commit(),
        seed=scenario.seed,
        duration_s=scenario.duration_s,
        data={load.trace.name: digest(load.trace.name) for load in scenario.load.values() if load.trace is not None},
        figures=found,
        expectations=expectations,
        passed=all(one.kept for one in expectations) and not seen.died,
        tables={
            "tenants": tenants(scenario, seen.records),
            "statuses": statuses(seen.records),
            "faults": [msgspec.to_builtins(one) for one in sorted(seen.happened, key=lambda one: one.began or 0.0)],
            "backends": msgspec.to_builtins(seen.backends),
            "placements": msgspec.to_builtins(placed),
            "timeline": timeline(seen),
            "machine": machine(),
            "versions": versions(_PACKAGES),
            "notes": _notes(scenario, seen, found),
        },
    )


def requests_csv(records: Sequence[Record]) -> str:
    """Every request in the order in which they were due."""
    sink = io.StringIO()
    writer = csv.writer(sink)
    writer.writerow([*Record.__struct_fields__, "kind"])
    writer.writerows([*msgspec.structs.astuple(record), record.kind] for record in sorted(records, key=lambda one: one.number))
    return sink.getvalue()


def unknown_figures(scenario: Scenario) -> list[str]:
    """What is expected of figures that do not exist."""
    return sorted(set(scenario.expect) - set(names(scenario)))


def _notes(scenario: Scenario, seen: Observed, found: Figures) -> list[str]:
    notes = []
    if scenario.target is not None:
        notes.append("The gateway runs elsewhere: nothing is known of its process and its backends.")
    elif seen.pinned:
        notes.append(f"The gateway had CPU {seen.pinned} to itself; backends and callers shared the others.")
    else:
        notes.append("The gateway shared its CPUs with backends and callers: latencies are upper bounds.")
    if (found["client_lag_p99_ms"] or 0) > _LATE_MS or (found["gateway_waited_share"] or 0) > _WAITED_SHARE:
        notes.append("The machine was busy with other things (client_lag_p99_ms, gateway_waited_share): the latencies are upper bounds.")
    if seen.died:
        notes.append(f"The gateway ended during the run. Its last words:\n{seen.died}")
    return notes


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"
