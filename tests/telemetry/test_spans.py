from __future__ import annotations

import time
from typing import Any

import pytest

from gateway.serving.call import Receipt
from gateway.telemetry import names, traceparent
from gateway.telemetry.spans import Trace, trace_of
from gateway.wire.usage import Rates, Usage
from tests.telemetry.receipts import CHAT, receipt, upstream

PARENT = (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")


def trace(found: Receipt, ended: float = 1.0) -> Trace:
    return trace_of(found, ended)


def test_a_request_and_its_calls() -> None:
    first = upstream("b", outcome="backend_error", fault="reset", status=0, first=0.2, ended=0.2)
    usage = Usage(100, 60, 10)
    second = upstream("a", started=0.3, first=0.5, ended=0.9, usage=usage)
    got = trace(
        receipt(first, second, rates=Rates(1, 0.5, 2), events=9, headers=(PARENT,), plan="small", policy="p", requested_model="auto")
    )
    assert (got.trace_id, got.parent) == (0x0AF7651916CD43DD8448EB211C80319C, traceparent.parent([PARENT]))
    assert [span.span_id for span in (got.request, *got.calls)] == [traceparent.span_id("0190-decision", number) for number in range(3)]
    assert [span.name for span in (got.request, *got.calls)] == ["chat auto", "chat m", "chat m"]
    assert [span.failed for span in (got.request, *got.calls)] == [False, True, False]
    assert got.request.attributes == {
        "http.request.method": "POST",
        "http.route": CHAT,
        "http.response.status_code": 200,
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "auto",
        "gen_ai.response.model": "m",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "gen_ai.usage.output_tokens": 10,
        "trilemma.request_id": "req-1",
        "trilemma.decision_id": "0190-decision",
        "trilemma.policy": "p",
        "trilemma.plan": "small",
        "trilemma.strategy": "single",
        "trilemma.propensity": 1.0,
        "trilemma.attempts": 2,
        "trilemma.config_hash": "hash",
        "trilemma.cost_usd": pytest.approx((40 + 30 + 20) / 1e6),
    }
    assert got.calls[0].attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m",
        "gen_ai.response.time_to_first_chunk": pytest.approx(0.1),
        "error.type": "reset",
        "trilemma.backend": "b",
        "trilemma.purpose": "served",
    }
    assert got.calls[1].attributes["gen_ai.response.time_to_first_chunk"] == pytest.approx(0.2)
    assert got.calls[1].attributes["http.response.status_code"] == 200
    assert got.calls[1].attributes["gen_ai.usage.output_tokens"] == 10


def test_times() -> None:
    """The receipt's clock, from whenever it counts, becomes the time of day."""
    now = time.perf_counter()
    found = receipt(upstream(started=now - 0.9, ended=now - 0.1))
    found.received = now - 1.0
    got = trace(found, now)
    ends = [(span.start_ns, span.end_ns) for span in (got.request, *got.calls)]
    assert got.request.end_ns / 1e9 == pytest.approx(time.time(), abs=5)
    since = [((start - ends[0][0]) / 1e9, (end - ends[0][0]) / 1e9) for start, end in ends]
    assert since == [(0, pytest.approx(1.0, abs=1e-5)), (pytest.approx(0.1, abs=1e-5), pytest.approx(0.9, abs=1e-5))]


def test_nothing_that_a_caller_made_up() -> None:
    got = trace(receipt(requested_model="made up", path="/v1/made/up", status=404, outcome="caller_error", code="model_not_found"))
    assert "made" not in str(got)
    assert got.request.name == "POST other"
    assert got.request.attributes["error.type"] == "model_not_found"
    assert not got.request.failed


@pytest.mark.parametrize(
    ("fields", "failed", "error"),
    [
        ({}, False, None),
        ({"outcome": "client_closed", "status": 0}, False, "client_closed"),
        ({"outcome": "caller_error", "status": 400}, False, "caller_error"),
        ({"outcome": "backend_error", "status": 502, "code": "backend_unreachable"}, True, "backend_unreachable"),
        ({"outcome": "gateway_error", "status": 500, "code": "gateway_internal"}, True, "gateway_internal"),
    ],
)
def test_what_is_a_failure(fields: dict[str, Any], failed: bool, error: str | None) -> None:
    got = trace(receipt(**fields))
    assert (got.request.failed, got.request.attributes.get(names.ERROR)) == (failed, error)


def test_a_trace_of_its_own() -> None:
    got = trace(receipt(upstream()))
    assert (got.trace_id, got.parent) == (traceparent.trace_id("0190-decision"), None)
