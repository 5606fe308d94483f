"""Exports spans over OTLP, with a bound on those that wait, and counts what becomes of them."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator, Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.environment_variables import OTEL_BSP_MAX_QUEUE_SIZE
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased
from opentelemetry.trace import Tracer
from prometheus_client.core import CounterMetricFamily, Metric

from oncebus import __version__
from oncebus.protocols.monitoring.tracing import TracingError

FLUSH_SECONDS = 2.0
"""How long to export the last spans when the gateway stops."""
MOST_WAITING = 2048
"""The default number of spans that may wait, as in OpenTelemetry."""
SERVICE = "oncebus"

_EXPORTED, _FAILED, _DROPPED = "exported", "failed", "dropped"


class SpanExport:
    """A tracer of OpenTelemetry, and its way to the collector."""

    def __init__(self, exporter: SpanExporter, most: int) -> None:
        """At most `most` spans wait. Raises `ValueError` if a variable of OpenTelemetry has a bad value."""
        self._counted = _Counted(exporter)
        self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        self._provider.add_span_processor(_Bounded(self._counted, most))

    @property
    def tracer(self) -> Tracer:
        """Return the tracer that makes spans."""
        return self._provider.get_tracer(SERVICE, __version__)

    @property
    def follows_senders(self) -> bool:
        """Return whether nothing is sampled that its sender did not sample."""
        return isinstance(self._provider.sampler, ParentBased)

    def metrics(self) -> Iterator[Metric]:
        """Return how many spans have been exported and lost."""
        spans = CounterMetricFamily(
            "oncebus_spans", "Spans of traces by what became of them: exported, failed or dropped.", labels=("outcome",)
        )
        for outcome in (_EXPORTED, _FAILED, _DROPPED):
            spans.add_metric((outcome,), self._counted.counts[outcome])
        yield spans

    def close(self) -> None:
        """Export the spans that wait, but give up after `FLUSH_SECONDS`. Makes no more spans."""
        # In a thread that does not keep the process alive: a collector that hangs must not delay a stop for long.
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(FLUSH_SECONDS)


def open_export() -> SpanExport:
    """Return an export to the collector that the environment names. Raises `TracingError`."""
    try:
        return SpanExport(OTLPSpanExporter(), int(os.environ.get(OTEL_BSP_MAX_QUEUE_SIZE, "") or MOST_WAITING))
    except (ValueError, OSError) as error:
        raise TracingError(f"Traces cannot be exported: {' '.join(str(error).split())}") from error


def _resource() -> Resource:
    """Return the attributes of this process. Those in the environment take precedence."""
    own = Resource({"service.name": SERVICE, "service.version": __version__})
    given = OTELResourceDetector().detect()
    return Resource.create().merge(own).merge(given)


class _Counted(SpanExporter):
    """Passes spans on to another exporter, and counts them."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self.taken = 0
        self.counts: Counter[str] = Counter()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See `SpanExporter`."""
        self.taken += len(spans)
        outcome = _FAILED
        try:
            result = self._exporter.export(spans)
            if result is SpanExportResult.SUCCESS:
                outcome = _EXPORTED
            return result
        finally:
            self.counts[outcome] += len(spans)

    def shutdown(self) -> None:
        """See `SpanExporter`."""
        self._exporter.shutdown()


class _Bounded(BatchSpanProcessor):
    """Drops new spans while the queue is full, and counts them. The base class would drop old ones without a count."""

    def __init__(self, exporter: _Counted, most: int) -> None:
        super().__init__(exporter, max_queue_size=most)
        self._most = most
        self._to = exporter
        self._passed_on = 0
        # Spans end in the event loop and in threads.
        self._lock = threading.Lock()

    def on_end(self, span: ReadableSpan) -> None:
        """See `SpanProcessor`."""
        if span.context is None or not span.context.trace_flags.sampled:
            return
        with self._lock:
            if self._passed_on - self._to.taken >= self._most:
                self._to.counts[_DROPPED] += 1
                return
            self._passed_on += 1
        super().on_end(span)
