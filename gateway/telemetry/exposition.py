"""Numbers in Prometheus' text format, or OpenMetrics for who asks for it; prometheus_client writes both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from gateway.telemetry.families import FAMILIES, Family
from gateway.telemetry.numbers import Bins, Labels, Snapshot, Value

if TYPE_CHECKING:
    from prometheus_client import Metric


def exposed(snapshot: Snapshot, accept: str) -> tuple[bytes, str]:
    """The text and its content type. accept: the caller's header. Takes a while for many series: not for the event loop."""
    from prometheus_client.exposition import choose_encoder  # see process.py
    from prometheus_client.registry import Collector

    class Snapshots(Collector):
        """What the library's writers ask."""

        def collect(self) -> Iterable[Metric]:
            return [_metric(family, snapshot[name]) for name, family in FAMILIES.items() if snapshot.get(name)]

    encode, content_type = choose_encoder(accept)
    return encode(Snapshots()), content_type


def _metric(family: Family, values: Mapping[Labels, Value]) -> Metric:
    from prometheus_client import Metric

    metric = Metric(family.name, family.help, family.kind)
    for labels, value in values.items():
        named = dict(zip(family.labels, labels, strict=True))
        if isinstance(value, Bins):
            _bins(metric, family, named, value)
        else:
            suffix = {"counter": "_total", "info": "_info"}.get(family.kind, "")
            metric.add_sample(family.name + suffix, named, value)
    return metric


def _bins(metric: Metric, family: Family, labels: Mapping[str, str], bins: Bins) -> None:
    below = 0
    for bound, count in zip((*map(repr, family.bounds), "+Inf"), bins.counts, strict=True):
        below += count
        metric.add_sample(f"{family.name}_bucket", {**labels, "le": bound}, below)
    metric.add_sample(f"{family.name}_count", dict(labels), below)
    metric.add_sample(f"{family.name}_sum", dict(labels), bins.total)
