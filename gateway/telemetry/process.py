"""The process as the operating system sees it: CPU time, memory, open files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.telemetry.families import FAMILIES
from gateway.telemetry.numbers import Labels, Value

if TYPE_CHECKING:
    from prometheus_client import ProcessCollector


class Process:
    """This process. The library is imported when it is first read; where there is no /proc there are no numbers."""

    def __init__(self) -> None:
        self._collector: ProcessCollector | None = None

    def read(self) -> dict[str, dict[Labels, Value]]:
        """As it is now. Reads files: not for the event loop."""
        if self._collector is None:
            from prometheus_client import ProcessCollector  # 20 ms and 2 MB that a gateway nobody scrapes can do without

            self._collector = ProcessCollector(registry=None)
        found: dict[str, dict[Labels, Value]] = {}
        for metric in self._collector.collect():
            if metric.name in FAMILIES:
                found[metric.name] = {(): float(metric.samples[0].value)}
        return found
