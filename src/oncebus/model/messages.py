"""Defines the rows of messages: the gateway writes them to the log, and the pipeline makes results of them.

Times are microseconds since 1970 UTC, durations are microseconds. `entity` is the id that a queue, topic or
subscription gets when it is created. It is never used again.
"""

from __future__ import annotations

import enum
import hashlib
import struct
from typing import NamedTuple

LARGEST_INLINE_BODY = 64 * 1024
"""A body larger than this goes to a body file, and the row contains the file's name."""

PARTITION_SHIFT = 48
"""The bits of a sequence number from this one up hold its partition."""

KEY_BYTES = 16
_BEFORE_IDENTITY = struct.Struct(">qcI")

NOBODY = 0
"""The entity of a pulse: a row for no entity that shows that the pipeline works."""

TRANSACTION = -1
"""The origin entity of a message that a transaction sent together with changes of the store. Not an entity."""


class LogRow(NamedTuple):
    """A row of the log.

    `position` is its number among all rows ever accepted, and `commit` the commit that made it durable. `catalogue` is
    the version under which it was accepted. `key` is None if detection does not check the row. `window` is negative in
    a forget: not a message, but a request to forget its key.

    `origin_entity` and `origin_sequence` say where a requeued message, or one of a transaction, came from; the store
    ingests each pair once. `head` is the bare message: properties and application properties. Then there is a `body`,
    or the name of its body file.
    """

    position: int
    commit: int
    catalogue: int
    entity: int
    sequence: int
    time: int
    key: bytes | None
    window: int
    scheduled: int | None
    expires: int | None
    message_id: str
    session: str | None
    partition_key: str | None
    origin_entity: int | None
    origin_sequence: int | None
    hops: int
    size: int
    head: bytes
    body: bytes | None
    body_file: str | None


class Fate(enum.IntEnum):
    """What the pipeline decided about a row. The numbers are stored in outbox entries."""

    DELIVERED = 0
    DUPLICATE = 1
    # A copy that goes straight to the dead letters of its destination, because a filter failed.
    DEAD_LETTERED = 2
    # No subscription matched. It is still accepted, remembered and counted.
    UNROUTED = 3
    # Its entity was deleted.
    DISCARDED = 4
    QUARANTINED = 5
    # Not a message: its key is forgotten.
    FORGET = 6


class Result(NamedTuple):
    """What became of a row: a copy for one destination, or the record of a row that is not delivered.

    `row` has the changes of a rule's action. `destination` is a queue or a subscription, if the fate is DELIVERED or
    DEAD_LETTERED. `reason` and `description` say why it was dead-lettered or quarantined; for DUPLICATE they are the
    detection key and the id that counted, if that is not the message id. `original_sequence` and `original_time` are
    those of the original of a DUPLICATE, and of the remembered message, if any, of a FORGET.
    """

    row: LogRow
    fate: Fate
    destination: int | None = None
    reason: str | None = None
    description: str | None = None
    original_sequence: int | None = None
    original_time: int | None = None


def place_of(result: Result) -> tuple[int, bool, int]:
    """Return what results are ordered by: the position, then the destination; those without one come last."""
    destination = result.destination
    return result.row.position, destination is None, destination or 0


def partition_in(sequence: int) -> int:
    """Return the partition in a sequence number."""
    return sequence >> PARTITION_SHIFT


def key_of(entity: int, message_id: str | bytes, partition_key: str | None) -> bytes:
    """Return the digest of a message's key.

    Nobody can find two different (entity, id, partition key) with the same digest.

    `partition_key` is None unless the entity is partitioned and the message has one.
    """
    identity, kind = (message_id, b"b") if isinstance(message_id, bytes) else (message_id.encode(), b"t")
    return key_of_kind(entity, kind, identity, partition_key)


def key_of_kind(entity: int, kind: bytes, identity: bytes, partition_key: str | None) -> bytes:
    """Return the digest of a key. `kind` is one byte that says what the id is.

    See `oncebus.model.entities.detection_keys`. Keys of different kinds never have the same digest.
    """
    digested = _BEFORE_IDENTITY.pack(entity, kind, len(identity)) + identity
    if partition_key is not None:
        digested += b"p" + partition_key.encode()
    return hashlib.blake2b(digested, digest_size=KEY_BYTES).digest()
