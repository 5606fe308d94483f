"""Where in a partitioned entity a message goes, and what of it joins the key by which duplicates are known.

The partition is the first byte of the 8-byte blake2b digest of what decides (text as UTF-8), modulo 16. It is in
sequence numbers that are long handed out, so the function can never change.
"""

from __future__ import annotations

import hashlib

from oncebus.entities.limits import PARTITIONS


def partition_of(
    session: str | None, partition_key: str | None, message_id: str | bytes | None, *, detects: bool, turn: int
) -> int:
    """The partition, 0 to 15: by session, else partition key, else message id where duplicates are detected.

    A message that has nothing to go by takes the partition whose turn it is; the caller counts the turns.
    """
    decisive: str | bytes | None = session or partition_key
    if not decisive and detects:
        decisive = message_id
    if not decisive:
        return turn % PARTITIONS
    data = decisive.encode() if isinstance(decisive, str) else decisive
    return hashlib.blake2b(data, digest_size=8).digest()[0] % PARTITIONS


def effective_partition_key(is_partitioned: bool, session: str | None, partition_key: str | None) -> str | None:
    """What tells two messages of one id apart: on a partitioned entity its session, else its partition key."""
    if not is_partitioned:
        return None
    return session or partition_key or None
