"""The entities of the history checker, created through the catalogue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from oncebus.model.entities import Catalogue, Queue, Rule, Subscription, Topic
from oncebus.model.entities.descriptions import SqlFilter
from tests.history.entities import CHANGING, COLOURS, LOCK_SECONDS, OUTLETS, RULES, SINKS, WINDOWS, Sink, filter_of

Change = Callable[[Catalogue, int], Catalogue]

SECOND = 1_000_000
_LOCKED: dict[str, Any] = {"lock_duration": LOCK_SECONDS * SECOND, "max_delivery_count": 1000}


def _detecting(window: str) -> dict[str, Any]:
    return {
        "requires_duplicate_detection": True,
        "duplicate_detection_history_time_window": WINDOWS[window] * SECOND,
    }


def create_all(catalogue: Catalogue, now: int) -> Catalogue:
    """Create all entities. Forwarding targets come first."""
    catalogue = catalogue.create(Queue(name="target", **_LOCKED, **_detecting("P1D")), now)
    for name in ("end", "collected"):
        catalogue = catalogue.create(Queue(name=name, **_LOCKED), now)
    for sink in SINKS.values():
        catalogue = _create(catalogue, sink, now)
    return catalogue


def _create(catalogue: Catalogue, sink: Sink, now: int) -> Catalogue:
    detection = {} if sink.window is None else _detecting(sink.window)
    if not sink.subscriptions:
        if sink.detection_key is not None:
            detection |= {"detection_key": sink.detection_key, "enable_partitioning": True}
        queue = Queue(
            name=sink.name, forward_to=sink.forwards_to, requires_session=sink.has_sessions, **_LOCKED, **detection
        )
        return catalogue.create(queue, now)
    catalogue = catalogue.create(Topic(name=sink.name, **detection), now)
    for name in sink.subscriptions:
        place = sink.place(name)
        colour = COLOURS[0] if place == CHANGING else RULES.get(place)
        rules = None if colour is None else [_rule_of(colour)]
        made = Subscription(topic=sink.name, name=name, forward_to=OUTLETS.get(place), **_LOCKED)
        catalogue = catalogue.create(made, now, rules)
    return catalogue


def create(queue: str) -> Change:
    """Create a queue again, unless an earlier attempt did."""
    return lambda catalogue, now: catalogue if catalogue.find(queue) else _create(catalogue, SINKS[queue], now)


def delete(queue: str) -> Change:
    """Delete a queue, unless an earlier attempt did."""
    return lambda catalogue, _: catalogue.delete(Queue(name=queue)) if catalogue.find(queue) else catalogue


def change_window(queue: str, window: str) -> Change:
    """Change the detection window of a queue."""
    return lambda catalogue, now: catalogue.update(
        replace(catalogue.queue(queue), duplicate_detection_history_time_window=WINDOWS[window] * SECOND), now
    )


def change_rule(place: str, colour: str) -> Change:
    """Let the rule of a subscription select another colour."""
    topic, _, name = place.partition("/Subscriptions/")
    return lambda catalogue, _: catalogue.update_rule(topic, name, _rule_of(colour))


def _rule_of(colour: str) -> Rule:
    return Rule(name="colour", filter=SqlFilter(filter_of(colour)))
