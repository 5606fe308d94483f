"""Generates the input of the benchmarks: messages in Parquet files, one or two files per batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

BODY_BYTES = 100
START_MICROSECONDS = 1_700_000_000_000_000
FILES_PER_BATCH = 2


def generate(
    folder: Path, *, rows: int, batch: int, duplicates: float, first: int = 0, body: int = BODY_BYTES, seed: int = 7
) -> None:
    """Write `rows` messages in batches of `batch`.

    The share `duplicates` repeats an id of the same or an earlier batch.

    `first` is the number of the first id: messages are numbered, and their times follow their numbers.
    """
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    step = 10
    for begin in range(first, first + rows, batch // FILES_PER_BATCH):
        count = min(batch // FILES_PER_BATCH, first + rows - begin)
        ids = np.arange(begin, begin + count)
        repeats = random.random(count) < duplicates
        # Duplicates repeat one of the last two million ids, because real retries come soon.
        newest = ids[repeats]
        reach = np.minimum(newest - first, 2_000_000)
        ids[repeats] = newest - (random.random(len(newest)) * reach).astype(np.int64)
        bodies = random.integers(32, 127, (count, body), dtype=np.uint8)
        table = pa.table(
            {
                "message_id": pa.array([_text(identity) for identity in ids.tolist()]),
                "enqueued_time": pa.array(
                    START_MICROSECONDS + np.arange(begin, begin + count) * step, pa.timestamp("us", "UTC")
                ),
                "sequence_number": pa.array(np.arange(begin, begin + count)),
                "body": pa.FixedSizeBinaryArray.from_buffers(pa.binary(body), count, [None, pa.py_buffer(bodies)]).cast(
                    pa.binary()
                ),
            }
        )
        pq.write_table(table, folder / f"part-{begin:012d}.parquet", compression="lz4")


def _text(identity: int) -> str:
    """Return an id of 33 characters, as scattered as real ones."""
    return f"{identity * 0x9E3779B97F4A7C15 % 2**64:016x}-{identity:016x}"
