"""Processes one part of a micro-batch: read, detect, route, publish, tidy. It does not depend on Spark.

Spark's tasks call `process_part`, and so does `LocalDriver`.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import wait
from dataclasses import dataclass
from functools import lru_cache

from oncebus.engine.inbox import InboxReader
from oncebus.engine.outbox import Batch, OutboxPart, refuse_late, write_part
from oncebus.ledger import TaskLedger, Writer
from oncebus.model.entities.catalogue_files import CatalogueFiles
from oncebus.model.messages import LogRow
from oncebus.pipeline.detect import detect
from oncebus.pipeline.planning import Part
from oncebus.pipeline.route import route
from oncebus.pipeline.rules import Routes
from oncebus.values.threads import OwnThread

TIDY_EVERY = 4
"""The number of runs of a part between two tidyings. Looking for work costs as much as judging a small batch."""

_RUNS_SINCE_TIDY: Counter[tuple[str, int, int]] = Counter()
KEY_WRITER = OwnThread("keys")


@dataclass(frozen=True, slots=True)
class TaskFolders:
    """The folders that a query's tasks read and write. `drafts` is the query's own folder in the outbox."""

    inbox: str
    catalogue: str
    drafts: str


def process_part(
    part: Part, folders: TaskFolders, ledger: TaskLedger, writer: Writer, batch: int, beside: OwnThread = KEY_WRITER
) -> int:
    """Judge and route one part of a batch, publish it in the outbox, and return its number of inbox rows.

    When this returns, the accepted keys are durable in the ledger and the part is in the outbox. The keys come first,
    because a message in the outbox may be delivered at once. A second call for the same part of the same batch
    publishes the same rows. `beside` writes the keys.
    """
    # A task may outlive its query. It must not enter then: it would take the ledger from the next query.
    refuse_late(folders.drafts, part.of)
    # Enter even without rows: the first batch of a new query decides which batches of the last query count.
    generation, listing = ledger.enter(writer, batch)
    rows = _read(part, folders.inbox)
    originals, publish_keys = detect(rows, ledger, generation, batch, part.of.part, part.of.parts, listing)
    # Keys and part are written to disk at the same time. `before` makes the part visible only after the keys.
    keys = beside.begin(publish_keys)
    try:
        results = route(rows, originals, lambda version: _routes(folders.catalogue, version))
        # Write a part without rows too. Otherwise the entry would never be complete.
        write_part(folders.drafts, part.of, results, Batch(writer.query, batch), before=keys.result)
    finally:
        wait([keys])
    # Tidy last, because nobody waits for it.
    if any(row.key is not None for row in rows) and _is_time_to_tidy(ledger, part.of):
        ledger.tidy(generation, batch, part=part.of.part, parts=part.of.parts)
    return len(rows)


def _is_time_to_tidy(ledger: TaskLedger, of: OutboxPart) -> bool:
    """Count one more run of this part. Return whether enough runs have come since this process last tidied the part."""
    which = (ledger.location, of.part, of.parts)
    _RUNS_SINCE_TIDY[which] += 1
    if _RUNS_SINCE_TIDY[which] < TIDY_EVERY:
        return False
    del _RUNS_SINCE_TIDY[which]
    return True


def _read(part: Part, inbox: str) -> list[LogRow]:
    """Return the rows of a part in their order."""
    rows = list(InboxReader(inbox).read(part.of.first, part.of.last, part.shards, part.place))
    rows.sort(key=lambda row: row.position)
    return rows


@lru_cache(maxsize=64)
def _routes(folder: str, version: int) -> Routes:
    return Routes(CatalogueFiles(folder).load(version))
