"""LiteLLM's limits of a key or a team as Trilemma's: requests and tokens per minute, and requests at once.

    of_key(record), of_team(record) -> Limits       raise ValueError
    tell(record, name, report)                      what of a key's limits is not taken over, or means something else

LiteLLM refuses every request where a limit is 0 or less; Trilemma has no such limit, so `Limits.closed` says it.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Final

from gateway.importing.dump import Record
from gateway.importing.report import Report

COLUMNS: Final = MappingProxyType({"rpm": "rpm_limit", "tpm": "tpm_limit", "concurrency": "max_parallel_requests"})
_MOST: Final = MappingProxyType({"rpm": 10**9, "tpm": 10**12, "concurrency": 10**6})
_PER_DAY: Final = "no limits per day: `limits` count a minute, or what runs at once"
_PER_MODEL: Final = "no limits per model of a key: `limits` bound all that a key or a tenant asks for"
_NOT_FOR_TEAMS: Final = "LiteLLM keeps it of a team, but refuses nothing by it: `concurrency` of `limits.tenants` would"


@dataclass(frozen=True, slots=True)
class Limits:
    """None: not limited. Requests and tokens per minute, requests at once."""

    rpm: int | None = None
    tpm: int | None = None
    concurrency: int | None = None

    @property
    def closed(self) -> str | None:
        """The column that lets nothing through, if one does."""
        return next((COLUMNS[name] for name, most in asdict(self).items() if most is not None and most < 1), None)

    def as_config(self) -> dict[str, int]:
        """What Trilemma's `limits` say; what is beyond its bounds is as good as the bound."""
        return {name: min(most, _MOST[name]) for name, most in asdict(self).items() if most is not None}


UNLIMITED: Final = Limits()


def of_key(record: Record) -> Limits:
    """The limits of a key's own row. Raises ValueError where one cannot be read."""
    return Limits(**{name: _limit(record, column) for name, column in COLUMNS.items()})


def of_team(record: Record) -> Limits:
    """What a team's keys may use together. Raises ValueError where it cannot be read."""
    return Limits(rpm=_limit(record, COLUMNS["rpm"]), tpm=_limit(record, COLUMNS["tpm"]))


def tell(record: Record, team: Record | None, name: str, report: Report) -> None:
    """What of the limits of the key `name` and of its team has no equal."""
    for source in (record, team):
        if source is None:
            continue
        if source.number("tpd_limit") is not None:
            report.lost(source.place, "tpd_limit", _PER_DAY)
        metadata = source.mapping("metadata")
        for setting in ("model_rpm_limit", "model_tpm_limit"):
            if metadata.get(setting):
                report.lost(source.place, f"metadata.{setting}", _PER_MODEL)
    if team is not None and team.number(COLUMNS["concurrency"]) is not None:
        report.todo(team.place, COLUMNS["concurrency"], _NOT_FOR_TEAMS)
    metadata = record.mapping("metadata")
    for column in (COLUMNS["rpm"], COLUMNS["tpm"]):
        if record.number(column) is not None and metadata.get(f"{column}_type") == "dynamic":
            report.changed(record.place, column, f"LiteLLM lets `{name}` pass it while its models do not fail; here it always holds")


def _limit(record: Record, column: str) -> int | None:
    """A whole number; None where there is no limit. Raises ValueError where it is neither."""
    value = record.values.get(column)
    if value is None or value == "":
        return None
    found = record.number(column)
    if found is None or not math.isfinite(found):
        raise ValueError("a limit that is no number")
    return math.floor(found)
