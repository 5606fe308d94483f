"""Begins a query of the pipeline, and runs one without Spark.

Spark's query and `LocalDriver` begin, plan and process alike: `begin_query`, `Planner` and `process_part`. Only Spark's
way of calling them differs (`query.py`, `source.py`).
"""

from __future__ import annotations

import asyncio
import uuid
from typing import NamedTuple

from oncebus.engine.agreement import check_ledger, check_no_repair
from oncebus.engine.folders import Folders
from oncebus.engine.outbox import Outbox
from oncebus.ledger import Committed, Ledger, Owner, Writer
from oncebus.pipeline.batch import KEY_WRITER, TaskFolders, process_part
from oncebus.pipeline.detect import KEY_SIGNATURE
from oncebus.pipeline.planning import Part, Planner
from oncebus.values.threads import OwnThread

IDLE_SECONDS = 0.002


class QueryStart(NamedTuple):
    """The start of a query: it reads the commits after `after`, and follows the generation `follows` of the ledger.

    `identity` identifies the ledger.
    """

    after: int
    folders: TaskFolders
    ledger: Ledger
    identity: str
    follows: int


def begin_query(folders: Folders, *, is_local: bool) -> QueryStart:
    """Return where the next query begins. Also records in the ledger that the output is complete up to there.

    Set `is_local` if all tasks of the query run on this machine. No other query may use these folders.

    Raises `DataMismatch` if outbox and ledger come from different times.

    The lock on the data folder proves that the last query has ended. The ledger alone would have to guess, if that
    query ran in another container or before a reboot.
    """
    check_no_repair(folders)
    ledger = Ledger.open(folders.ledger)
    identity = ledger.describe_or_check(KEY_SIGNATURE)
    check_ledger(folders.outbox, ledger)
    last, drafts = Outbox(folders.outbox).begin(is_local=is_local)
    newest = ledger.newest()
    if last is not None:
        batch = last.batch()
        # If a later query has joined the ledger but has no entry yet, it has already recorded what is complete.
        if newest is not None and newest.query == batch.query:
            ledger.record_committed(Committed(batch.query, batch.number))
    of_tasks = TaskFolders(str(folders.inbox), str(folders.catalogue), drafts)
    return QueryStart(last.last if last else 0, of_tasks, ledger, identity, newest.number if newest else 0)


class MicroBatch(NamedTuple):
    """The parts of a micro-batch with this number. They end with the commit `last`."""

    number: int
    last: int
    parts: list[Part]


class LocalDriver:
    """Does in this process what Spark does with driver and tasks: plans micro-batches, and processes their parts.

    `step` does one micro-batch. A caller that decides the order itself, as a simulator does, plans a micro-batch, makes
    one or more attempts at each of its parts, in any order, and finishes it. A driver may be dropped at any moment: the
    next one begins after the newest complete entry of the outbox.
    """

    def __init__(self, folders: Folders, *, shards: int, beside: OwnThread | None = None) -> None:
        """`beside` writes keys; by default, the thread of all tasks of this process does."""
        self.is_paused = False
        self._beside = beside or KEY_WRITER
        self._planner = Planner(folders.inbox, folders.catalogue, shards=shards, tasks=shards)
        self._after, self._folders, self._ledger, _, follows = begin_query(folders, is_local=True)
        self._writer = Writer(uuid.uuid4().hex, uuid.uuid4().hex, Owner.this_process(), follows, has_ended=True)
        self._batch = 0

    def plan(self, most_commits: int = 1 << 62) -> MicroBatch | None:
        """Return the next micro-batch, or None if there is nothing to do."""
        last = min(self._planner.last_commit(self._after), self._after + most_commits)
        parts = self._planner.parts(self._after + 1, last)
        return MicroBatch(self._batch, last, parts) if parts else None

    def process(self, part: Part, batch: int) -> int:
        """Make an attempt at a part of a micro-batch, as a task does. Return its number of inbox rows."""
        return process_part(part, self._folders, self._ledger, self._writer, batch, self._beside)

    def finish(self, batch: MicroBatch) -> None:
        """Continue after a micro-batch, all of whose parts are processed."""
        self._after = batch.last
        self._batch = batch.number + 1

    def step(self, most_commits: int = 1 << 62) -> bool:
        """Do one micro-batch. Return whether there was one."""
        batch = self.plan(most_commits)
        if batch is None:
            return False
        for part in batch.parts:
            self.process(part, batch.number)
        self.finish(batch)
        return True

    async def run(self) -> None:
        """Do micro-batches until the task is cancelled, except while `is_paused`."""
        while True:
            if self.is_paused or not self.step():
                await asyncio.sleep(IDLE_SECONDS)
