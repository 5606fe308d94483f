"""Ingesting the pipeline's results: from the outbox into the store."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from oncebus.broker.errors import DataMismatch
from oncebus.broker.trouble import Trouble
from oncebus.folders import Folders
from oncebus.outbox import Entry, Outbox
from oncebus.store import IngestReport, Store
from oncebus.watching import POLL_SECONDS, Watch

if TYPE_CHECKING:
    from oncebus.broker.core import Core

IDLE_POLL_SECONDS = 0.02
"""How often to poll the outbox, if it has to be polled, while nothing is in the pipeline."""
CHECK_SECONDS = 1.0
"""How often to check for a gap in the outbox while nothing comes."""
BACK_OFF_SECONDS = 0.5
KEPT_ENTRIES = 9
"""For how many of the newest entries the inbox keeps the commits: Spark may run its newest batches again."""


class Ingester:
    """A task that ingests outbox entries in order, and deletes entries and commits that nobody needs any more."""

    def __init__(self, core: Core, folders: Folders) -> None:
        self._core = core
        self._outbox = Outbox(folders.outbox)
        # The last commits of the newest ingested entries.
        self._ingested: deque[int] = deque(maxlen=KEPT_ENTRIES)
        # On the clock of `time.monotonic`.
        self._next_check = 0.0
        self.trouble = Trouble("Cannot ingest the pipeline's results; retrying")

    async def run(self) -> None:
        """Ingest entries until cancelled."""
        with contextlib.closing(self._outbox.watch()) as watch:
            while True:
                await self._step(watch)

    async def _step(self, watch: Watch) -> None:
        """Ingest the next entry, or wait for one."""
        core = self._core
        try:
            entry = self._outbox.next_entry(core.progress.position) if core.lag else None
            if entry is None:
                self._check_for_gap()
                await watch.wait_in_loop(CHECK_SECONDS, poll=POLL_SECONDS if core.lag else IDLE_POLL_SECONDS)
            else:
                await self._ingest(entry)
                self.trouble.over()
        except Exception as error:
            # Any error: giving up would stop all deliveries.
            self.trouble.met(error)
            await asyncio.sleep(BACK_OFF_SECONDS)

    def _check_for_gap(self) -> None:
        """Raise `DataMismatch` if the next entry can never come, because a later one is already there."""
        now, position = time.monotonic(), self._core.progress.position
        if not self._core.lag or now < self._next_check:
            return
        self._next_check = now + CHECK_SECONDS
        newest = self._outbox.newest()
        # Look for the next entry again: a listing may miss one that appeared meanwhile.
        if newest is not None and newest.after > position and self._outbox.next_entry(position) is None:
            raise DataMismatch(
                f"Outbox '{self._outbox.folder}' continues after commit {newest.after}, but the store has ingested "
                f"none after commit {position}"
            )

    async def _ingest(self, entry: Entry) -> None:
        core = self._core
        rows = await asyncio.to_thread(entry.rows)
        policies, now = core.policies, core.clock.steady()
        if behind := core.clock.behind():
            rows = _expiring_later(rows, behind)

        def ingest(store: Store) -> tuple[IngestReport, dict[int, int]]:
            report = store.ingest(rows, entry.after + 1, entry.last, policies, now)
            return report, {entity: store.size_of(entity) for entity in report.counted}

        report, sizes = await core.run(ingest)
        core.ingested(entry.last, report, sizes)
        # Keep this entry until the next one: it shows a restarted pipeline how far the last one came.
        await asyncio.to_thread(self._outbox.delete_up_to, entry.after)
        self._ingested.append(entry.last)
        if len(self._ingested) == self._ingested.maxlen:
            # Keep the commits of the newest batches: Spark may run these again.
            await core.forget_up_to(self._ingested[0])


def _expiring_later(rows: pa.Table, behind: int) -> pa.Table:
    """Return the rows with a later expiry: their stamps came from a clock that stood `behind` the steady time."""
    at = rows.schema.get_field_index("expires")
    return rows.set_column(at, rows.schema.field(at), pc.add(rows.column(at), behind))
