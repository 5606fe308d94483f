"""Taking what the pipeline has judged out of the outbox, into the store."""

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
"""How often to look at an outbox that has to be polled while nothing is on its way."""
LOOK_SECONDS = 1.0
"""How often to look for why nothing comes."""
BACK_OFF_SECONDS = 0.5
KEPT_ENTRIES = 9
"""The inbox keeps the commits of so many of the newest entries: Spark may run its newest batches again."""


class Taking:
    """One task that takes entries in order, and deletes what they have made unnecessary."""

    def __init__(self, core: Core, folders: Folders) -> None:
        self._core = core
        self._outbox = Outbox(folders.outbox)
        self._taken: deque[int] = deque(maxlen=KEPT_ENTRIES)
        # On the clock of `time.monotonic`.
        self._next_look = 0.0
        self.trouble = Trouble("What the pipeline has judged cannot be taken")

    async def run(self) -> None:
        """Take entries for ever."""
        with contextlib.closing(self._outbox.watch()) as watch:
            while True:
                await self._step(watch)

    async def _step(self, watch: Watch) -> None:
        """Take the next entry, or wait for one."""
        core = self._core
        try:
            entry = self._outbox.next_entry(core.progress.position) if core.lag else None
            if entry is None:
                self._check_for_gap()
                await watch.wait_in_loop(LOOK_SECONDS, poll=POLL_SECONDS if core.lag else IDLE_POLL_SECONDS)
            else:
                await self._take(entry)
                self.trouble.over()
        except Exception as error:
            # Whatever it is, to give up would stop all deliveries.
            self.trouble.met(error)
            await asyncio.sleep(BACK_OFF_SECONDS)

    def _check_for_gap(self) -> None:
        """Raise where what comes next can never come, because what comes after it is there already."""
        now, position = time.monotonic(), self._core.progress.position
        if not self._core.lag or now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        newest = self._outbox.newest()
        # Twice: what appears while the folder is listed may be missed.
        if newest is not None and newest.after > position and self._outbox.next_entry(position) is None:
            raise DataMismatch(
                f"Outbox '{self._outbox.folder}' goes on behind commit {newest.after}, but the store has taken none "
                f"behind commit {position}"
            )

    async def _take(self, entry: Entry) -> None:
        core = self._core
        rows = await asyncio.to_thread(entry.rows)
        policies, now = core.policies, core.clock.steady()
        if behind := core.clock.behind():
            rows = _expiring_later(rows, behind)

        def take(store: Store) -> tuple[IngestReport, dict[int, int]]:
            report = store.ingest(rows, entry.after + 1, entry.last, policies, now)
            return report, {entity: store.size_of(entity) for entity in report.counted}

        report, sizes = await core.run(take)
        core.taken(entry.last, report, sizes)
        # This one stays until the next: a pipeline that begins anew sees by it how far the last had come.
        await asyncio.to_thread(self._outbox.delete_up_to, entry.after)
        self._taken.append(entry.last)
        if len(self._taken) == self._taken.maxlen:
            # Spark may run the newest batches again, and then reads their commits again.
            await core.forget_up_to(self._taken[0])


def _expiring_later(rows: pa.Table, behind: int) -> pa.Table:
    """The rows of messages that were stamped by a clock which stands still: their time to live has just begun."""
    at = rows.schema.get_field_index("expires")
    return rows.set_column(at, rows.schema.field(at), pc.add(rows.column(at), behind))
