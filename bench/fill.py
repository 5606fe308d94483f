"""Fills a ledger with many ids, through its own code, one process per part: fill.py FOLDER IDS PART END KEY [BATCH].

Writes IDS ids, accepted in the day before END (in microseconds), to a ledger for KEY, in batches of BATCH ids.
"""

from __future__ import annotations

import sys

import numpy as np

from oncebus.detection import Rows, part_of
from oncebus.ledger import Generation, Ledger, Owner

PARTS = 2
ROWS_PER_BATCH = 120_000


def fill(folder: str, ids: int, part: int, end: int, key: str, size: int = ROWS_PER_BATCH) -> None:
    """Accept the given number of random keys of one part, spread over a day."""
    ledger = Ledger.open(folder)
    ledger.describe_or_check([key], has_secret=True)
    generation = Generation(1, "f111", "fill", 0, 0, 0, Owner.this_process())
    if part == 0:
        ledger.claim(generation)
    random = np.random.default_rng(part)
    day = 86_400_000_000
    window = np.full(size, 7 * day)
    for batch, begin in enumerate(range(0, ids, size)):
        digests = random.integers(0, 2**64, (int(size * PARTS * 1.02), 2), dtype=np.uint64)
        mine = digests[part_of(digests[:, 0], digests[:, 1], PARTS) == part][:size]
        count = len(mine)
        time = np.full(count, end - day + day * begin // ids) + np.arange(count)
        rows = Rows(
            mine[:, 0].copy(), mine[:, 1].copy(), np.ones(count, np.bool_), time, window[:count], window[:count],
            np.arange(count) + begin, np.arange(count).__getitem__,
        )  # fmt: skip
        ledger.judge(rows, generation, batch, part=part, parts=PARTS, clock=2**62)
        ledger.tidy(generation, batch, part=part, parts=PARTS)


if __name__ == "__main__":
    fill(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5], *map(int, sys.argv[6:]))
