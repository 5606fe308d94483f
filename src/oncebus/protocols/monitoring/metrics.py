"""Metrics in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from oncebus.broker.broker import Broker
from oncebus.broker.latencies import BOUNDS, Latency
from oncebus.engine.store import Counts
from oncebus.model.entities import Entity, Topic
from oncebus.model.messages import NOBODY
from oncebus.protocols.monitoring.health import Health
from oncebus.values.durations import SECOND

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_TOTALS = {
    "incoming": "Messages sent or forwarded here, duplicates included; in a subscription, its copies.",
    "new": "Incoming messages that were not duplicates.",
    "duplicates": "Incoming messages that were dropped as duplicates.",
    "outgoing": "Deliveries to receivers, also repeated ones. Dead letters do not count.",
    "completed": "Messages that receivers completed, or received and deleted.",
    "abandoned": "Deliveries that failed: the receiver abandoned the message, or its lock expired.",
    "dead_lettered": "Messages that became dead letters, for any reason.",
    "expired": "Messages whose time to live ended. Some of them became dead letters.",
    "unrouted": "Messages that matched no subscription.",
    "discarded": (
        "Copies discarded because their subscription was deleted; without an entity, messages whose entity was deleted."
    ),
    "quarantined": "Messages that could not be processed.",
}
_GAUGES = (
    ("size_bytes", "Bytes held."),
    ("pipeline_bytes", "Bytes of messages that are still in the pipeline."),
    ("waiting_sends", "Sends that wait for their turn, because their entity has used up its share of the pipeline."),
    ("oldest_message_seconds", "Age of the oldest message that waits for a receiver; 0 if none waits."),
    ("receivers", "Receivers that are attached now."),
    ("polled", "1 if no receiver is attached now, but one asked for messages in the last minute, as over HTTP."),
    ("last_receive_timestamp_seconds", "When a receiver last asked for messages, since the start of the broker."),
)
_STATES = ("active", "scheduled", "deferred", "dead_letter", "transfer", "transfer_dead_letter")
_ENTITY = ("entity", "kind")


async def metrics(broker: Broker, health: Health, others: Iterable[Metric] = ()) -> bytes:
    """Return all metrics in the text format. Does not wait for messages in the pipeline, so counts may lag behind.

    `others` has metrics from other parts of the process.
    """
    entities = sorted(broker.catalogue.entities.values(), key=lambda entity: entity.path)
    ids = [entity.id for entity in entities]
    *counts, gone = await broker.counts_now([*ids, NOBODY])
    oldest = await broker.oldest_waiting(ids)
    found = [
        *_counters(broker, list(zip(entities, counts, strict=True)), gone),
        *_gauges(broker, list(zip(entities, counts, oldest, strict=True))),
        *_of_broker(broker, health),
        *_latencies(broker),
        *others,
    ]
    # In a thread, because it takes a while with thousands of entities.
    return await broker.threads.run(generate_latest, _Collected(found))


class _Collected(Collector):
    def __init__(self, found: list[Metric]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        return self._found


def _counters(broker: Broker, held: list[tuple[Entity, Counts]], gone: Counts) -> Iterator[Metric]:
    for name, text in _TOTALS.items():
        total = CounterMetricFamily(f"oncebus_messages_{name}", text, labels=_ENTITY)
        for entity, counts in held:
            total.add_metric(_about(entity), getattr(counts, name))
        if name == "discarded":
            total.add_metric((), gone.discarded)
        yield total
    refused = CounterMetricFamily(
        "oncebus_requests_refused", "Requests refused since the start, by reason.", labels=("reason", *_ENTITY)
    )
    for (number, reason), count in broker.refusals.totals().items():
        at = broker.catalogue.entity(number) if number is not None else None
        refused.add_metric((reason, *(_about(at) if at is not None else ())), count)
    refused.samples.sort(key=lambda sample: sorted(sample.labels.items()))
    if refused.samples:
        yield refused


def _gauges(broker: Broker, held: list[tuple[Entity, Counts, int | None]]) -> Iterator[Metric]:
    messages = GaugeMetricFamily("oncebus_messages", "Messages in the entity, by state.", labels=(*_ENTITY, "state"))
    by_entity = {name: GaugeMetricFamily(f"oncebus_entity_{name}", text, labels=_ENTITY) for name, text in _GAUGES}
    now, pipeline, consumers = broker.clock.steady(), broker.pipeline, broker.consumers
    for entity, counts, oldest in held:
        for state in _STATES:
            messages.add_metric((*_about(entity), state), getattr(counts, state))
        values: dict[str, float] = {
            "size_bytes": counts.size,
            "pipeline_bytes": pipeline.bytes_of(entity),
            "waiting_sends": pipeline.waiting_sends(entity),
        }
        if not isinstance(entity, Topic):
            values["oldest_message_seconds"] = 0 if oldest is None else max(now - oldest, 0) / SECOND
            values["receivers"] = consumers.attached(entity.id)
            values["polled"] = consumers.is_polled(entity.id)
            if (asked := broker.received_at(entity)) is not None:
                values["last_receive_timestamp_seconds"] = asked / SECOND
        for name, value in values.items():
            by_entity[name].add_metric(_about(entity), value)
    yield from (messages, *by_entity.values())


def _of_broker(broker: Broker, health: Health) -> Iterator[Metric]:
    pipeline = broker.pipeline
    for name, text, value in (
        ("healthy", "1 if the service is healthy, else 0.", health.problem() is None),
        ("pipeline_lag_commits", "Commits that wait for the pipeline.", pipeline.lag),
        (
            "pipeline_lag_seconds",
            "Seconds that the oldest commit has waited for the pipeline.",
            pipeline.oldest_wait / SECOND,
        ),
        ("pipeline_silence_seconds", "Seconds since the pipeline last produced output.", health.silence),
        ("pipeline_trouble", "1 if a part of the broker is failing right now, else 0.", pipeline.trouble is not None),
        (
            "pipeline_work_per_second",
            "Last measured throughput of the pipeline, in bytes plus 1024 per message.",
            pipeline.work_per_second,
        ),
        ("inbox_bytes", "Size of the inbox on the disk.", pipeline.inbox_bytes),
        ("inbox_last_commit", "The newest commit of the inbox.", pipeline.last_commit),
        ("ingest_position", "The last commit that the pipeline has processed.", pipeline.position),
        ("catalogue_version", "The current version of the catalogue.", broker.catalogue.version),
    ):
        yield GaugeMetricFamily(f"oncebus_{name}", text, value)


def _latencies(broker: Broker) -> Iterator[Metric]:
    latencies = broker.latencies
    for name, text, latency in (
        ("send", "Time from a send to its answer, for sends that were not refused.", latencies.send),
        ("commit", "Time to append a commit to the inbox and make it durable.", latencies.commit),
        ("judge", "Time from a durable commit until its verdicts are in the outbox.", latencies.judge),
        ("ingest", "Time from the verdicts until the store has ingested the commit.", latencies.ingest),
        ("batch", "Time from a durable commit until the store has ingested it.", latencies.batch),
        ("end_to_end", "Time from the answer to a send until a receiver first gets the message.", latencies.end_to_end),
    ):
        yield _histogram(f"oncebus_{name}_seconds", text, latency)


def _histogram(name: str, text: str, latency: Latency) -> Metric:
    bounds = [*(str(bound / SECOND) for bound in BOUNDS), "+Inf"]
    counts = list(zip(bounds, accumulate(latency.counts), strict=True))
    return HistogramMetricFamily(name, text, buckets=counts, sum_value=latency.total / SECOND)


def _about(entity: Entity) -> tuple[str, str]:
    return entity.path, type(entity).__name__.lower()
