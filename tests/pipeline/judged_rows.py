"""Makes rows as the pipeline has them after detection, with defaults for everything that a test does not set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oncebus.amqp.head import Properties, encode_head
from oncebus.model.entities import Catalogue, Queue, Rule, Subscription, Topic
from oncebus.model.messages import LogRow

START = 1_790_000_000_000_000
QUEUE, TOPIC = 1, 2


def head(user: Mapping[str, object] | None = None, **fields: Any) -> bytes:
    return encode_head(Properties(**fields), user or {})


def row(position: int, **more: Any) -> LogRow:
    """Return a row of the inbox."""
    made = {
        "position": position,
        "commit": position,
        "catalogue": 1,
        "entity": TOPIC,
        "sequence": position,
        "time": START + position,
        "window": 0,
        "message_id": f"m{position}",
        "hops": 0,
        "size": 100,
        "head": head(),
        "body": b"body",
        **more,
    }
    return LogRow(*(made.get(name) for name in LogRow._fields))  # type: ignore[arg-type]


def catalogue(*subscriptions: Sequence[Rule], **properties: Any) -> Catalogue:
    """Return a catalogue with a queue (1), a topic (2), and a subscription (3, 4, …) for each list of rules."""
    made = Catalogue(version=1).create(Queue(name="q"), 0).create(Topic(name="t"), 0)
    for number, rules in enumerate(subscriptions, start=3):
        made = made.create(Subscription(topic="t", name=f"s{number}", **properties), 0, rules)
    return made
