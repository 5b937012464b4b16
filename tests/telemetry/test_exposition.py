from __future__ import annotations

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from gateway.telemetry.exposition import exposed
from gateway.telemetry.families import FAMILIES
from gateway.telemetry.numbers import Bins, Snapshot

SNAPSHOT: Snapshot = {
    "trilemma_requests": {("/v1/chat/completions", "m", "single", "2xx", ""): 3.0},
    "trilemma_hedges": {},
    "trilemma_inflight": {('a "quoted" \\ name',): 2.0},
    "trilemma_build": {("0.1.0", "3.11"): 1.0},
    "trilemma_loop_delay_seconds": {(): Bins((5, 0, 2, *[0] * 8, 1), 3.25)},
}


def test_prometheus_text() -> None:
    text, content_type = exposed(SNAPSHOT, "")
    assert content_type.startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in prometheus(text.decode())}
    assert set(families) == {"trilemma_requests", "trilemma_inflight", "trilemma_build_info", "trilemma_loop_delay_seconds"}
    (sample,) = families["trilemma_requests"].samples
    assert (sample.name, sample.value) == ("trilemma_requests_total", 3.0)
    assert sample.labels == {"route": "/v1/chat/completions", "model": "m", "strategy": "single", "status_class": "2xx", "error_type": ""}
    assert families["trilemma_inflight"].samples[0].labels == {"backend": 'a "quoted" \\ name'}
    histogram = families["trilemma_loop_delay_seconds"]
    below = {sample.labels["le"]: sample.value for sample in histogram.samples if sample.name.endswith("_bucket")}
    assert [below[bound] for bound in ("0.001", "0.0025", "0.005", "2.5", "+Inf")] == [5, 5, 7, 7, 8]
    assert {sample.name: sample.value for sample in histogram.samples if not sample.labels} == {
        "trilemma_loop_delay_seconds_count": 8,
        "trilemma_loop_delay_seconds_sum": 3.25,
    }


def test_openmetrics_for_who_asks() -> None:
    text, content_type = exposed(SNAPSHOT, "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    kinds = {family.name: family.type for family in openmetrics(text.decode())}
    assert kinds == {
        "trilemma_requests": "counter",
        "trilemma_inflight": "gauge",
        "trilemma_build": "info",
        "trilemma_loop_delay_seconds": "histogram",
    }


def test_every_family_can_be_shown() -> None:
    """Names, labels and help that both readers take."""
    snapshot: Snapshot = {
        family.name: {("x",) * len(family.labels): Bins((1,) * (len(family.bounds) + 1), 1.0) if family.kind == "histogram" else 1.0}
        for family in FAMILIES.values()
    }
    plain, _ = exposed(snapshot, "")
    assert len(list(prometheus(plain.decode()))) == len(FAMILIES)
    other, _ = exposed(snapshot, "application/openmetrics-text; version=1.0.0")
    assert [family.name for family in openmetrics(other.decode())] == list(FAMILIES)
