"""Presents the pipeline as a PySpark data source: a stream with one row for each processed part.

Spark decides when to cut a micro-batch and where its tasks run. A task processes its part inside `read`: when `read`
returns, the outbox has the result, and only one row that says so goes to Spark. Any other exchange between Spark and
Python would cost every batch as much as hundreds of messages.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import types as T
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from oncebus.engine.outbox import OutboxPart
from oncebus.pipeline.batch import TaskFolders, process_part
from oncebus.pipeline.following import Turn, follow, reached, turn
from oncebus.pipeline.planning import Part, Planner
from oncebus.spark.task import LedgerPlace

FORMAT = "oncebus-pipeline"

WAIT_SECONDS = 1.0
OBJECTS_BEFORE_COLLECTING = 50_000

SCHEMA = T.StructType([T.StructField(name, T.LongType(), nullable=False) for name in (*OutboxPart._fields, "rows")])
"""The fields of a part, and its number of inbox rows."""


def collect_rarely() -> None:
    """Let this process look for garbage less often. The rows of a large batch would be looked at again and again."""
    gc.set_threshold(OBJECTS_BEFORE_COLLECTING, *gc.get_threshold()[1:])


class PipelineSource(DataSource):
    """The data source of the pipeline.

    Options: the folders `inbox`, `catalogue` and `drafts`; `ledger` as `LedgerPlace.to_json` writes it; `after` (the
    query begins after this commit), `shards` and `tasks`; `follows` (whether a task may follow the inbox).
    """

    @classmethod
    def name(cls) -> str:
        """See `DataSource`."""
        return FORMAT

    def schema(self) -> T.StructType:
        """See `DataSource`."""
        return SCHEMA

    def streamReader(self, schema: T.StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """See `DataSource`."""
        options = self.options
        kind = FollowingStream if options["follows"] == "true" else PipelineStream
        return kind(
            TaskFolders(options["inbox"], options["catalogue"], options["drafts"]),
            LedgerPlace.from_json(options["ledger"]),
            after=int(options["after"]),
            shards=int(options["shards"]),
            tasks=int(options["tasks"]),
        )


class PipelineStream(DataSourceStreamReader):
    """Reads the inbox as a stream. An offset is a commit number: everything up to it has been processed."""

    def __init__(self, folders: TaskFolders, ledger: LedgerPlace, *, after: int, shards: int, tasks: int) -> None:
        self._folders = folders
        self._ledger = ledger
        self._after = after
        self._shards = shards
        self._tasks = tasks
        self._known_planner: Planner | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """See `DataSourceStreamReader`."""
        return {"commit": self._after}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802
        """Return the end of the next micro-batch. It has as many commits as fit into a batch of good size.

        Waits for the first commit, because Spark asks again a few milliseconds after an empty answer, which would cost
        a tenth of a core. Does not wait long, because Spark can do nothing else meanwhile.
        """
        after = start["commit"]
        self._planner.wait(after, WAIT_SECONDS)
        return {"commit": self._planner.last_commit(after)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return one partition for each part of the micro-batch.

        The first batch of a query has parts for all tasks, so that Spark starts all Python workers now. A start takes a
        second, on a busy machine several, and the first large batch would have to wait for it.
        """
        is_first = start["commit"] == self._after
        parts = self._planner.parts(start["commit"] + 1, end["commit"], for_all_tasks=is_first)
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, ...]]:
        """Process a part, in a task. Raises `NotInAQuery` if Spark gives the task no batch number."""
        collect_rarely()
        writer, batch = self._ledger.writer()
        part = partition.value
        assert isinstance(part, Part)
        yield (*part.of, process_part(part, self._folders, self._ledger.open(), writer, batch))

    @property
    def _planner(self) -> Planner:
        # Created on first use: Spark pickles this object for the tasks, and they need no planner.
        if self._known_planner is None:
            self._known_planner = Planner(
                self._folders.inbox, self._folders.catalogue, shards=self._shards, tasks=self._tasks
            )
        return self._known_planner

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known_planner": None}


class FollowingStream(PipelineStream):
    """Reads the inbox as a stream whose tasks follow it: see `oncebus.pipeline.following`.

    An offset counts the micro-batches. The outbox shows how far the query has come, which may be further than Spark
    planned.
    """

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """See `DataSourceStreamReader`."""
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802
        """Return the end of the next micro-batch, which begins at once. Only the first one waits for a commit."""
        if self._is_first(start):
            self._planner.wait(self._after, WAIT_SECONDS)
            if self._planner.last_commit(self._after) == self._after:
                return start
        return {"batch": start["batch"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return one partition that follows the inbox, or the parts of the commits that wait there if they are many.

        The first batch of a query has parts for all tasks, as in `PipelineStream`.
        """
        begin = reached(self._folders.drafts, self._after)
        is_first, last = self._is_first(start), self._planner.last_commit(begin.after)
        parts = self._planner.parts(begin.after + 1, last, for_all_tasks=is_first)
        if len(parts) <= 1 and not is_first:
            return [InputPartition(turn(begin, end["batch"]))]
        return [InputPartition((part, begin.batch)) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, ...]]:
        """Follow the inbox, or process a part, in a task.

        Raises `NotInAQuery` if the task does not belong to a query.
        """
        collect_rarely()
        (writer, _), ledger = self._ledger.writer(), self._ledger.open()
        if isinstance(partition.value, Turn):
            for of, rows in follow(partition.value, self._planner, self._folders, ledger, writer):
                yield (*of, rows)
        else:
            part, batch = partition.value
            yield (*part.of, process_part(part, self._folders, ledger, writer, batch))

    def _is_first(self, start: dict[str, int]) -> bool:
        return start == self.initialOffset()
