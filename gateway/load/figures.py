"""From what a run saw to its figures: docs/load.md says what each means. A figure that cannot be had is None."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from gateway.load.numbers import fair_shares, jain, percentile
from gateway.load.outcome import KINDS, VIOLATIONS, Record
from gateway.load.placement import Placed, spread
from gateway.load.run import Observed
from gateway.load.scenario import Scenario
from gateway.load.watch import orphans

Figures = dict[str, float | None]
_SAMPLE: Final = re.compile(r"^([\w:]+)(?:\{[^}]*\})? (\S+)", re.MULTILINE)
_LOOP_LAG: Final = "trilemma_loop_lag"
_NO_GAUGE: Final = ("_bucket", "_sum", "_count", "_total", "_created")
_PERCENTS: Final = ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
# Figures that are told for each kind of load, too, where there are several.
OF_REQUESTS: Final = (
    "offered",
    *KINDS,
    "violations",
    "goodput_share",
    "goodput_rps",
    "shed_share",
    "shed_without_retry_after",
    "errors_without_envelope",
    "calls_per_request",
    "fallback_share",
    *(f"{what}_{percent}_ms" for what in ("ttft", "added", "gap") for _, percent in _PERCENTS),
    "gap_max_ms",
    "total_p50_s",
    "total_p99_s",
)
OF_RUN: Final = (
    "jain",
    "attempts_mean",
    "attempts_max",
    "overhead_p50_ms",
    "overhead_p99_ms",
    "late_p99_ms",
    "client_lag_p99_ms",
    "client_lag_max_ms",
    "health_p50_ms",
    "health_p99_ms",
    "health_max_ms",
    "health_failures",
    "loop_lag_max_ms",
    "gateway_alive",
    "gateway_cpu_s",
    "gateway_cpu_share",
    "gateway_waited_share",
    "cpu_us_per_event",
    "rss_before_mb",
    "rss_peak_mb",
    "rss_after_mb",
    "rss_growth_mb",
    "sockets_before",
    "sockets_peak",
    "sockets_after",
    "in_flight_after",
    "backends_in_flight_after",
    "settled_s",
    "backend_requests",
    "backend_aborted",
    "orphans_max",
    "calls_spread",
    "drained_max_s",
    "prefix_hit_share",
    "prefix_gain",
)


def names(scenario: Scenario) -> list[str]:
    """Every figure that a run of this scenario has."""
    of_loads = [f"{load}.{name}" for load in scenario.load for name in OF_REQUESTS] if len(scenario.load) > 1 else []
    return [*OF_REQUESTS, *OF_RUN, *(f"prefix_hit_share_{rule}" for rule in scenario.placements), *of_loads]


def figures(scenario: Scenario, seen: Observed, placed: Mapping[str, Placed] = MappingProxyType({})) -> Figures:
    """All of them, by name. placed: what each rule of the scenario's `placements` would have done."""
    records = seen.records
    out: Figures = _of_requests(scenario, records, [gap for gaps in seen.gaps.values() for gap in gaps])
    out |= _of_headers(records) | _of_callers(seen) | _of_process(seen) | _of_backends(scenario, seen)
    out["calls_per_request"] = _calls_per_request(seen, scenario.instances(), len(records))
    out |= _of_placements(out["prefix_hit_share"], placed)
    out["jain"] = jain([one["served"] / one["fair"] for one in tenants(scenario, records).values() if one["fair"] > 0])
    if len(scenario.load) > 1:
        for name in scenario.load:
            own = [record for record in records if record.load == name]
            found = _of_requests(scenario, own, seen.gaps.get(name, ()))
            found["calls_per_request"] = _calls_per_request(seen, _backends_of(scenario, name), len(own))
            out |= {f"{name}.{figure}": value for figure, value in found.items()}
    return {name: out[name] for name in names(scenario)}


def tenants(scenario: Scenario, records: Sequence[Record]) -> dict[str, dict[str, float]]:
    """By tenant: requests offered (less those that left), served whole, and served had all been shared fairly by weight."""
    wanted, served = Counter[str](), Counter[str]()
    for record in records:
        wanted[record.tenant] += record.kind != "left"
        served[record.tenant] += record.kind == "complete"
    demand = {name: float(wanted[name]) for name in scenario.tenants}
    weight = {name: one.weight for name, one in scenario.tenants.items()}
    fair = fair_shares(demand, weight, float(served.total()))
    return {name: {"weight": weight[name], "offered": demand[name], "served": served[name], "fair": fair[name]} for name in demand}


def added_s(scenario: Scenario, record: Record) -> float | None:
    """What a complete answer took beyond what its backend, in health, needs: to its first event, or of a whole answer to its end."""
    group = scenario.healthy(record.model or "") or scenario.healthy(scenario.load[record.load].model)
    if group is None or group.behaviour is not None or record.kind != "complete":
        return None
    if group.prefill_tokens_per_second and record.uncached is None:
        return None
    uncached = record.uncached or 0
    return record.ttft - group.first_s(uncached) if record.sse else record.total - group.whole_s(uncached, record.max_tokens)


def _of_requests(scenario: Scenario, records: Sequence[Record], gaps: Iterable[float]) -> Figures:
    kinds = Counter(record.kind for record in records)
    willing = [record for record in records if record.kind != "left" and not record.slow]
    good = sum(record.good(scenario.slo.ttft_s, scenario.slo.total_s) for record in willing)
    whole = [record for record in willing if record.kind == "complete"]
    out: Figures = {"offered": len(records), **{kind: kinds[kind] for kind in KINDS}}
    out["violations"] = sum(kinds[kind] for kind in VIOLATIONS)
    out["goodput_share"] = good / len(willing) if willing else None
    out["goodput_rps"] = good / scenario.duration_s
    out["shed_share"] = kinds["shed"] / len(records) if records else None
    out["shed_without_retry_after"] = sum(record.kind == "shed" and not record.retry_after for record in records)
    out["errors_without_envelope"] = sum(record.status >= 400 and record.whole and record.code is None for record in records)
    elsewhere = [record.model != scenario.load[record.load].model for record in records if record.kind == "complete" and record.model]
    out["fallback_share"] = sum(elsewhere) / len(elsewhere) if elsewhere else None
    out |= _percentiles("ttft", (record.ttft for record in whole if record.sse))
    out |= _percentiles("added", (added for record in whole if (added := added_s(scenario, record)) is not None))
    ordered = sorted(gaps)
    out |= _percentiles("gap", ordered)
    out["gap_max_ms"] = ordered[-1] * 1e3 if ordered else None
    totals = sorted(record.total for record in whole)
    return out | {"total_p50_s": percentile(totals, 0.5), "total_p99_s": percentile(totals, 0.99)}


def _of_headers(records: Sequence[Record]) -> Figures:
    """What the gateway's answers tell about themselves."""
    attempts = [record.attempts for record in records if record.attempts is not None]
    overhead = sorted(record.overhead_ms for record in records if record.overhead_ms is not None)
    return {
        "attempts_mean": sum(attempts) / len(attempts) if attempts else None,
        "attempts_max": max(attempts, default=None),
        "overhead_p50_ms": percentile(overhead, 0.5),
        "overhead_p99_ms": percentile(overhead, 0.99),
    }


def _of_callers(seen: Observed) -> Figures:
    """How late the callers were themselves, and what the health probe met."""
    late = sorted(record.sent - record.at for record in seen.records if record.sent is not None)
    lags, health = sorted(seen.lags), sorted(seen.health_s)
    return {
        "late_p99_ms": _ms(percentile(late, 0.99)),
        "client_lag_p99_ms": _ms(percentile(lags, 0.99)),
        "client_lag_max_ms": _ms(percentile(lags, 1)),
        "health_p50_ms": _ms(percentile(health, 0.5)),
        "health_p99_ms": _ms(percentile(health, 0.99)),
        "health_max_ms": _ms(percentile(health, 1)),
        "health_failures": seen.health_failures,
        "loop_lag_max_ms": _ms(max((lag for text in seen.gateway_metrics for lag in _lags(text)), default=None)),
    }


def _of_process(seen: Observed) -> Figures:
    before, samples, after = seen.before, seen.samples, seen.settled.process
    if before is None or after is None or len(samples) < 2:
        return dict.fromkeys(name for name in OF_RUN if name.startswith(("gateway_", "cpu_", "rss_", "sockets_")))
    cpu_s = (samples[-1].cpu_us - samples[0].cpu_us) / 1e6
    span_s = samples[-1].at - samples[0].at
    events = sum(record.events for record in seen.records)
    peak = max(sample.rss for sample in (*samples, after))
    return {
        "gateway_alive": float(not seen.died),
        "gateway_cpu_s": cpu_s,
        "gateway_cpu_share": cpu_s / span_s,
        "gateway_waited_share": (samples[-1].waited_s - samples[0].waited_s) / span_s,
        "cpu_us_per_event": cpu_s * 1e6 / events if events else None,
        "rss_before_mb": before.rss / 1e6,
        "rss_peak_mb": peak / 1e6,
        "rss_after_mb": after.rss / 1e6,
        "rss_growth_mb": (peak - before.rss) / 1e6,
        "sockets_before": before.sockets,
        "sockets_peak": max(sample.sockets for sample in samples),
        "sockets_after": after.sockets,
    }


def _of_backends(scenario: Scenario, seen: Observed) -> Figures:
    counted = bool(seen.backends)
    queries = sum(sum(_values(text, "vllm:prefix_cache_queries_total")) for text in seen.backend_metrics.values())
    spreads = [
        one for model in {load.model for load in scenario.load.values()} if (one := _calls_spread(scenario, seen, model)) is not None
    ]
    hits = sum(sum(_values(text, "vllm:prefix_cache_hits_total")) for text in seen.backend_metrics.values())
    return {
        "in_flight_after": seen.settled.in_flight,
        "backends_in_flight_after": seen.settled.backends_in_flight if counted else None,
        "settled_s": seen.settled.seconds if scenario.backends else None,
        "backend_requests": sum(one.total for one in seen.backends.values()) if counted else None,
        "backend_aborted": sum(one.aborted for one in seen.backends.values()) if counted else None,
        "orphans_max": orphans(seen.gauges) if counted else None,
        "calls_spread": max(spreads, default=None),
        "drained_max_s": _drained_s(seen),
        "prefix_hit_share": hits / queries if queries else None,
    }


def _calls_spread(scenario: Scenario, seen: Observed, model: str) -> float | None:
    """Of the calls to the replicas of a model; None where there are not several that count."""
    replicas = [seen.backends[name].calls for name, one in scenario.instances().items() if one.model == model and name in seen.backends]
    return spread(replicas) if len(replicas) > 1 else None


def _calls_per_request(seen: Observed, backends: Collection[str], requests: int) -> float | None:
    """None where one of the backends cannot say."""
    if not requests or not backends or not set(backends) <= set(seen.backends):
        return None
    return sum(seen.backends[name].calls for name in backends) / requests


def _backends_of(scenario: Scenario, load: str) -> list[str]:
    """The backends of a load's model; none where another load has the same."""
    models = [one.model for one in scenario.load.values()]
    model = scenario.load[load].model
    return [name for name, one in scenario.instances().items() if one.model == model] if models.count(model) == 1 else []


def _of_placements(measured: float | None, placed: Mapping[str, Placed]) -> Figures:
    out: Figures = {f"prefix_hit_share_{rule}": one.hit_share for rule, one in placed.items()}
    random = out.get("prefix_hit_share_random")
    return out | {"prefix_gain": measured / random if random and measured is not None else None}


def _drained_s(seen: Observed) -> float | None:
    """How long the slowest drain took; None when there was none, or one did not end."""
    drains = [one for one in seen.happened if one.do == "drain"]
    took = [one.ended - one.began for one in drains if one.began is not None and one.ended is not None]
    return max(took) if drains and len(took) == len(drains) else None


def _lags(exposition: str) -> list[float]:
    """Seconds; of a gauge, under whatever name of that family the gateway has it."""
    return [value for name, value in _samples(exposition) if name.startswith(_LOOP_LAG) and not name.endswith(_NO_GAUGE)]


def _values(exposition: str, prefix: str) -> list[float]:
    """Every sample of the metrics whose names begin so."""
    return [value for name, value in _samples(exposition) if name.startswith(prefix)]


def _samples(exposition: str) -> list[tuple[str, float]]:
    return [(name, float(value)) for name, value in _SAMPLE.findall(exposition)]


def _percentiles(name: str, seconds: Iterable[float]) -> Figures:
    ordered = sorted(seconds)
    return {f"{name}_{label}_ms": _ms(percentile(ordered, share)) for share, label in _PERCENTS}


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None or not math.isfinite(seconds) else seconds * 1e3


def timeline(seen: Observed) -> list[dict[str, Any]]:
    """Second by second (of when requests were due): how they ended, their worst wait for a first event, and the gateway then."""
    rows: dict[int, dict[str, Any]] = {}
    for record in seen.records:
        row = rows.setdefault(int(record.at), {})
        row[record.kind] = row.get(record.kind, 0) + 1
        if math.isfinite(record.ttft):
            row["ttft_max_ms"] = max(row.get("ttft_max_ms", 0.0), record.ttft * 1e3)
    for sample in seen.samples:
        if sample.at >= 0:
            rows.setdefault(int(sample.at), {}).update(rss_mb=sample.rss / 1e6, sockets=sample.sockets, cpu_s=sample.cpu_us / 1e6)
    for gauge in seen.gauges:
        if gauge.at >= 0:
            rows.setdefault(int(gauge.at), {}).update(in_flight=gauge.client, backends_in_flight=gauge.backends)
    return [{"second": second, **rows[second]} for second in sorted(rows)]


def statuses(records: Sequence[Record]) -> Mapping[str, int]:
    """How often each status and error code came; 0 is no answer, with what the client met instead."""
    return dict(Counter(f"{record.status} {record.code or record.trouble or ''}".strip() for record in records).most_common())
