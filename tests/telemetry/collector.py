"""A collector of spans on a real socket, which reads what OpenTelemetry's exporter sends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Sent


@dataclass
class Collector:
    """status: what it answers. bodies: all bytes that came; headers: of each batch."""

    url: str
    status: int = 200
    spans: list[Sent] = field(default_factory=list)
    resources: list[dict[str, Any]] = field(default_factory=list)
    schemas: set[str] = field(default_factory=set)
    bodies: bytes = b""
    headers: list[dict[str, str]] = field(default_factory=list)

    def take(self, body: bytes, headers: dict[str, str]) -> None:
        self.bodies += body
        self.headers.append(headers)
        if self.status != 200:
            return
        for each in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append(plain(each.resource.attributes))
            for scoped in each.scope_spans:
                self.schemas.add(scoped.schema_url)
                self.spans.extend(scoped.spans)


def plain(attributes: Any) -> dict[str, Any]:
    """Attributes by name."""
    return {each.key: _value(each) for each in attributes}


def _value(attribute: KeyValue) -> Any:
    return getattr(attribute.value, attribute.value.WhichOneof("value"))


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens while the block lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.take(self.rfile.read(int(self.headers["content-length"])), dict(self.headers))
            self.send_response(collector.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
