"""Makes spans for the steps of messages that carry a trace context.

All spans of a message are children of the span in which its sender made it, so they join the sender's trace. A message
without a trace context gets no spans: nothing could join them. Names and attributes follow OpenTelemetry's conventions
for messaging and for Azure Service Bus. Attributes that these do not have begin with `oncebus.`.
"""

from __future__ import annotations

import bisect
import itertools
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Concatenate, NamedTuple, ParamSpec

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue
from prometheus_client.core import Metric

from oncebus.broker.clock import Clock
from oncebus.engine.inbox import Row
from oncebus.engine.outbox import Entry
from oncebus.engine.store import Action, Message, Outcome, Settlement, SubQueue
from oncebus.model.entities import Catalogue, Subscription
from oncebus.model.messages import Fate, Result
from oncebus.protocols.monitoring.span_export import SpanExport
from oncebus.protocols.monitoring.trace_context import context_of, is_sampled
from oncebus.values.durations import SECOND

log = logging.getLogger(__name__)

P = ParamSpec("P")
Attributes = Mapping[str, AttributeValue]

MOST_LOCKED = 10_000
"""The number of deliveries whose settlement can still be traced. Older ones are forgotten."""
MOST_DESTINATIONS = 20
"""The number of destinations that a span names. It always says how many there are."""

_SEQUENCE = "oncebus.sequence_number"
_ORIGINAL = "oncebus.original.sequence_number"
_ORIGINAL_TIME = "oncebus.original.enqueued_time"


class _Locked(NamedTuple):
    """What is known of a delivery that can be settled."""

    parent: Context
    entity: int
    attributes: Attributes


def _harmless(method: Callable[Concatenate[Spans, P], None]) -> Callable[Concatenate[Spans, P], None]:
    """Log errors instead of raising them: a span is not worth a message."""

    @wraps(method)
    def call(spans: Spans, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(spans, *args, **kwargs)
        except Exception:
            log.exception("Spans could not be made")

    return call


class Spans:
    """A `Tracer` that makes spans and exports them."""

    def __init__(self, export: SpanExport, clock: Clock) -> None:
        self._export = export
        self._tracer = export.tracer
        self._follows_senders = export.follows_senders
        self._clock = clock
        self._propagator = TraceContextTextMapPropagator()
        self._locked: OrderedDict[bytes, _Locked] = OrderedDict()

    def metrics(self) -> Iterator[Metric]:
        """Return the metrics of the export."""
        return self._export.metrics()

    def close(self) -> None:
        """Export the spans that wait, for a short time."""
        self._export.close()

    @_harmless
    def accepted(self, catalogue: Catalogue, rows: Sequence[Row], began: int) -> None:
        """See `Tracer`."""
        start, end = self._since(began)
        for row in rows:
            parent = self._parent(row["head"])
            if parent is not None:
                about = _about(row["message_id"], row["sequence"], row["time"])
                if row.get("scheduled") is not None:
                    about["oncebus.scheduled_time"] = (row["scheduled"] or 0) // SECOND
                span = self._begin("accept", parent, catalogue, row["entity"], start, about, SpanKind.SERVER, "send")
                span.end(end)

    @_harmless
    def processed(self, catalogue: Catalogue, results: Sequence[Result], entries: Sequence[Entry]) -> None:
        """See `Tracer`."""
        last = [entry.last for entry in entries]
        published = [entry.published() for entry in entries]
        now = self._clock.now()
        for _, of_message in itertools.groupby(results, lambda result: result.row.position):
            same = list(of_message)
            at = bisect.bisect_left(last, same[0].row.commit)
            self._process(catalogue, same, entries[at], min(published[at], now), now)

    def _process(self, catalogue: Catalogue, copies: Sequence[Result], entry: Entry, published: int, now: int) -> None:
        """Make the spans of a message, given its results: one for each copy, or one without a destination."""
        row, fate = copies[0].row, copies[0].fate
        parent = next((each for each in (self._parent(copy.row.head) for copy in copies) if each is not None), None)
        if parent is None:
            return
        about = _about(row.message_id, row.sequence, row.time)
        is_checked = row.key is not None
        began = min(row.time, published)
        span = self._begin("detect" if is_checked else "route", parent, catalogue, row.entity, began, about)
        if not span.is_recording():
            return
        if is_checked:
            span.set_attribute("oncebus.verdict", "duplicate" if fate is Fate.DUPLICATE else "new")
        if row.origin_entity is not None and (origin := catalogue.entity(row.origin_entity)) is not None:
            span.set_attribute("oncebus.requeued_from", origin.path)
        span.set_attribute("oncebus.fate", _name_of(fate))
        span.set_attribute("oncebus.commit", row.commit)
        span.set_attribute("oncebus.entry", f"{entry.first}-{entry.last}")
        if fate is Fate.DUPLICATE:
            original: dict[str, AttributeValue] = {}
            _, _, _, _, _, sequence, time = copies[0]
            if sequence is not None and time is not None:
                original = {_ORIGINAL: sequence, _ORIGINAL_TIME: time // SECOND}
            span.set_attributes(original)
            span.add_event("duplicate dropped", original, _nanoseconds(published))
        for copy in copies:
            # A duplicate's reason is its detection key.
            if copy.reason is not None and copy.fate is not Fate.DUPLICATE:
                _note_failure(span, catalogue, copy, copy.reason, published)
        span.end(_nanoseconds(published))
        held = [copy.destination for copy in copies if copy.destination is not None]
        if held:
            ingest = self._begin("ingest", parent, catalogue, row.entity, published, about)
            names = [found.path for each in held[:MOST_DESTINATIONS] if (found := catalogue.entity(each)) is not None]
            ingest.set_attribute("oncebus.destinations", names)
            ingest.set_attribute("oncebus.copies", len(held))
            ingest.end(_nanoseconds(now))

    @_harmless
    def delivered(self, catalogue: Catalogue, messages: Sequence[Message], began: int) -> None:
        """See `Tracer`."""
        start, end = self._since(began)
        for message in messages:
            parent = self._parent(message.head)
            if parent is None:
                continue
            about = _about(message.message_id, message.sequence, message.enqueued)
            about["messaging.servicebus.message.delivery_count"] = message.deliveries
            if message.sub_queue != SubQueue.MAIN:
                about["oncebus.sub_queue"] = SubQueue(message.sub_queue).name.lower()
            span = self._begin("deliver", parent, catalogue, message.entity, start, about)
            span.end(end)
            if message.token is not None and span.get_span_context().trace_flags.sampled:
                self._locked[message.token] = _Locked(parent, message.entity, about)
                if len(self._locked) > MOST_LOCKED:
                    self._locked.popitem(last=False)

    @_harmless
    def settled(
        self, catalogue: Catalogue, settlements: Sequence[Settlement], outcomes: Sequence[Outcome], began: int
    ) -> None:
        """See `Tracer`."""
        if not self._locked:
            return
        start, end = self._since(began)
        for settlement, outcome in zip(settlements, outcomes, strict=True):
            known = self._locked.pop(settlement.token, None)
            if known is None or settlement.action is Action.RELEASE:
                continue
            name = settlement.action.value.replace("-", "_")
            about = {**known.attributes, "messaging.servicebus.disposition_status": name}
            span = self._begin(name, known.parent, catalogue, known.entity, start, about, kind_of_operation="settle")
            if outcome is not Outcome.DONE:
                span.set_attribute("error.type", outcome.value)
                span.set_status(Status(StatusCode.ERROR, outcome.value))
            span.end(end)

    def _since(self, began: int) -> tuple[int, int]:
        """Return the wall time of a moment on the monotonic clock, in microseconds, and the present in nanoseconds."""
        now = self._clock.now()
        return now - (self._clock.passed() - began), _nanoseconds(now)

    def _parent(self, head: bytes) -> Context | None:
        headers = context_of(head)
        if headers is None or (self._follows_senders and not is_sampled(headers)):
            # The sampler would say the same, at a higher cost.
            return None
        parent = self._propagator.extract(headers, Context())
        return parent if get_current_span(parent).get_span_context().is_valid else None

    def _begin(
        self,
        operation: str,
        parent: Context,
        catalogue: Catalogue,
        entity: int,
        start: int,
        attributes: Attributes,
        kind: SpanKind = SpanKind.INTERNAL,
        kind_of_operation: str | None = None,
    ) -> Span:
        """Begin a span of an operation on an entity, unless the sampler is against it. `start` is in microseconds."""
        all_of_them = {"messaging.system": "servicebus", "messaging.operation.name": operation, **attributes}
        if kind_of_operation is not None:
            all_of_them["messaging.operation.type"] = kind_of_operation
        name, found = operation, catalogue.entity(entity)
        if found is not None:
            destination = found.topic if isinstance(found, Subscription) else found.path
            name = f"{operation} {destination}"
            all_of_them["messaging.destination.name"] = destination
            if isinstance(found, Subscription):
                all_of_them["messaging.destination.subscription.name"] = found.name
        return self._tracer.start_span(name, parent, kind, all_of_them, start_time=_nanoseconds(start))


def _about(message_id: str, sequence: int, enqueued: int) -> dict[str, AttributeValue]:
    return {
        "messaging.message.id": message_id,
        "messaging.servicebus.message.enqueued_time": enqueued // SECOND,
        _SEQUENCE: sequence,
    }


def _note_failure(span: Span, catalogue: Catalogue, copy: Result, reason: str, when: int) -> None:
    """Record that a copy became a dead letter, or a row went to quarantine."""
    details: dict[str, AttributeValue] = {"error.type": reason}
    if copy.description is not None:
        details["oncebus.description"] = copy.description
    if copy.destination is not None and (found := catalogue.entity(copy.destination)) is not None:
        details["messaging.destination.name"] = found.path
    span.add_event(_name_of(copy.fate), details, _nanoseconds(when))
    span.set_status(Status(StatusCode.ERROR, reason))


def _name_of(fate: Fate) -> str:
    return fate.name.lower().replace("_", "-")


def _nanoseconds(microseconds: int) -> int:
    return microseconds * 1000
