"""Packs the gateway's rows, split into shards.

All rows of a key go to one shard, which `oncebus.detection.keys.part_of` chooses. Rows without a key are spread over
the shards: `SPREAD` consecutive rows go to one shard, the following ones to the next shard, so that a small commit is
not split into many pieces.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from oncebus.detection.keys import part_of
from oncebus.engine.inbox.errors import RowsRefused
from oncebus.model.messages import KEY_BYTES
from oncebus.model.packed import pack_row

SPREAD = 64

_REQUIRED = ("entity", "sequence", "time", "window", "message_id", "hops", "size", "head")
_WORDS = struct.Struct("<4I")
# Up to this number, hashing keys one by one is cheaper than numpy's fixed cost.
_FEW = 40


class Row(TypedDict, total=False):
    """A row that has no position yet, because it is not in the inbox. See `oncebus.model.messages.LogRow`.

    Fields that may be None can be left out.
    """

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


def pack(rows: Sequence[Row], position: int, shards: int) -> list[tuple[int, bytes]]:
    """Return (shard, its packed rows) for each shard that gets rows, by ascending shard, for a frame at `position`.

    The rows of a shard keep their order. Raises `RowsRefused` for rows that do not fit.
    """
    if not rows:
        raise RowsRefused("A commit without rows")
    pieces: dict[int, list[bytes]] = {}
    row = rows[0]
    try:
        for at, (row, shard) in enumerate(zip(rows, _shards_of(rows, position, shards), strict=True)):
            packed = pack_row(
                at,
                row["entity"],
                row["sequence"],
                row["time"],
                row.get("key"),
                row["window"],
                row.get("scheduled"),
                row.get("expires"),
                row["message_id"],
                row.get("session"),
                row.get("partition_key"),
                row.get("origin_entity"),
                row.get("origin_sequence"),
                row["hops"],
                row["size"],
                row["head"],
                row.get("body"),
                row.get("body_file"),
            )
            pieces.setdefault(shard, []).append(packed)
    except (struct.error, AttributeError, KeyError, TypeError, ValueError) as error:
        raise RowsRefused(_reason(row, error)) from error
    return [(shard, b"".join(pieces[shard])) for shard in sorted(pieces)]


def _reason(row: Row, error: Exception) -> str:
    """Return why a row could not be packed."""
    for name in _REQUIRED:
        if name not in row:
            return f"Column '{name}' of a row is missing"
        if row.get(name) is None:
            return f"Column '{name}' of a row is null"
    return f"Rows cannot be encoded: {' '.join(str(error).split())}"


def shard_of(key: bytes, shards: int) -> int:
    """Return the shard of one key. The result is that of `part_of`, without the overhead of numpy."""
    hashed = 42
    for word in _WORDS.unpack(key):
        word = word * 0xCC9E2D51 & 0xFFFFFFFF
        word = (word << 15 | word >> 17) * 0x1B873593 & 0xFFFFFFFF
        hashed ^= word
        hashed = (hashed << 13 & 0xFFFFFFFF | hashed >> 19) * 5 + 0xE6546B64 & 0xFFFFFFFF
    hashed ^= KEY_BYTES
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    hashed ^= hashed >> 16
    return (hashed - (hashed >> 31 << 32)) % shards


def _shards_of(rows: Sequence[Row], position: int, shards: int) -> Sequence[int]:
    if shards == 1:
        return [0] * len(rows)
    keys = [row.get("key") for row in rows]
    for key in keys:
        if key is not None and len(key) != KEY_BYTES:
            raise RowsRefused(f"Key {key!r} has {len(key)} bytes instead of {KEY_BYTES}")
    if len(rows) <= _FEW:
        return [
            (position + at) // SPREAD % shards if key is None else shard_of(key, shards) for at, key in enumerate(keys)
        ]
    digests = b"".join([bytes(KEY_BYTES) if key is None else key for key in keys])
    halves = np.frombuffer(digests, ">u8").astype(np.uint64).reshape(len(rows), 2)
    spread = (position + np.arange(len(rows), dtype=np.int64)) // SPREAD % shards
    without = np.fromiter((key is None for key in keys), bool, len(rows))
    chosen: list[int] = np.where(without, spread, part_of(halves[:, 0], halves[:, 1], shards)).tolist()
    return chosen
