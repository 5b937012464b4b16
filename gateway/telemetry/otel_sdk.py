"""Our spans as the SDK's. Imported only when spans are wanted (otel.py): it needs the extra `otel`."""

from __future__ import annotations

import os
from collections.abc import Sequence

from opentelemetry import trace as api
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision

from gateway import __version__
from gateway.telemetry import names
from gateway.telemetry.spans import Span, Trace
from gateway.telemetry.traceparent import Parent


class _Ids(IdGenerator):
    """Gives the ids that were decided before."""

    trace_id = 0
    span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


class _Ended(SpanProcessor):
    """Keeps the spans that have ended."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


class Spans:
    """Sampling, resource and limits are as OTEL_* says; `make` is for one thread."""

    def __init__(self) -> None:
        self._ids = _Ids()
        self._ended = _Ended()
        # The SDK would let what is given here win over the environment.
        named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        about = {"service.version": __version__} | ({} if named else {"service.name": "trilemma"})
        self._provider = TracerProvider(resource=Resource.create(about), id_generator=self._ids, shutdown_on_exit=False)
        self._provider.add_span_processor(self._ended)
        self._tracer = self._provider.get_tracer("trilemma", __version__, schema_url=names.SCHEMA)

    def sampled(self, parent: Parent | None, trace_id: int) -> bool:
        """Whether the spans of a trace are to be sent."""
        context = None if parent is None else _within(parent.trace_id, parent.span_id, sampled=parent.sampled)
        return self._provider.sampler.should_sample(context, trace_id, "").decision is Decision.RECORD_AND_SAMPLE

    def make(self, trace: Trace) -> Sequence[ReadableSpan]:
        """The spans of a trace; none when it is not sampled."""
        self._ended.spans = []
        parent = trace.parent
        context = Context() if parent is None else _within(parent.trace_id, parent.span_id, sampled=parent.sampled)
        request = self._started(trace, trace.request, context, api.SpanKind.SERVER)
        below = api.set_span_in_context(request, Context())
        for call in trace.calls:
            self._started(trace, call, below, api.SpanKind.CLIENT).end(call.end_ns)
        request.end(trace.request.end_ns)
        return self._ended.spans

    def _started(self, trace: Trace, span: Span, context: Context, kind: api.SpanKind) -> api.Span:
        self._ids.trace_id, self._ids.span_id = trace.trace_id, span.span_id
        started = self._tracer.start_span(span.name, context, kind, span.attributes, start_time=span.start_ns)
        if span.failed:
            started.set_status(api.StatusCode.ERROR)
        return started


def _within(trace_id: int, span_id: int, *, sampled: bool) -> Context:
    """A context below a span of another process."""
    flags = api.TraceFlags(api.TraceFlags.SAMPLED if sampled else api.TraceFlags.DEFAULT)
    return api.set_span_in_context(api.NonRecordingSpan(api.SpanContext(trace_id, span_id, True, flags)), Context())
