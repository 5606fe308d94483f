"""What a micro-batch does with each of its parts: read, detect, route, publish, tidy. Knows nothing of Spark.

Spark's tasks call `process_part`, and so does whoever runs a pipeline without Spark.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from oncebus.entities.catalogue_files import CatalogueFiles
from oncebus.inbox import InboxReader
from oncebus.ledger import Ledger, Writer
from oncebus.messages import INBOX_SCHEMA
from oncebus.outbox import Batch, OutboxPart, write_part
from oncebus.pipeline.detect import judged
from oncebus.pipeline.planning import Part
from oncebus.pipeline.route import route
from oncebus.pipeline.rules import Routes

TIDY_EVERY = 4
"""A part is tidied once for so many of its runs: to look costs as much as to judge a small batch."""

_LEFT: Counter[tuple[str, int, int]] = Counter()
_BESIDE = ThreadPoolExecutor(1, "keys")


@dataclass(frozen=True, slots=True)
class Places:
    """Where a query's tasks read and write. `drafts` is the query's own folder in the outbox."""

    inbox: str
    catalogue: str
    drafts: str


def process_part(part: Part, places: Places, ledger: Ledger, writer: Writer, batch: int) -> int:
    """Judge and route a part of a batch, and publish it in the outbox; how many rows of the inbox it has.

    When this returns, the keys that were accepted are durable in the ledger, and the part is in the outbox. The keys
    come first: a message in the outbox may be delivered at once. Called again for the same part of the same batch, it
    publishes the same.
    """
    # Also where there are no rows: the first batch of a new query decides what counts of the one before.
    generation, listing = ledger.enter(writer, batch)
    rows = _read(part, places.inbox)
    checked, publish_keys = judged(rows, ledger, generation, batch, part.of.parts, listing)
    # Keys and part go to the disk at the same time; `before` keeps the order in which they appear.
    keys = _BESIDE.submit(publish_keys)
    try:
        made = route(checked, lambda version: _routes(places.catalogue, version))
        # One without rows too, or the entry is never complete.
        write_part(places.drafts, part.of, made, Batch(writer.query, batch), before=keys.result)
    finally:
        wait([keys])
    count: int = rows.num_rows
    # Last, because nobody waits for it.
    if rows.column("key").null_count < count and _is_time_to_tidy(ledger, part.of):
        ledger.tidy(generation, batch, part=part.of.part, parts=part.of.parts)
    return count


def _is_time_to_tidy(ledger: Ledger, of: OutboxPart) -> bool:
    """Whether the part has left enough runs in this process, since it was last tidied here."""
    which = (ledger.location, of.part, of.parts)
    _LEFT[which] += 1
    if _LEFT[which] < TIDY_EVERY:
        return False
    del _LEFT[which]
    return True


def _read(part: Part, inbox: str) -> pa.Table:
    batches = list(InboxReader(inbox).read(part.of.first, part.of.last, part.shards, part.place))
    return pa.Table.from_batches(batches, INBOX_SCHEMA)


@lru_cache(maxsize=64)
def _routes(folder: str, version: int) -> Routes:
    return Routes(CatalogueFiles(folder).load(version))
