"""Figures from made-up runs, worked out by hand."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from gateway.load.backends import Gauges
from gateway.load.figures import figures, names, statuses, tenants, timeline
from gateway.load.inject import Happened
from gateway.load.outcome import KINDS, Record
from gateway.load.placement import Placed
from gateway.load.report import Report, report, requests_csv
from gateway.load.run import Observed, Settled
from gateway.load.scenario import Scenario
from gateway.load.watch import GaugeSample, ProcessSample, orphans
from tests.load.making import scenario

LARGE = {"constant": 1, "model": "large"}


def record(number: int = 0, **more: Any) -> Record:
    given = {"load": "chat", "tenant": "default", "at": float(number), "stream": True, "slow": False, "max_tokens": 11}
    return Record(number=number, **(given | more))


def complete(number: int = 0, *, ttft: float = 0.1, total: float = 1.0, **more: Any) -> Record:
    at = more.setdefault("at", float(number))
    moments = {"sent": at, "head": at, "first": at + ttft, "last": at + total, "end": at + total}
    return record(number, **({"status": 200, "whole": True, "sse": True, "valid": True, "done": True, "events": 12} | moments | more))


def refused(number: int, status: int, **more: Any) -> Record:
    return record(number, status=status, whole=True, head=number + 0.01, end=number + 0.01, sent=float(number), **more)


def observed(*records: Record, **more: Any) -> Observed:
    given: dict[str, Any] = {
        "records": list(records),
        "gaps": {},
        "lags": array("d"),
        "health_s": [],
        "health_failures": 0,
        "before": None,
        "samples": [],
        "gauges": [],
        "happened": [],
        "settled": Settled(),
        "backends": {},
        "backend_metrics": {},
        "gateway_metrics": [],
        "lasted_s": 10.0,
    }
    return Observed(**(given | more))


def of(*records: Record, made: Scenario | None = None, **more: Any) -> dict[str, float | None]:
    return figures(made or scenario(), observed(*records, **more))


def test_every_request_has_one_end() -> None:
    ends = [
        complete(0),
        refused(1, 503, code="gateway_overloaded", retry_after=True),
        refused(2, 429, code="rate_limit_exceeded"),
        refused(3, 404, code="model_not_found"),
        refused(4, 502, code=None),
        record(5),
        record(6, status=200, sse=True, whole=True, errors=1),
        record(7, status=200, sse=True, events=3),
        record(8, status=200, whole=True),
        record(9, hung=True),
        record(10, left=True, status=200, sse=True, events=3),
    ]

    found = of(*ends)

    told = {kind: found[kind] for kind in KINDS}
    assert told == {
        "complete": 1,
        "shed": 2,
        "refused": 1,
        "failed": 2,
        "broken": 1,
        "truncated": 1,
        "garbled": 1,
        "hung": 1,
        "left": 1,
    }
    assert sum(told.values()) == found["offered"] == 11
    assert found["violations"] == 3
    assert found["shed_share"] == pytest.approx(2 / 11)
    assert found["shed_without_retry_after"] == 1
    assert found["errors_without_envelope"] == 1
    assert found["goodput_share"] == pytest.approx(1 / 10)  # the one that left asked for nothing more
    assert found["goodput_rps"] == pytest.approx(0.1)


def test_good_is_complete_and_in_time() -> None:
    made = scenario(slo={"ttft_s": 0.5, "total_s": 2.0})

    found = of(
        complete(0),
        complete(1, ttft=0.6),
        complete(2, total=2.5),
        complete(3, ttft=0.5, total=2.0),
        complete(4, ttft=1.9, total=1.9, sse=False),  # no first event: only the end counts
        complete(5, slow=True, total=50.0),  # takes its time by itself
        made=made,
    )

    assert found["goodput_share"] == pytest.approx(3 / 5)


def test_added_latency_is_what_a_healthy_backend_does_not_need() -> None:
    made = scenario(backends={"mock": {"first_token_s": 0.2, "tokens_per_second": 10}})

    stream = of(complete(0, ttft=0.25, total=1.5), made=made)
    whole = of(complete(0, total=1.23, sse=False), made=made)  # 11 tokens: 0.2 + 10 / 10

    assert stream["added_p50_ms"] == pytest.approx(50)
    assert stream["ttft_p50_ms"] == pytest.approx(250)
    assert whole["added_p50_ms"] == pytest.approx(30)
    assert whole["ttft_p50_ms"] is None


def test_a_prompt_that_was_computed_is_not_added_latency_and_one_that_was_cached_is_not_needed() -> None:
    """10,000 tokens a second: 4,000 tokens that were not cached need 0.4 s, after 0.1 s."""
    made = scenario(backends={"mock": {"first_token_s": 0.1, "prefill_tokens_per_second": 10_000, "tokens_per_second": 10}})

    assert of(complete(0, ttft=0.55, uncached=4_000), made=made)["added_p50_ms"] == pytest.approx(50)
    assert of(complete(0, ttft=0.55, uncached=0), made=made)["added_p50_ms"] == pytest.approx(450)
    assert of(complete(0, total=1.53, uncached=4_000, sse=False), made=made)["added_p50_ms"] == pytest.approx(30)  # and ten tokens more
    assert of(complete(0, ttft=0.55), made=made)["added_p50_ms"] is None  # what was computed is not known


def test_added_latency_is_that_of_the_model_that_served() -> None:
    groups = {"large": {"first_token_s": 0.5}, "small": {"model": "small", "first_token_s": 0.1}}
    made = scenario(backends={"large": groups["large"] | {"model": "large"}, "small": groups["small"]}, load={"chat": LARGE})

    found = of(complete(0, ttft=0.52, model="large"), complete(1, ttft=0.13, model="small"), made=made)

    assert (found["added_p50_ms"], found["added_p99_ms"]) == (pytest.approx(20), pytest.approx(30))
    assert found["fallback_share"] == 0.5


def test_only_answers_count_as_fallbacks_and_only_those_that_tell() -> None:
    made = scenario(backends={"mock": {"model": "large"}}, load={"chat": LARGE})

    found = of(
        complete(0, model="large"),
        complete(1, model="small"),
        complete(2),
        refused(3, 502, model=""),
        complete(4, model="large"),
        made=made,
    )

    assert found["fallback_share"] == pytest.approx(1 / 3)
    assert of(complete(0), made=made)["fallback_share"] is None


def test_calls_are_counted_at_the_backends() -> None:
    groups = {"a": {"count": 2, "model": "a"}, "b": {"model": "b"}, "spare": {"model": "spare"}}
    made = scenario(backends=groups, load={"a": {"constant": 1, "model": "a"}, "b": {"constant": 1, "model": "b"}})
    counted = {"a-0": Gauges(total=90, calls=9), "a-1": Gauges(total=90, calls=3), "b": Gauges(calls=4), "spare": Gauges(calls=2)}
    asked = [complete(n, load="a" if n < 8 else "b") for n in range(12)]

    found = of(*asked, made=made, backends=counted)
    without = of(*asked, made=made, backends={name: one for name, one in counted.items() if name != "a-1"})

    assert found["calls_per_request"] == pytest.approx(18 / 12)
    assert (found["a.calls_per_request"], found["b.calls_per_request"]) == (1.5, 1.0)
    assert found["calls_spread"] == 1.5  # 9 of a mean of 6
    assert (without["calls_per_request"], without["a.calls_per_request"], without["b.calls_per_request"]) == (None, None, 1.0)
    assert without["calls_spread"] is None


def test_of_two_loads_with_one_model_the_calls_are_not_told_apart() -> None:
    made = scenario(load={"a": {"constant": 1}, "b": {"constant": 1}})

    found = of(complete(0, load="a"), complete(1, load="b"), made=made, backends={"mock": Gauges(calls=3)})

    assert (found["calls_per_request"], found["a.calls_per_request"]) == (1.5, None)


def test_the_slowest_drain_is_told_if_all_ended() -> None:
    def drain(began: float, ended: float | None) -> Happened:
        return Happened(do="drain", backend="mock", began=began, ended=ended)

    kill = Happened(do="kill", backend="mock", began=9.0)

    assert of(happened=[drain(1.0, 1.5), drain(5.0, 7.5), kill])["drained_max_s"] == 2.5
    assert of(happened=[drain(1.0, 1.5), drain(5.0, None)])["drained_max_s"] is None
    assert of(happened=[kill])["drained_max_s"] is None


def test_other_placements_are_told_beside_the_measured_one() -> None:
    made = scenario(placements=["random", "hash"])
    text = "vllm:prefix_cache_queries_total 100\nvllm:prefix_cache_hits_total 30\n"
    placed = {"random": Placed(0.2, 1.1), "hash": Placed(0.25, 2.0)}

    found = figures(made, observed(complete(0), backend_metrics={"mock": text}), placed)

    assert (found["prefix_hit_share"], found["prefix_hit_share_random"], found["prefix_hit_share_hash"]) == (0.3, 0.2, 0.25)
    assert found["prefix_gain"] == pytest.approx(1.5)
    assert of(complete(0), backend_metrics={"mock": text})["prefix_gain"] is None


def test_latency_counts_from_when_it_was_due_or_from_an_early_start() -> None:
    late = complete(0, at=5.0, sent=5.4, first=5.5)
    early = complete(0, at=5.0, sent=4.9, first=5.5)

    assert of(late)["ttft_p50_ms"] == pytest.approx(500)
    assert of(early)["ttft_p50_ms"] == pytest.approx(600)


def test_gaps_are_told_in_ms() -> None:
    gaps = array("d", [0.01] * 98 + [0.1, 0.4])

    found = of(gaps={"chat": gaps})

    assert [found[f"gap_{name}_ms"] for name in ("p50", "p95", "p99", "max")] == pytest.approx([10, 10, 100, 400])


def test_each_load_has_its_own_figures_where_there_are_several() -> None:
    made = scenario(load={"a": {"constant": 1}, "b": {"constant": 1}})

    found = of(complete(0, load="a"), refused(1, 502, load="b"), made=made)

    assert list(found) == names(made)
    assert (found["a.complete"], found["a.failed"], found["b.complete"], found["b.failed"]) == (1, 0, 0, 1)
    assert (found["a.goodput_share"], found["b.goodput_share"]) == (1, 0)


def test_what_the_gateway_tells_of_itself() -> None:
    found = of(complete(0, attempts=1, overhead_ms=0.2), complete(1, attempts=3, overhead_ms=0.4), record(2))

    assert (found["attempts_mean"], found["attempts_max"]) == (2, 3)
    assert (found["overhead_p50_ms"], found["overhead_p99_ms"]) == (0.2, 0.4)


def test_the_loop_lag_is_taken_from_the_metrics_if_it_is_there() -> None:
    exposed = '# TYPE trilemma_loop_lag_seconds gauge\ntrilemma_loop_lag_seconds{worker="0"} %s\ntrilemma_requests_total 7\n'
    histogram = 'trilemma_loop_lag_seconds_bucket{le="+Inf"} 30\ntrilemma_loop_lag_seconds_sum 2\ntrilemma_loop_lag_seconds_count 30\n'

    assert of(gateway_metrics=[exposed % 0.002, exposed % 0.012, "", exposed % 0.001])["loop_lag_max_ms"] == pytest.approx(12)
    assert of(gateway_metrics=["trilemma_loop_lag_max_seconds 0.5\n"])["loop_lag_max_ms"] == pytest.approx(500)
    assert of(gateway_metrics=[histogram])["loop_lag_max_ms"] is None
    assert of()["loop_lag_max_ms"] is None


def test_the_process_is_told_before_at_its_worst_and_after() -> None:
    samples = [ProcessSample(1.0, 500_000.0, 0.25, 60_000_000, 50), ProcessSample(5.0, 2_500_000.0, 1.25, 80_000_000, 200)]
    settled = Settled(in_flight=0, backends_in_flight=0, seconds=0.5, process=ProcessSample(6.0, 0.0, 0.0, 70_000_000, 6))
    backends = {"a": Gauges(total=5, aborted=1), "b": Gauges(total=7, aborted=2)}

    found = of(complete(0), before=ProcessSample(0.0, 0.0, 0.0, 50_000_000, 6), samples=samples, settled=settled, backends=backends)

    assert found["gateway_cpu_s"] == 2.0
    assert found["gateway_cpu_share"] == 0.5
    assert found["gateway_waited_share"] == 0.25
    assert found["cpu_us_per_event"] == pytest.approx(2_000_000 / 12)
    assert [found[f"rss_{when}_mb"] for when in ("before", "peak", "after", "growth")] == [50, 80, 70, 30]
    assert [found[f"sockets_{when}"] for when in ("before", "peak", "after")] == [6, 200, 6]
    assert (found["in_flight_after"], found["backends_in_flight_after"], found["settled_s"]) == (0, 0, 0.5)
    assert (found["backend_requests"], found["backend_aborted"]) == (12, 3)


def test_of_a_gateway_elsewhere_nothing_is_known() -> None:
    found = of(complete(0), made=scenario(target={"url": "http://127.0.0.1:9"}))

    unknown = {name for name, value in found.items() if value is None}
    assert {"gateway_cpu_s", "rss_peak_mb", "sockets_after", "in_flight_after", "backend_aborted", "added_p50_ms"} <= unknown
    assert found["complete"] == 1


def test_the_prefix_cache_is_asked_at_all_backends() -> None:
    text = 'vllm:prefix_cache_queries_total{engine="0"} %d\nvllm:prefix_cache_hits_total{engine="0"} %d\n'

    assert of(backend_metrics={"a": text % (100, 50), "b": text % (300, 50)})["prefix_hit_share"] == 0.25
    assert of(backend_metrics={"a": ""})["prefix_hit_share"] is None


def test_orphans_are_what_nobody_has_waited_for_for_a_second() -> None:
    in_time = [GaugeSample(t / 4, 10 if t < 8 else 2, 10 if t < 11 else 2) for t in range(20)]  # heard 0.75 s after they left
    late = [GaugeSample(t / 4, 10 if t < 8 else 2, 10 if t < 16 else 2) for t in range(20)]

    assert orphans(in_time) == 0
    assert orphans(late) == 8
    assert orphans([]) == 0


def test_fairness_compares_with_what_each_could_have_had() -> None:
    made = scenario(tenants={"gold": {"weight": 2}, "iron": {}, "idle": {}})
    asked = [complete(n, tenant="gold") for n in range(4)] + [refused(n, 503, tenant="gold") for n in range(4, 8)]
    asked += [complete(n, tenant="iron") for n in range(8, 10)] + [refused(n, 503, tenant="iron") for n in range(10, 18)]

    found = tenants(made, asked)

    assert found["gold"] == {"weight": 2.0, "offered": 8.0, "served": 4, "fair": pytest.approx(4.0)}
    assert found["iron"] == {"weight": 1.0, "offered": 10.0, "served": 2, "fair": pytest.approx(2.0)}
    assert found["idle"]["fair"] == 0
    assert of(*asked, made=made)["jain"] == pytest.approx(1.0)
    unfair = [complete(n, tenant="iron") for n in range(6)] + [refused(n, 503, tenant="gold") for n in range(6, 14)]
    # iron served 6 of a fair 2, gold 0 of a fair 4
    assert of(*unfair, made=made)["jain"] == pytest.approx(0.5)


def test_the_time_line_is_by_the_second_in_which_requests_were_due() -> None:
    rows = timeline(
        observed(
            complete(0, at=0.2, ttft=0.1),
            complete(1, at=0.9, ttft=0.3),
            refused(2, 502, at=2.5),
            samples=[ProcessSample(2.1, 1_500_000.0, 0.0, 40_000_000, 9)],
            gauges=[GaugeSample(-0.2, 0, 0), GaugeSample(0.3, 2, 1)],
        )
    )

    assert rows[0] == {"second": 0, "complete": 2, "ttft_max_ms": pytest.approx(300), "in_flight": 2, "backends_in_flight": 1}
    assert rows[1] == {"second": 2, "failed": 1, "rss_mb": 40.0, "sockets": 9, "cpu_s": 1.5}


def test_answers_are_counted_by_status_and_reason() -> None:
    assert statuses([complete(0), complete(1), refused(2, 502, code="backend_error"), record(3, trouble="no connection: X")]) == {
        "200": 2,
        "502 backend_error": 1,
        "0 no connection: X": 1,
    }


def test_a_report_says_what_was_kept() -> None:
    made = scenario(
        expect={"failed": {"max": 1}, "complete": 2, "hung": {"min": 1, "max": 3}, "rss_peak_mb": {"max": 9}}, tenants={"a": {}, "b": {}}
    )
    seen = observed(complete(0, tenant="a"), refused(1, 502, tenant="b"), happened=[Happened(do="kill", backend="mock", began=1.0)])

    found = report(made, seen)

    assert [(one.figure, one.bound(), one.value, one.kept) for one in found.expectations] == [
        ("failed", "<= 1", 1, True),
        ("complete", "= 2", 1, False),
        ("hung", ">= 1 and <= 3", 0, False),
        ("rss_peak_mb", "<= 9", None, False),
    ]
    assert not found.passed
    text = found.text()
    lines = [line.split() for line in text.splitlines()]
    assert ["complete", "1", "=", "2", "MISSED"] in lines
    assert ["failed", "1", "<=", "1", "kept"] in lines
    assert ["kill", "mock", "1", "-", "-"] in lines
    assert ["b", "1", "1", "0", "0.5"] in lines
    assert text.endswith("NOT PASSED\n")


def test_a_gateway_that_died_has_not_passed() -> None:
    found = report(scenario(expect={"failed": 0}), observed(complete(0), died="Segmentation fault"))

    assert isinstance(found, Report)
    assert [one.kept for one in found.expectations] == [True]
    assert not found.passed
    assert "Segmentation fault" in found.text()


def test_a_busy_machine_is_told() -> None:
    busy, idle = observed(complete(0), lags=array("d", [0.03])), observed(complete(0), lags=array("d", [0.001]))

    assert "The machine was busy" in report(scenario(), busy).text()
    assert "The machine was busy" not in report(scenario(), idle).text()


def test_requests_are_told_one_by_one() -> None:
    lines = requests_csv([complete(1), record(0)]).splitlines()

    assert lines[0].split(",")[:4] == ["number", "load", "tenant", "at"]
    assert [line.split(",")[0] for line in lines[1:]] == ["0", "1"]
    assert [line.split(",")[-1] for line in lines[1:]] == ["failed", "complete"]
