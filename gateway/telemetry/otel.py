"""Spans of OpenTelemetry: one for each request, and below it one for each call to a backend, made when the request has ended.

A receipt holds all times, so nothing is done while a request runs. Its span is made and sent by a thread of its own, over a bounded queue:
a collector that is slow or gone costs spans, which are counted, and nothing else. The library and its thread are there only when a
variable of OpenTelemetry asks for them (docs/telemetry.md).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from gateway.serving.call import Receipt
from gateway.telemetry import traceparent
from gateway.telemetry.spans import trace_of
from gateway.wire.errors import Header

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

log = logging.getLogger("trilemma.telemetry")

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_HTTP: Final = "http/protobuf"
# The thread wakes so often; that many requests are made into spans at once, and so many may wait.
_EVERY_S: Final = 1.0
_BATCH: Final = 256
_WAITING: Final = 4_096
_REPLACED: Final = frozenset((b"traceparent",))
_NO_TRACE: Final = frozenset((b"traceparent", b"tracestate"))


def wanted(environ: Mapping[str, str]) -> bool:
    """Whether the environment asks for spans."""
    exporters = environ.get("OTEL_TRACES_EXPORTER", "")
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or exporters == "none":
        return False
    return "otlp" in exporters.split(",") or (not exporters and any(environ.get(name) for name in _ENDPOINTS))


def tracing(environ: Mapping[str, str]) -> Tracing | None:
    """What makes and sends spans, as the environment (the process's own) says; None: it does not ask, or asks for what cannot be had, and
    the log says so."""
    if not wanted(environ):
        return None
    protocol = next((environ[name] for name in _PROTOCOLS if environ.get(name)), _HTTP)
    if protocol != _HTTP:
        log.warning("no spans: OTEL_EXPORTER_OTLP_PROTOCOL is %r, and only %s is spoken", protocol, _HTTP)
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        log.warning("no spans: OpenTelemetry is asked for, but the extra `otel` is not installed")
        return None
    # It would say so for each batch; here it is said once, and counted.
    logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)
    found = Tracing(OTLPSpanExporter())
    log.info("spans of requests are sent to the collector that OTEL_* names")
    return found


class Tracing:
    """Makes and sends spans from `start` to `close`. counts: `exported`, `failed`, `dropped`."""

    def __init__(self, exporter: SpanExporter, *, waiting: int = _WAITING, every_s: float = _EVERY_S) -> None:
        from gateway.telemetry.otel_sdk import Spans  # an extra

        self._spans = Spans()
        self._exporter = exporter
        self._waiting = waiting
        self._every_s = every_s
        self._queue: deque[tuple[Receipt, float]] = deque()
        self._closing = threading.Event()
        self._working = True
        self._thread = threading.Thread(target=self._run, name="trilemma-spans", daemon=True)
        self._exported = self._failed = 0  # written by the thread
        self._dropped = 0  # written by the loop

    @property
    def counts(self) -> Mapping[str, int]:
        """Spans so far, by what became of them."""
        return {"exported": self._exported, "failed": self._failed, "dropped": self._dropped}

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def settled(self, receipt: Receipt) -> None:
        """A request has ended."""
        if len(self._queue) < self._waiting:
            self._queue.append((receipt, time.perf_counter()))
        else:
            self._dropped += 1 + len(receipt.calls)

    def onward(self, headers: Sequence[Header], receipt: Receipt) -> list[Header]:
        """The headers of a request's newest call, with that call's span as `traceparent` in place of the caller's; without its `tracestate`
        where it names no trace."""
        known = None if receipt.call is None else traceparent.parent(receipt.call.headers)
        trace = traceparent.trace_id(receipt.decision_id) if known is None else known.trace_id
        sampled = self._spans.sampled(known, trace)
        value = traceparent.written(trace, traceparent.span_id(receipt.decision_id, len(receipt.calls)), sampled=sampled)
        replaced = _REPLACED if known is not None else _NO_TRACE
        return [header for header in headers if header[0] not in replaced] + [(b"traceparent", value)]

    def close(self, within_s: float = 3.0) -> None:
        """Sends what waits, as far as the time allows."""
        self._closing.set()
        self._thread.join(within_s)
        self._exporter.shutdown()

    def _run(self) -> None:
        while not self._closing.wait(self._every_s):
            self._flush()
        self._flush()

    def _flush(self) -> None:
        queue = self._queue
        while queue:
            batch = [queue.popleft() for _ in range(min(len(queue), _BATCH))]
            try:
                self._send([span for receipt, ended in batch for span in self._spans.make(trace_of(receipt, ended))])
            except Exception:
                log.exception("making spans failed")
                self._failed += sum(1 + len(receipt.calls) for receipt, _ in batch)

    def _send(self, spans: Sequence[ReadableSpan]) -> None:
        if not spans:  # none of them is sampled
            return
        taken = self._exporter.export(spans).name == "SUCCESS"
        if taken:
            self._exported += len(spans)
        else:
            self._failed += len(spans)
        if taken != self._working:
            self._working = taken
            if taken:
                log.warning("the collector takes spans again; %d are lost", self._failed + self._dropped)
            else:
                log.warning("the collector does not take spans, and they are lost")
