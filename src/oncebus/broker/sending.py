"""Incoming messages: checked against their entity and turned into rows of the inbox."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from oncebus import amqp
from oncebus.broker.numbers import Numbers
from oncebus.durations import LAST_MOMENT
from oncebus.entities import (
    NO_LIMIT,
    BadRequest,
    Namespace,
    Queue,
    QuotaExceeded,
    Topic,
    check_message,
    effective_partition_key,
    partition_of,
)
from oncebus.entities.limits import largest_message
from oncebus.inbox import Row
from oncebus.messages import key_of

_KILOBYTE = 1024
LARGEST_BATCH = _KILOBYTE * _KILOBYTE
"""The largest size of several messages together, even where a single one may be larger."""
MOST_MESSAGES = 4500
"""The most messages in a batch."""
_ENVELOPE = 256 * _KILOBYTE
"""Room for encoded bytes that do not count towards a message's size: headers, annotations, envelopes of a batch."""


class MessageTooLarge(BadRequest):
    """The message is larger than its entity allows."""


class Incoming(NamedTuple):
    """A message as a protocol has decoded it. `head` and `body` are the bare message, byte for byte as it came.

    `message_id` is text, or the bytes of a binary id; None if the sender gave none. `ttl` is in microseconds.
    `body_in_file` is the length of a body that already has a body file; `body` is empty then.
    """

    head: bytes
    body: bytes
    message_id: str | bytes | None = None
    session: str | None = None
    partition_key: str | None = None
    scheduled: int | None = None
    ttl: int | None = None
    body_in_file: int = 0

    @property
    def size(self) -> int:
        """Return how many bytes the message counts towards the entity's quota."""
        return len(self.head) + len(self.body) + self.body_in_file


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a requeued message comes from.

    `partition` and `scheduled` are set for a message that comes back to its own entity: it keeps both.
    """

    entity: int
    sequence: int
    hops: int
    expires: int | None
    partition: int | None = None
    scheduled: int | None = None


def with_id(message: Incoming) -> tuple[Incoming, bool]:
    """Return the message with an id, and whether the sender gave that id. An empty id counts as none.

    A message without an id gets a fresh one, which is never a duplicate.
    """
    if message.message_id:
        return message, True
    fresh = uuid.uuid4().hex
    return message._replace(head=amqp.with_properties(message.head, {"message_id": fresh}), message_id=fresh), False


def check(entity: Queue | Topic, namespace: Namespace, messages: Sequence[Incoming]) -> int:
    """Raise unless the entity accepts all of the messages. Return their total size."""
    if len(messages) > MOST_MESSAGES:
        raise BadRequest(f"The batch holds {len(messages)} messages, {MOST_MESSAGES} is the limit.")
    most = largest_message(entity)
    total = 0
    for message in messages:
        check_message(
            entity,
            namespace,
            message_id=message.message_id,
            session=message.session,
            partition_key=message.partition_key,
        )
        size = message.size
        if size > most:
            raise _message_too_large(entity, size)
        total += size
    if len(messages) > 1 and total > largest_batch(entity):
        raise _batch_too_large(entity, total)
    return total


def check_encoded(entity: Queue | Topic, size: int, *, is_batch: bool) -> None:
    """Raise `MessageTooLarge` if encoded bytes are too large whatever they hold, so that nobody has to decode them."""
    if size > largest_message(entity) + _ENVELOPE:
        raise (_batch_too_large if is_batch else _message_too_large)(entity, size)


def largest_batch(entity: Queue | Topic) -> int:
    """Return how large the messages of a batch may be together."""
    return min(largest_message(entity), LARGEST_BATCH)


def _message_too_large(entity: Queue | Topic, size: int) -> MessageTooLarge:
    return MessageTooLarge(
        f"The received message (size:{size}) exceeds the limit ({largest_message(entity)}) currently allowed on the "
        f"entity '{entity.path}'."
    )


def _batch_too_large(entity: Queue | Topic, size: int) -> MessageTooLarge:
    return MessageTooLarge(
        f"The received batch of messages (size:{size}) exceeds the limit ({largest_batch(entity)}) currently allowed."
    )


def check_quota(entity: Queue | Topic, held: int, added: int) -> None:
    """Raise `QuotaExceeded` if `added` bytes do not fit. `held` is what the entity holds, including the pipeline."""
    most = entity.max_size_in_megabytes << 20
    if held + added > most:
        kind = "Topic" if isinstance(entity, Topic) else "Queue"
        raise QuotaExceeded(
            f"The maximum entity size has been reached or exceeded for {kind}: '{entity.path}'. "
            f"Size of entity in bytes:{held}, Max entity size in bytes:{most}."
        )


def row_of(
    entity: Queue | Topic,
    message: Incoming,
    numbers: Numbers,
    now: int,
    turn: int,
    *,
    is_checked: bool,
    body_file: str | None = None,
    origin: Origin | None = None,
) -> Row:
    """Return the row of a message that has passed `check`, with the next sequence number.

    `is_checked` says whether detection looks up and remembers its id. `turn` chooses the partition of a message without
    a key.
    """
    assert message.message_id is not None
    identity = message.message_id
    partition = 0
    if origin is not None and origin.partition is not None:
        partition = origin.partition
    elif entity.enable_partitioning:
        partition = partition_of(
            message.session, message.partition_key, identity, detects=entity.requires_duplicate_detection, turn=turn
        )
    row = Row(
        entity=entity.id,
        sequence=numbers.next(entity.id, partition),
        time=now,
        window=0,
        message_id=identity if isinstance(identity, str) else identity.hex(),
        session=message.session or None,
        partition_key=message.partition_key,
        hops=0,
        size=message.size,
        head=message.head,
        body=None if body_file else message.body,
        blob=body_file,
    )
    ttl = min(message.ttl if message.ttl is not None else NO_LIMIT, entity.default_message_time_to_live)
    if ttl < NO_LIMIT:
        row["expires"] = now + ttl
    if message.scheduled is not None and message.scheduled > now:
        row["scheduled"] = min(message.scheduled, LAST_MOMENT)
    window = entity.window
    if window is not None and is_checked:
        effective = effective_partition_key(entity.enable_partitioning, message.session, message.partition_key)
        row["key"] = key_of(entity.id, identity, effective)
        row["window"] = window
    if origin is not None:
        row["origin_entity"] = origin.entity
        row["origin_sequence"] = origin.sequence
        row["hops"] = origin.hops
        row["scheduled"] = origin.scheduled
        ends = [end for end in (origin.expires, row.get("expires")) if end is not None]
        row["expires"] = min(ends, default=None)
    return row
