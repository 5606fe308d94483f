"""What the store records besides messages, and what searches and counts return. Plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Counts:
    """The messages that an entity holds now, and its totals since it was created.

    A total never goes down. Dead-letter queues have no totals of their own: receiving a dead letter does not count.
    """

    active: int = 0
    dead_letter: int = 0
    scheduled: int = 0
    transfer: int = 0
    transfer_dead_letter: int = 0
    deferred: int = 0
    size: int = 0
    # Messages sent or forwarded here that are not duplicates; in a subscription, its copies.
    new: int = 0
    duplicates: int = 0
    # Deliveries to receivers, also repeated ones.
    outgoing: int = 0
    completed: int = 0
    # Deliveries that failed: the receiver abandoned the message, or its lock expired.
    abandoned: int = 0
    # For any reason, so it includes expired messages that became dead letters.
    dead_lettered: int = 0
    expired: int = 0
    unrouted: int = 0
    discarded: int = 0
    quarantined: int = 0

    @property
    def incoming(self) -> int:
        """Return how many messages were sent or forwarded here, including duplicates."""
        return self.new + self.duplicates


class Purged(NamedTuple):
    """What a purge has done: messages deleted, messages that are still there, and whether it has to go on.

    It concerns messages that were enqueued before the time `before`.
    """

    deleted: int
    left: int
    before: int
    has_more: bool


class Highest(NamedTuple):
    """The highest sequence number and time ever seen in a partition.

    `partition` is 0 if the entity has no partitions.
    """

    entity: int
    partition: int
    sequence: int
    time: int


class Duplicate(NamedTuple):
    """A dropped duplicate, and the original that was kept. `number` is the cursor for the next page.

    `counted_by` is the detection key and `counted_id` the id that counted; both are None if that is the message id.
    """

    entity: int
    number: int
    message_id: str
    time: int
    sequence: int
    original_sequence: int | None
    original_time: int | None
    counted_by: str | None = None
    counted_id: str | None = None


class Forget(NamedTuple):
    """A forget, and the message whose id was remembered, if any. `number` is the cursor for the next page."""

    number: int
    entity: int
    message_id: str
    session: str | None
    partition_key: str | None
    time: int
    sequence: int
    original_sequence: int | None
    original_time: int | None


class Found(NamedTuple):
    """A message that a search found. A search that goes on begins before its `id`."""

    id: int
    entity: int
    sub_queue: int
    sequence: int
    stage: int
    enqueued: int


class Quarantined(NamedTuple):
    """A row that the pipeline could not process. `number` is the cursor for the next page."""

    number: int
    entity: int
    position: int
    sequence: int
    time: int
    message_id: str
    session: str | None
    partition_key: str | None
    reason: str | None
    description: str | None
    size: int
    head: bytes
    body: bytes | None
    body_file: str | None
