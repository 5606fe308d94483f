"""Defines the rows of messages in the pipeline: the gateway writes them to the inbox, and Spark to the outbox.

Times are microseconds since 1970 UTC, durations are microseconds. `entity` is the id that a queue, topic or
subscription gets when it is created. It is never used again.
"""

from __future__ import annotations

import enum
import hashlib
import struct

import pyarrow as pa

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

INBOX_SCHEMA = pa.schema(
    [
        # The row's number among all rows ever accepted, and the commit that made it durable.
        pa.field("position", pa.int64(), nullable=False),
        pa.field("commit", pa.int64(), nullable=False),
        pa.field("catalogue", pa.int64(), nullable=False),
        pa.field("entity", pa.int64(), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("time", pa.int64(), nullable=False),
        # Null if detection does not check the row.
        pa.field("key", pa.binary(KEY_BYTES)),
        # Negative in a forget: not a message, but a request to forget its key.
        pa.field("window", pa.int64(), nullable=False),
        pa.field("scheduled", pa.int64()),
        pa.field("expires", pa.int64()),
        pa.field("message_id", pa.string(), nullable=False),
        pa.field("session", pa.string()),
        pa.field("partition_key", pa.string()),
        # Where a requeued message, or one of a transaction, came from. The store ingests each pair once.
        pa.field("origin_entity", pa.int64()),
        pa.field("origin_sequence", pa.int64()),
        pa.field("hops", pa.int64(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        # The bare message: properties and application properties, then the body or the name of its body file.
        pa.field("head", pa.binary(), nullable=False),
        pa.field("body", pa.binary()),
        pa.field("body_file", pa.string()),
    ]
)


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


OUTBOX_SCHEMA = pa.schema(
    [
        # 64-bit offsets, unlike in the inbox: a message of a topic is copied for each of its subscriptions.
        *(field.with_type(pa.large_binary()) if field.name in ("head", "body") else field for field in INBOX_SCHEMA),
        pa.field("fate", pa.int8(), nullable=False),
        # A queue or a subscription, if the fate is DELIVERED or DEAD_LETTERED.
        pa.field("destination", pa.int64()),
        # Why it was dead-lettered or quarantined. For DUPLICATE: the detection key and the id that counted, if that is
        # not the message id.
        pa.field("reason", pa.string()),
        pa.field("description", pa.string()),
        # Sequence number and time of the original, if the fate is DUPLICATE; of the remembered message, if any, if the
        # fate is FORGET.
        pa.field("original_sequence", pa.int64()),
        pa.field("original_time", pa.int64()),
    ]
)


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
