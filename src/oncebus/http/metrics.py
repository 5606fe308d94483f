"""Metrics in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from oncebus.broker.broker import Broker
from oncebus.durations import SECOND
from oncebus.entities import Entity
from oncebus.http.health import Health
from oncebus.messages import NOBODY

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_TOTALS = {
    "accepted": "Messages sent or forwarded here that were no duplicates.",
    "duplicates": "Messages sent or forwarded here that were dropped as duplicates.",
    "delivered": "Messages that came out of the pipeline into this queue or subscription.",
    "dead_lettered": "Messages that became dead letters, for whatever reason.",
    "unrouted": "Messages that no subscription wanted.",
    "discarded": "Copies for subscriptions that were gone; without an entity, messages for one that was gone.",
    "quarantined": "Messages that could not be processed.",
}
_STATES = ("active", "scheduled", "deferred", "dead_letter", "transfer", "transfer_dead_letter")

Labels = tuple[tuple[str, str], ...]


class Metric(NamedTuple):
    """One number that another part of the process counts. `kind` is Prometheus' counter or gauge."""

    name: str
    kind: str
    text: str
    value: float


async def metrics(broker: Broker, health: Health, others: Iterable[Metric] = ()) -> str:
    """All that is counted, as it is now; nobody waits for what is in the pipeline."""
    entities = sorted(broker.catalogue.entities.values(), key=lambda entity: entity.path)
    *counts, gone = await broker.counts_now([*(entity.id for entity in entities), NOBODY])
    pipeline = broker.pipeline
    lines: list[str] = []

    def add(name: str, kind: str, text: str, values: Iterable[tuple[Labels, float]]) -> None:
        lines.append(f"# HELP oncebus_{name} {text}")
        lines.append(f"# TYPE oncebus_{name} {kind}")
        lines.extend(f"oncebus_{name}{_labels(labels)} {_number(value)}" for labels, value in values)

    def alone(name: str, text: str, value: float) -> None:
        add(name, "gauge", text, [((), value)])

    for name, text in _TOTALS.items():
        totals = [(_about(each), getattr(count, name)) for each, count in zip(entities, counts, strict=True)]
        if name == "discarded":
            totals.append(((), gone.discarded))
        add(f"messages_{name}_total", "counter", text, totals)
    add(
        "messages",
        "gauge",
        "Messages held, by state.",
        [
            ((*_about(each), ("state", state)), getattr(count, state))
            for each, count in zip(entities, counts, strict=True)
            for state in _STATES
        ],
    )
    add(
        "entity_size_bytes",
        "gauge",
        "Bytes held.",
        [(_about(each), count.size) for each, count in zip(entities, counts, strict=True)],
    )
    add(
        "entity_pipeline_bytes",
        "gauge",
        "Bytes accepted and still in the pipeline.",
        [(_about(each), pipeline.bytes_of(each)) for each in entities],
    )
    if refused := _refused(broker):
        add("requests_refused_total", "counter", "Requests refused since the start, by reason.", refused)
    add(
        "entity_waiting_sends",
        "gauge",
        "Sends that wait for their turn, because their entity has used up its share of the pipeline.",
        [(_about(each), pipeline.waiting_sends(each)) for each in entities],
    )
    alone("healthy", "Whether the service is healthy.", health.ailment() is None)
    alone("pipeline_lag_commits", "Commits that wait for the pipeline.", pipeline.lag)
    alone("pipeline_lag_seconds", "Time that the oldest of them has waited.", pipeline.oldest_wait / SECOND)
    alone("pipeline_silence_seconds", "Time since something came out of the pipeline.", health.silence)
    alone("pipeline_trouble", "Whether a part of the broker's work fails.", pipeline.trouble is not None)
    alone(
        "pipeline_work_per_second",
        "Work that the pipeline was last seen to do: bytes, and 1024 a message.",
        pipeline.work_per_second,
    )
    alone("inbox_bytes", "Size of the inbox on the disk.", pipeline.inbox_bytes)
    alone("inbox_last_commit", "The newest commit of the inbox.", pipeline.last_commit)
    alone("ingest_position", "The last commit that came out of the pipeline.", pipeline.position)
    alone("catalogue_version", "The version of the catalogue in force.", broker.catalogue.version)
    for other in others:
        add(other.name, other.kind, other.text, [((), other.value)])
    return "\n".join(lines) + "\n"


def _refused(broker: Broker) -> list[tuple[Labels, float]]:
    found = []
    for (number, reason), count in broker.refusals.totals().items():
        entity = broker.catalogue.entity(number) if number is not None else None
        found.append(((*(_about(entity) if entity is not None else ()), ("reason", reason)), count))
    return sorted(found)


def _about(entity: Entity) -> Labels:
    return (("entity", entity.path), ("kind", type(entity).__name__.lower()))


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{_escaped(value)}"' for name, value in labels)
    return "{" + ",".join(pairs) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(int(value))
