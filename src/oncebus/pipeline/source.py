"""The pipeline as a PySpark data source: a stream of the parts that were processed.

Spark decides when a micro-batch is cut and where its tasks run; a task processes its part inside `read`. What the task
makes lies in the outbox when `read` returns, and only a row that says so goes to Spark: each other way between Spark
and Python would cost every batch as much as hundreds of messages do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import types as T
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from oncebus.outbox import OutboxPart
from oncebus.pipeline.batch import Places, process_part
from oncebus.pipeline.planning import Part, Planner
from oncebus.spark.task import Place

FORMAT = "oncebus-pipeline"

WAIT_SECONDS = 1.0

SCHEMA = T.StructType([T.StructField(name, T.LongType(), nullable=False) for name in (*OutboxPart._fields, "rows")])
"""A part of a micro-batch, and how many rows of the inbox it had."""


class PipelineSource(DataSource):
    """Options: the folders `inbox`, `catalogue` and `drafts`; `ledger` as `Place.to_json` writes it; `after` (the
    commit behind which the query begins), `shards` and `tasks`.
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
        return PipelineStream(
            Places(options["inbox"], options["catalogue"], options["drafts"]),
            Place.from_json(options["ledger"]),
            after=int(options["after"]),
            shards=int(options["shards"]),
            tasks=int(options["tasks"]),
        )


class PipelineStream(DataSourceStreamReader):
    """An offset is the number of a commit: what lies behind it has not been processed."""

    def __init__(self, places: Places, ledger: Place, *, after: int, shards: int, tasks: int) -> None:
        self._places = places
        self._ledger = ledger
        self._after = after
        self._shards = shards
        self._tasks = tasks
        self._known_planner: Planner | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """See `DataSourceStreamReader`."""
        return {"commit": self._after}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802
        """As many commits as make a good micro-batch.

        Waits for the first of them: Spark asks again a few milliseconds after it was told that there is nothing, which
        would cost a tenth of a core. Not for long, because Spark cannot do anything else meanwhile.
        """
        after = start["commit"]
        self._planner.wait(after, WAIT_SECONDS)
        return {"commit": self._planner.last_commit(after)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """One for each part.

        The first batch of a query has parts for all tasks: Spark then starts a Python worker for each, which takes a
        second and on a busy machine several. Otherwise the first large batch would wait for that.
        """
        is_first = start["commit"] == self._after
        parts = self._planner.parts(start["commit"] + 1, end["commit"], for_all_tasks=is_first)
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, ...]]:
        """Process a part, in a task. Raises `NotInAQuery` where Spark does not tell which batch it is."""
        part = partition.value
        assert isinstance(part, Part)
        writer, batch = self._ledger.writer()
        yield (*part.of, process_part(part, self._places, self._ledger.open(), writer, batch))

    @property
    def _planner(self) -> Planner:
        # Not in the constructor: this object is pickled for the tasks.
        if self._known_planner is None:
            self._known_planner = Planner(
                self._places.inbox, self._places.catalogue, shards=self._shards, tasks=self._tasks
            )
        return self._known_planner

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known_planner": None}
