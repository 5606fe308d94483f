"""Splits the gateway's rows into one record batch for each shard.

All rows of a key go to one shard, which `oncebus.detection.keys.part_of` chooses. Rows without a key are spread over
the shards: `SPREAD` consecutive rows go to one shard, the following ones to the next shard, so that a small commit is
not split into many pieces.
"""

from __future__ import annotations

import itertools
import operator
import struct
from collections.abc import Sequence
from typing import TypedDict

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from oncebus.detection.keys import part_of
from oncebus.engine.inbox.errors import RowsRefused
from oncebus.model.messages import INBOX_SCHEMA, KEY_BYTES

SPREAD = 64

ROW_SCHEMA = pa.schema([field for field in INBOX_SCHEMA if field.name not in ("position", "commit", "catalogue")])
"""The columns of a row that has no position in the inbox yet."""

_STRUCT = pa.struct(list(INBOX_SCHEMA))
_REQUIRED = [field.name for field in ROW_SCHEMA if not field.nullable]
_required = operator.itemgetter(*_REQUIRED)
_WORDS = struct.Struct("<4I")
# Up to this number, hashing keys one by one is cheaper than numpy's fixed cost.
_FEW = 40


class Row(TypedDict, total=False):
    """A row that has no position yet, because it is not in the inbox.

    Fields whose column is nullable can be left out.
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


def split(
    rows: Sequence[Row] | pa.RecordBatch, commit: int, catalogue: int, position: int, shards: int
) -> list[tuple[int, pa.RecordBatch]]:
    """Return (shard, its rows) for each shard that gets rows, by ascending shard. The rows of a shard keep their order.

    The first row gets `position`. Raises `RowsRefused` for rows that do not fit the schema.
    """
    if len(rows) == 0:
        raise RowsRefused("A commit without rows")
    try:
        if isinstance(rows, pa.RecordBatch):
            placed, batch = _from_batch(rows, commit, catalogue, position, shards)
        else:
            placed, batch = _from_rows(rows, commit, catalogue, position, shards)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise RowsRefused(f"Rows cannot be encoded: {' '.join(str(error).split())}") from error
    if placed[0] == placed[-1]:
        return [(placed[0], batch)]
    starts = [0, *(at for at in range(1, len(rows)) if placed[at] != placed[at - 1]), len(rows)]
    return [(placed[start], batch.slice(start, end - start)) for start, end in itertools.pairwise(starts)]


def _from_rows(
    rows: Sequence[Row], commit: int, catalogue: int, position: int, shards: int
) -> tuple[list[int], pa.RecordBatch]:
    """Return the shard of each row in ascending order, and all rows in the same order."""
    for row in rows:
        # Arrow would turn a missing value into a null, even in a column that is not nullable.
        try:
            if None in _required(row):
                raise RowsRefused(f"Column '{_REQUIRED[_required(row).index(None)]}' of a row is null")
        except KeyError as error:
            raise RowsRefused(f"Column {error} of a row is missing") from error
    chosen = _shards_of_rows(rows, position, shards)
    order = sorted(range(len(rows)), key=chosen.__getitem__)
    # Convert all columns at once: one conversion for each column makes a small commit three times as expensive.
    placed = [{**rows[at], "position": position + at, "commit": commit, "catalogue": catalogue} for at in order]
    return [chosen[at] for at in order], pa.RecordBatch.from_struct_array(pa.array(placed, _STRUCT))


def _from_batch(
    rows: pa.RecordBatch, commit: int, catalogue: int, position: int, shards: int
) -> tuple[list[int], pa.RecordBatch]:
    if not rows.schema.equals(ROW_SCHEMA):
        raise RowsRefused(f"Rows have columns {rows.schema.names} whose names or types differ from ROW_SCHEMA")
    for name in _REQUIRED:
        if rows.column(name).null_count:
            raise RowsRefused(f"Column '{name}' of {rows.column(name).null_count} rows is null")
    shard = _shards_of_batch(rows, position, shards)
    order = np.argsort(shard, kind="stable")
    columns = [
        pa.array(order + position),
        pa.repeat(pa.scalar(commit, pa.int64()), len(rows)),
        pa.repeat(pa.scalar(catalogue, pa.int64()), len(rows)),
        *rows.take(pa.array(order)).columns,
    ]
    return shard[order].tolist(), pa.RecordBatch.from_arrays(columns, schema=INBOX_SCHEMA)


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


def _shards_of_rows(rows: Sequence[Row], position: int, shards: int) -> list[int]:
    keys = [row.get("key") for row in rows]
    for key in keys:
        if key is not None and len(key) != KEY_BYTES:
            raise RowsRefused(f"Key {key!r} has {len(key)} bytes instead of {KEY_BYTES}")
    if len(rows) <= _FEW:
        return [
            (position + at) // SPREAD % shards if key is None else shard_of(key, shards) for at, key in enumerate(keys)
        ]
    digests = b"".join([bytes(KEY_BYTES) if key is None else key for key in keys])
    without = np.fromiter((key is None for key in keys), bool, len(keys))
    chosen: list[int] = _shards(digests, without, position, shards).tolist()
    return chosen


def _shards_of_batch(rows: pa.RecordBatch, position: int, shards: int) -> npt.NDArray[np.int64]:
    keys = rows.column("key")
    without = keys.is_null().to_numpy(zero_copy_only=False)
    start = keys.offset * KEY_BYTES
    digests = keys.buffers()[1].slice(start, len(keys) * KEY_BYTES)
    return _shards(digests, without, position, shards)


def _shards(
    digests: bytes | pa.Buffer, without: npt.NDArray[np.bool_], position: int, shards: int
) -> npt.NDArray[np.int64]:
    halves = np.frombuffer(digests, ">u8").astype(np.uint64).reshape(len(without), 2)
    spread = (position + np.arange(len(without), dtype=np.int64)) // SPREAD % shards
    return np.where(without, spread, part_of(halves[:, 0], halves[:, 1], shards))
