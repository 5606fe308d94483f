"""The partition of a message in a partitioned entity, and the partition key that is part of its detection key.

The partition is the first byte of the 8-byte blake2b digest of the deciding value (text as UTF-8), modulo 16. Sequence
numbers that clients already have contain it, so the function can never change.
"""

from __future__ import annotations

import hashlib

from oncebus.model.entities.limits import PARTITIONS
from oncebus.model.entities.names import session_key


def decided_partition(
    session: str | None, partition_key: str | None, message_id: str | bytes | None, *, detects: bool
) -> int | None:
    """Return the partition, 0 to 15. The session decides, else the partition key, else the message id; else None.

    The message id decides only if `detects` is set.
    """
    decisive: str | bytes | None
    if session is not None:
        decisive = session_key(session)
    else:
        decisive = partition_key or (message_id if detects else None) or None
    if decisive is None:
        return None
    data = decisive.encode() if isinstance(decisive, str) else decisive
    return hashlib.blake2b(data, digest_size=8).digest()[0] % PARTITIONS


def partition_of(
    session: str | None, partition_key: str | None, message_id: str | bytes | None, *, detects: bool, turn: int
) -> int:
    """Return the partition, 0 to 15.

    Messages for which nothing decides are spread evenly: the caller passes a counter as `turn`.
    """
    decided = decided_partition(session, partition_key, message_id, detects=detects)
    return turn % PARTITIONS if decided is None else decided


def effective_partition_key(is_partitioned: bool, session: str | None, partition_key: str | None) -> str | None:
    """Return the partition key that is part of the detection key, next to the message id; None if there is none.

    On a partitioned entity this is the session, in the form in which sessions are compared, else the partition key.
    Other entities have none.
    """
    if not is_partitioned:
        return None
    return session_key(session) if session is not None else partition_key or None
