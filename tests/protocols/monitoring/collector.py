"""A collector for traces: an HTTP server that decodes OTLP, as OpenTelemetry defines it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Encoded
from opentelemetry.proto.trace.v1.trace_pb2 import Status


class Event(NamedTuple):
    name: str
    attributes: Mapping[str, Any]


class Span(NamedTuple):
    """A span as it arrived. Times are in nanoseconds."""

    service: str
    name: str
    kind: str
    trace: str
    parent: str
    id: str
    state: str
    start: int
    end: int
    attributes: Mapping[str, Any]
    events: list[Event]
    is_error: bool


class Collector:
    """What the server received. `is_broken` makes it answer that it cannot."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.paths: list[str] = []
        self.is_broken = False
        self.url = ""

    def of(self, trace: str) -> list[Span]:
        """Return the spans of a trace in the order of their start."""
        return sorted((span for span in self.spans if span.trace == trace), key=lambda span: span.start)

    def take(self, path: str, body: bytes) -> int:
        self.paths.append(path)
        if self.is_broken:
            return 400
        for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = str(_values(of_resource.resource.attributes)["service.name"])
            for of_scope in of_resource.scope_spans:
                self.spans += [_span(service, each) for each in of_scope.spans]
        return 200


@contextmanager
def collector() -> Iterator[Collector]:
    """Run a collector on a free port."""
    collected = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(collected.take(self.path, body))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collected.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield collected
        finally:
            server.shutdown()
            thread.join()


def _span(service: str, span: Encoded) -> Span:
    return Span(
        service,
        span.name,
        Encoded.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        span.trace_id.hex(),
        span.parent_span_id.hex(),
        span.span_id.hex(),
        span.trace_state,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _values(span.attributes),
        [Event(each.name, _values(each.attributes)) for each in span.events],
        span.status.code == Status.STATUS_CODE_ERROR,
    )


def _values(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs if isinstance(pair, KeyValue)}


def _value(value: AnyValue) -> Any:
    if value.WhichOneof("value") == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, str(value.WhichOneof("value")))
