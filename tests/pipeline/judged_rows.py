"""Makes rows as the pipeline has them after detection, with defaults for everything that a test does not set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from oncebus.amqp.head import Properties, encode_head
from oncebus.model.entities import Catalogue, Queue, Rule, Subscription, Topic
from oncebus.model.messages import INBOX_SCHEMA

START = 1_790_000_000_000_000
QUEUE, TOPIC = 1, 2

_ADDED = [
    pa.field("is_duplicate", pa.bool_(), nullable=False),
    pa.field("original_sequence", pa.int64()),
    pa.field("original_time", pa.int64()),
]
JUDGED_SCHEMA = pa.schema([*INBOX_SCHEMA, *_ADDED])


def head(user: Mapping[str, object] | None = None, **fields: Any) -> bytes:
    return encode_head(Properties(**fields), user or {})


def row(position: int, **more: Any) -> dict[str, Any]:
    """Return a row of the inbox with its verdict."""
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
        "is_duplicate": False,
        **more,
    }
    return {field.name: made.get(field.name) for field in JUDGED_SCHEMA}


def table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), JUDGED_SCHEMA)


def catalogue(*subscriptions: Sequence[Rule], **properties: Any) -> Catalogue:
    """Return a catalogue with a queue (1), a topic (2), and a subscription (3, 4, …) for each list of rules."""
    made = Catalogue(version=1).create(Queue(name="q"), 0).create(Topic(name="t"), 0)
    for number, rules in enumerate(subscriptions, start=3):
        made = made.create(Subscription(topic="t", name=f"s{number}", **properties), 0, rules)
    return made
