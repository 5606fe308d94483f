"""A pipeline over a folder, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from oncebus.engine.inbox import InboxWriter, Row
from oncebus.engine.outbox import Entry, Outbox
from oncebus.ledger import Ledger, Owner, Writer
from oncebus.model.entities import CatalogueFiles
from oncebus.model.messages import Fate
from oncebus.pipeline.batch import TaskFolders, process_part
from oncebus.pipeline.detect import KEY_SIGNATURE
from oncebus.pipeline.planning import Planner
from tests.pipeline.judged_rows import catalogue


class Pipeline:
    """A pipeline over a folder whose inbox a test fills."""

    def __init__(self, folder: Path) -> None:
        CatalogueFiles(folder / "catalogue").publish(catalogue())
        self._inbox = InboxWriter.open(folder / "inbox", 4)
        self.outbox = Outbox(folder / "outbox")
        self.ledger = Ledger.open(folder / "ledger")
        self.ledger.describe_or_check(KEY_SIGNATURE)
        self.folders = TaskFolders(str(folder / "inbox"), str(folder / "catalogue"), self.outbox.begin().drafts)
        self.planner = Planner(folder / "inbox", folder / "catalogue", shards=4, tasks=4)
        self.writer = Writer("0" * 32, "query", Owner.this_process())

    def append(self, rows: Sequence[Row]) -> int:
        """Make rows durable in the inbox, and return their commit."""
        return self._inbox.append(rows, catalogue().version)

    def run(self, first: int, last: int, batch: int, *, for_all_tasks: bool = False) -> list[int]:
        """Process the commits, and return the number of rows in each part."""
        parts = self.planner.parts(first, last, for_all_tasks=for_all_tasks)
        return [process_part(part, self.folders, self.ledger, self.writer, batch) for part in parts]

    def entry(self, after: int) -> Entry:
        found = self.outbox.next_entry(after)
        assert found is not None
        return found

    def fates(self, after: int) -> list[tuple[str, Fate, int | None]]:
        return [(each.row.message_id, each.fate, each.destination) for each in self.entry(after).rows()]
