"""Spans as a collector gets them, from a real gateway over a mock engine."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gateway.mock import Behaviour, MockBackend
from gateway.telemetry import traceparent
from gateway.telemetry.otel import Tracing, tracing, wanted
from tests.support.asking import CHAT, question
from tests.support.running import Running, config_for, running
from tests.support.scraping import scrape
from tests.support.waiting import until
from tests.telemetry.collector import Collector, collecting, plain
from tests.telemetry.receipts import receipt, upstream

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


@pytest.fixture
async def traced(collector: Collector, mock: MockBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    """A gateway whose environment names the collector; its model costs 1 and 2 USD per million tokens."""
    monkeypatch.setenv(ENDPOINT, collector.url)
    models = {"mock-model": {"price": {"input": 1.0, "output": 2.0}, "retry_wait_s": 0}}
    backends = {name: {"url": mock.url, "models": {"mock-model": "mock-model"}} for name in ("a", "b")}
    async with running(config_for(backends, models=models), tmp_path) as run:
        yield run


def sdk(monkeypatch: pytest.MonkeyPatch, url: str, **settings: str) -> Tracing:
    """What makes and sends spans, for this test to start."""
    environ = {ENDPOINT: url, **settings}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    found = tracing(environ)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("environ", "asked"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "x"}, False),
        ({ENDPOINT: "http://x"}, True),
        ({ENDPOINT: ""}, False),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, False),
        ({"OTEL_TRACES_EXPORTER": "none", ENDPOINT: "http://x"}, False),
        ({"OTEL_SDK_DISABLED": "true", ENDPOINT: "http://x"}, False),
    ],
)
def test_when_spans_are_asked_for(environ: dict[str, str], asked: bool) -> None:
    assert wanted(environ) == asked
    assert asked or tracing(environ) is None


def test_what_cannot_be_had_is_told(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tracing({ENDPOINT: "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}) is None
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    assert tracing({ENDPOINT: "http://x"}) is None
    said = [record.getMessage() for record in caplog.records]
    assert ["'grpc'" in said[0], "the extra `otel` is not installed" in said[1], len(said)] == [True, True, 2]


async def test_a_request_and_its_calls(traced: Running, collector: Collector, mock: MockBackend) -> None:
    """The first replica breaks off, the second one answers: a span of the request below the caller's, and two below that."""
    mock.script(Behaviour(reset_after_events=-1), Behaviour(body='{"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":5}}'))
    async with traced.client() as client:
        begin = time.time_ns()
        answer = await client.post(CHAT, json=question(), headers={"traceparent": PARENT})
        end = time.time_ns()
        decision = answer.headers["x-trilemma-decision-id"]
        await until(lambda: len(collector.spans) == 3)
        async with asyncio.timeout(10):
            counted = await scrape(client)
            while counted.of("trilemma_spans_total", outcome="exported") < 3:  # it hears of it after the collector
                counted = await scrape(client)
    assert counted.of("trilemma_spans_total", outcome="exported") == 3
    assert counted.of("trilemma_spans_total", outcome="failed") == counted.of("trilemma_spans_total", outcome="dropped") == 0
    assert collector.schemas == {"https://opentelemetry.io/schemas/1.41.0"}
    assert collector.resources[0]["service.name"] == "trilemma"
    by_id = {span.span_id: span for span in collector.spans}
    request, first, second = (by_id[traceparent.span_id(decision, number).to_bytes(8, "big")] for number in range(3))
    assert {span.trace_id.hex() for span in collector.spans} == {PARENT.split("-")[1]}
    assert request.parent_span_id.hex() == PARENT.split("-")[2]
    assert first.parent_span_id == second.parent_span_id == request.span_id
    assert [span.kind for span in (request, first, second)] == [request.SPAN_KIND_SERVER, *[request.SPAN_KIND_CLIENT] * 2]
    assert [span.name for span in (request, first, second)] == ["chat mock-model"] * 3
    assert begin <= request.start_time_unix_nano <= first.start_time_unix_nano <= first.end_time_unix_nano
    assert first.end_time_unix_nano <= second.start_time_unix_nano <= second.end_time_unix_nano <= request.end_time_unix_nano <= end
    assert [span.status.code for span in (request, first, second)] == [0, 2, 0]
    told = plain(request.attributes)
    assert told["trilemma.cost_usd"] == pytest.approx((30 + 2 * 5) / 1e6)
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"], told["trilemma.attempts"]) == (30, 5, 2)
    assert plain(first.attributes)["error.type"] == "reset"
    assert {plain(span.attributes)["trilemma.backend"] for span in (first, second)} == {"a", "b"}
    assert plain(second.attributes)["trilemma.purpose"] == "served"


def sent(mock: MockBackend) -> list[list[str]]:
    """The parts of the one `traceparent` that each call brought."""
    found = [[value for name, value in call.headers if name.lower() == "traceparent"] for call in mock.requests_to(CHAT)]
    assert all(len(values) == 1 for values in found)
    return [values[0].split("-") for values in found]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_backend_is_told_of_the_span_of_its_own_call(
    traced: Running, collector: Collector, mock: MockBackend, stream: bool
) -> None:
    """In the caller's trace. Of two attempts each has its own: what the collector gets is what the backends were told."""
    mock.script(Behaviour(reset_after_events=-1))
    async with traced.client() as client:
        headers = {"traceparent": PARENT, "tracestate": "vendor=1"}
        assert (await client.post(CHAT, json=question(stream=stream), headers=headers)).status_code == 200
        await until(lambda: len(collector.spans) == 3)
    calls = sorted((span for span in collector.spans if span.kind == span.SPAN_KIND_CLIENT), key=lambda span: span.start_time_unix_nano)
    assert sent(mock) == [["00", PARENT.split("-")[1], span.span_id.hex(), "01"] for span in calls]
    assert len({span.span_id for span in calls}) == 2
    assert [call.header("tracestate") for call in mock.requests_to(CHAT)] == ["vendor=1"] * 2


@pytest.mark.parametrize("headers", [{}, {"traceparent": "00-abc-def-01", "tracestate": "vendor=1"}])
async def test_a_caller_without_a_trace_begins_one(
    traced: Running, collector: Collector, mock: MockBackend, headers: dict[str, str]
) -> None:
    async with traced.client() as client:
        await client.post(CHAT, json=question(), headers=headers)
        await until(lambda: len(collector.spans) == 2)
    (call,) = (span for span in collector.spans if span.kind == span.SPAN_KIND_CLIENT)
    assert sent(mock) == [["00", call.trace_id.hex(), call.span_id.hex(), "01"]]
    assert mock.requests_to(CHAT)[0].header("tracestate") is None


async def test_without_spans_the_caller_s_trace_goes_on_as_it_came(mock: MockBackend, tmp_path: Path) -> None:
    async with (
        running(config_for({"a": {"url": mock.url, "models": {"mock-model": "mock-model"}}}), tmp_path) as run,
        run.client() as client,
    ):
        await client.post(CHAT, json=question(), headers={"traceparent": PARENT, "tracestate": "vendor=1"})
        await client.post(CHAT, json=question())
    first, second = mock.requests_to(CHAT)
    assert (first.header("traceparent"), first.header("tracestate")) == (PARENT, "vendor=1")
    assert second.header("traceparent") is second.header("tracestate") is None


async def test_a_trace_that_is_not_sampled_is_not_sent(traced: Running, collector: Collector, mock: MockBackend) -> None:
    async with traced.client() as client:
        await client.post(CHAT, json=question(), headers={"traceparent": PARENT[:-1] + "0"})
        await client.post(CHAT, json=question())
        await until(lambda: len(collector.spans) == 2)
    assert [flags for *_, flags in sent(mock)] == ["00", "01"]
    assert PARENT.split("-")[1] not in {span.trace_id.hex() for span in collector.spans}


async def test_the_last_spans_are_sent_at_the_end(
    collector: Collector, mock: MockBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENDPOINT, collector.url)
    async with (
        running(config_for({"a": {"url": mock.url, "models": {"mock-model": "mock-model"}}}), tmp_path) as run,
        run.client() as client,
    ):
        await client.post(CHAT, json=question())
    assert len(collector.spans) == 2


async def test_a_dead_collector_costs_spans_and_nothing_else(
    mock: MockBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    async with (
        running(config_for({"a": {"url": mock.url, "models": {"mock-model": "mock-model"}}}), tmp_path) as run,
        run.client() as client,
    ):
        assert (await client.post(CHAT, json=question())).status_code == 200
        await run.until_settled(1)
        await until(lambda: run.app.telemetry._tracing.counts["failed"] == 2)  # type: ignore[union-attr]
        assert (await client.post(CHAT, json=question())).status_code == 200
        assert (await scrape(client)).of("trilemma_spans_total", outcome="failed") >= 2
        begin = time.monotonic()
    assert time.monotonic() - begin < 15
    own = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING and "collector" in record.getMessage()]
    assert own == ["the collector does not take spans, and they are lost"]
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry.exporter")]


def test_more_than_may_wait_is_dropped_and_counted(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    monkeypatch.setenv(ENDPOINT, collector.url)
    found = Tracing(OTLPSpanExporter(), waiting=2)
    for _ in range(5):
        found.settled(receipt(upstream(), upstream("b")))
    assert found.counts == {"exported": 0, "failed": 0, "dropped": 9}
    found.start()
    found.close()
    assert found.counts == {"exported": 6, "failed": 0, "dropped": 9}


def test_a_collector_that_refuses_and_comes_round(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    found = sdk(monkeypatch, collector.url)
    for status in (400, 400, 200):
        collector.status = status
        found.settled(receipt())
        found._flush()
    assert found.counts == {"exported": 1, "failed": 2, "dropped": 0}
    assert [record.getMessage() for record in caplog.records] == [
        "the collector does not take spans, and they are lost",
        "the collector takes spans again; 2 are lost",
    ]


@pytest.mark.parametrize(
    ("sampler", "argument", "sent"), [("always_off", "", 0), ("traceidratio", "0", 0), ("traceidratio", "1", 1), ("always_on", "", 1)]
)
def test_the_sampler_is_the_environment_s(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, sampler: str, argument: str, sent: int
) -> None:
    found = sdk(monkeypatch, collector.url, OTEL_TRACES_SAMPLER=sampler, OTEL_TRACES_SAMPLER_ARG=argument)
    found.settled(receipt())
    found._flush()
    assert len(collector.spans) == sent
    (name, value), *_ = found.onward([], receipt(upstream()))
    assert (name, value[-1:]) == (b"traceparent", str(sent).encode())


def test_the_environment_names_service_and_headers(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {
        "OTEL_SERVICE_NAME": "mine",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test",
        "OTEL_EXPORTER_OTLP_HEADERS": "x-api-key=abc",
    }
    found = sdk(monkeypatch, collector.url, **settings)
    found.settled(receipt())
    found._flush()
    (resource,) = collector.resources
    assert (resource["service.name"], resource["deployment.environment"]) == ("mine", "test")
    assert collector.headers[0]["x-api-key"] == "abc"


def test_what_goes_on_to_a_backend_names_the_call_s_span(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the caller's, in the caller's trace; the rest of the headers stays."""
    found = sdk(monkeypatch, collector.url)
    mine = receipt(upstream(), upstream("b"), headers=((b"traceparent", PARENT.encode()), (b"tracestate", b"x=y")))
    sent = dict(found.onward([(b"accept", b"*/*"), (b"traceparent", PARENT.encode()), (b"tracestate", b"x=y")], mine))
    _, trace, span, flags = sent.pop(b"traceparent").decode().split("-")
    assert sent == {b"accept": b"*/*", b"tracestate": b"x=y"}
    assert (trace, int(span, 16), flags) == (PARENT.split("-")[1], traceparent.span_id("0190-decision", 2), "01")
    own = dict(found.onward([], receipt(upstream())))[b"traceparent"].decode().split("-")
    assert (int(own[1], 16), int(own[2], 16)) == (traceparent.trace_id("0190-decision"), traceparent.span_id("0190-decision", 1))
