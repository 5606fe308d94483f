"""The row of a message on its way: what the gateway writes into the inbox and Spark into the outbox.

Times are microseconds since 1970 UTC, durations microseconds. An `entity` is an incarnation: a number that is new at
each creation of a queue, topic or subscription and never used again.
"""

from __future__ import annotations

import enum
import hashlib
import struct

import pyarrow as pa

LARGEST_INLINE_BODY = 64 * 1024
"""A larger body lies in a file of its own; the row bears its name."""

PARTITION_SHIFT = 48
"""A sequence number holds its partition in the bits above."""

KEY_BYTES = 16

NOBODY = 0
"""The entity of a row that is for no one: it goes through the pipeline to show that it is alive."""

INBOX_SCHEMA = pa.schema(
    [
        # Where the row stands among all rows ever accepted, and the commit that made it durable.
        pa.field("position", pa.int64(), nullable=False),
        pa.field("commit", pa.int64(), nullable=False),
        pa.field("catalogue", pa.int64(), nullable=False),
        pa.field("entity", pa.int64(), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("time", pa.int64(), nullable=False),
        # Null where nothing is to be checked.
        pa.field("key", pa.binary(KEY_BYTES)),
        pa.field("window", pa.int64(), nullable=False),
        pa.field("scheduled", pa.int64()),
        pa.field("expires", pa.int64()),
        pa.field("message_id", pa.string(), nullable=False),
        pa.field("session", pa.string()),
        pa.field("partition_key", pa.string()),
        # Where a forwarded or due message came from: together they are taken once.
        pa.field("origin_entity", pa.int64()),
        pa.field("origin_sequence", pa.int64()),
        pa.field("hops", pa.int64(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        # The bare message: properties and application properties, then the body; or the name of the body's file.
        pa.field("head", pa.binary(), nullable=False),
        pa.field("body", pa.binary()),
        pa.field("blob", pa.string()),
    ]
)


class Fate(enum.IntEnum):
    """What became of a row. The numbers are written into outbox entries."""

    DELIVERED = 0
    DUPLICATE = 1
    # A copy that goes to the dead letters of its destination as it arrives, for a filter that failed.
    DEAD_LETTERED = 2
    # No subscription wanted it: accepted, remembered and counted.
    UNROUTED = 3
    # Its entity is gone.
    DISCARDED = 4
    QUARANTINED = 5


OUTBOX_SCHEMA = pa.schema(
    [
        # A topic's messages are copied for each of its subscriptions.
        *(field.with_type(pa.large_binary()) if field.name in ("head", "body") else field for field in INBOX_SCHEMA),
        pa.field("fate", pa.int8(), nullable=False),
        # A queue or a subscription, where the fate is DELIVERED or DEAD_LETTERED.
        pa.field("destination", pa.int64()),
        pa.field("reason", pa.string()),
        pa.field("description", pa.string()),
        # The winner's, where the fate is DUPLICATE.
        pa.field("original_sequence", pa.int64()),
        pa.field("original_time", pa.int64()),
    ]
)


def key_of(entity: int, message_id: str | bytes, partition_key: str | None) -> bytes:
    """The digest by which a message is known: no two (entity, id, partition key) share one that anybody could find.

    A partition key is given where the entity is partitioned and the message has one.
    """
    identity, kind = (message_id, b"b") if isinstance(message_id, bytes) else (message_id.encode(), b"t")
    digest = hashlib.blake2b(struct.pack(">qcI", entity, kind, len(identity)), digest_size=KEY_BYTES)
    digest.update(identity)
    if partition_key is not None:
        digest.update(b"p" + partition_key.encode())
    return digest.digest()
