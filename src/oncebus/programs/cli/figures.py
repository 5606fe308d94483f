"""The figures of entities, from the metrics of a running broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from oncebus.programs.cli.client import Client

STATES = ("active", "scheduled", "deferred", "dead_letter")
TOTALS = ("incoming", "new", "duplicates", "outgoing", "completed", "abandoned", "dead_lettered", "expired")
_GAUGES = {
    "oncebus_entity_oldest_message_seconds": "oldest",
    "oncebus_entity_receivers": "receivers",
    "oncebus_entity_polled": "polled",
}
_NAMES = {f"oncebus_messages_{name}_total": name for name in TOTALS} | _GAUGES


@dataclass(slots=True)
class Load:
    """The figures of one entity: messages by state, totals and gauges."""

    entity: str
    kind: str
    figures: dict[str, float] = field(default_factory=dict)

    def count(self, name: str) -> int:
        """Return a figure as a whole number; 0 if the entity does not have it."""
        return int(self.figures.get(name, 0))

    def receivers(self) -> str:
        """Return how many receivers are attached, or `polling`, in the words of the portal; "" for a topic."""
        if self.figures.get("polled"):
            return "polling"
        return str(self.count("receivers")) if "receivers" in self.figures else ""


Rates = dict[str, dict[str, float]]
"""Totals per second, by entity and name."""


def loads_of(metrics: str) -> list[Load]:
    """Return the figures of each entity from the metrics' text, sorted by name."""
    # Imported late, because no other command needs it.
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, Load] = {}
    lines = (line for line in metrics.splitlines() if line.startswith(("oncebus_messages", "oncebus_entity")))
    for family in text_string_to_metric_families("\n".join(lines)):
        for sample in family.samples:
            labels = sample.labels
            state = labels.get("state", "")
            name = _NAMES.get(sample.name) or (state if state in STATES else None)
            if name is not None and "entity" in labels:
                load = found.setdefault(labels["entity"], Load(labels["entity"], labels.get("kind", "")))
                load.figures[name] = sample.value
    return [found[name] for name in sorted(found)]


def rates_of(before: list[Load] | None, after: list[Load], seconds: float) -> Rates:
    """Return the totals per second of each entity in both lists.

    The rate is 0 for an entity that was deleted and created again in between, because its counters were reset.
    """
    known = {load.entity: load for load in before or []}
    rates = {}
    for load in after:
        old = known.get(load.entity)
        if old is not None and seconds > 0:
            rates[load.entity] = {name: max(0, load.count(name) - old.count(name)) / seconds for name in TOTALS}
    return rates


def look(client: Client) -> list[Load]:
    """Return the current figures of all entities."""
    return loads_of(client.ask("GET", "/metrics").body.decode())


def looks(client: Client, interval: float) -> Iterator[tuple[list[Load], Rates]]:
    """Yield the figures and the rates again and again. There are no rates the first time."""
    before, seen_at = None, 0.0
    while True:
        loads, now = look(client), time.monotonic()
        yield loads, rates_of(before, loads, now - seen_at)
        before, seen_at = loads, now
        time.sleep(interval)


def age(seconds: float) -> str:
    """Return a length of time for people, in its largest unit: `850 ms`, `12 s`, `3 min`, `5 h`, `2 d`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
