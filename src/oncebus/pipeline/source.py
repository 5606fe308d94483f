"""`source`: the inbox as a PySpark data source. A micro-batch is cut at commits; its tasks take whole shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit

from oncebus.entities.catalogue_files import CatalogueFiles
from oncebus.entities.weights import copies_by_topic
from oncebus.inbox import Commit, InboxReader, Place
from oncebus.messages import INBOX_SCHEMA, NOBODY
from oncebus.outbox import OutboxPart
from oncebus.pipeline.weights import weight_of_rows

FORMAT = "oncebus-inbox"

MOST_ROWS = 200_000
MOST_BYTES = 16 << 20
ROWS_FOR_A_TASK = 4_000
"""Below that a second task costs more than it saves."""

ROWS_TOGETHER = 10_000

# Spark has no binaries of a fixed size.
_ROWS = pa.schema(
    [
        *(field.with_type(pa.binary()) if field.name == "key" else field for field in INBOX_SCHEMA),
        *(pa.field(name, pa.int64(), nullable=False) for name in OutboxPart._fields),
    ]
)
SCHEMA: T.StructType = from_arrow_schema(_ROWS)
"""The inbox's rows, each with the micro-batch and the part of it that it belongs to."""


@dataclass(frozen=True)
class Share(InputPartition):
    """What one task reads: some shards of the commits of a micro-batch."""

    of: OutboxPart
    shards: tuple[int, ...]
    place: Place


class InboxSource(DataSource):
    """Options: `folder` of the inbox, that of the `catalogue`, `after` (the commit behind which a new query begins),
    `shards`, `tasks`.
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
        return InboxStream(
            self.options["folder"],
            self.options["catalogue"],
            after=int(self.options["after"]),
            shards=int(self.options["shards"]),
            tasks=int(self.options["tasks"]),
        )


class InboxStream(DataSourceStreamReader):
    """An offset is the number of a commit: what lies behind it has not been read."""

    def __init__(self, folder: str, catalogue: str, *, after: int, shards: int, tasks: int) -> None:
        self._folder = folder
        self._catalogue = catalogue
        self._after = after
        self._shards = shards
        self._tasks = tasks
        self._reader: InboxReader | None = None
        # Of the commits behind the newest that was planned.
        self._weights: dict[int, int] = {}

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """See `DataSourceStreamReader`."""
        return {"commit": self._after}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802
        """As many commits as make a good micro-batch. Asked every few milliseconds."""
        after = start["commit"]
        for taken in [commit for commit in self._weights if commit <= after]:
            del self._weights[taken]
        return {"commit": self._inbox.plan(after, MOST_ROWS, MOST_BYTES, self._weight)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """One share for few rows, because a task costs as much as thousands of rows; else one for each task there is.

        The first batch of a query has all of them: Spark then starts a Python worker for each, which takes a second and
        on a busy machine several. Otherwise the first large batch would wait for that, and everyone with it.
        """
        first, last = start["commit"] + 1, end["commit"]
        if first > last:
            return []
        is_first = start["commit"] == self._after
        wanted = self._tasks if is_first else 1 + self._inbox.rows(first, last) // ROWS_FOR_A_TASK
        most = min(wanted, self._tasks, self._shards)
        # Shares of whole shards, and alike: then the keys of each are one part of as many in the ledger.
        count = next(number for number in range(most, 0, -1) if self._shards % number == 0)
        place = self._inbox.locate(first)
        return [
            Share(OutboxPart(first, last, part, count), tuple(range(part, self._shards, count)), place)
            for part in range(count)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a share; at least one, for what comes later has to know which share it is."""
        assert isinstance(partition, Share)
        of = partition.of
        # Commits are small and many, and each batch that crosses into Spark has its price: they go together.
        batches = list(InboxReader(self._folder).read(of.first, of.last, partition.shards, partition.place))
        table = pa.Table.from_batches(batches or [_nobody(of)]).combine_chunks()
        for batch in table.to_batches(max_chunksize=ROWS_TOGETHER):
            yield _with_share(batch, of)

    def _weight(self, commit: Commit) -> int:
        """How many bytes a commit counts for: more than it has, where a topic makes many copies of its messages."""
        copies = _copies(self._catalogue, commit.catalogue)
        if not copies:
            return commit.length
        if commit.number not in self._weights:
            rows = self._inbox.read(commit.number, commit.number, place=commit.place)
            copied = sum(weight_of_rows(batch, copies) for batch in rows)
            self._weights[commit.number] = max(copied, commit.length)
        return self._weights[commit.number]

    @property
    def _inbox(self) -> InboxReader:
        # Not in the constructor: this object is pickled for the tasks.
        if self._reader is None:
            self._reader = InboxReader(self._folder)
        return self._reader

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_reader": None, "_weights": {}}


@lru_cache(maxsize=1024)
def _copies(folder: str, version: int) -> dict[int, int]:
    return copies_by_topic(CatalogueFiles(folder).load(version))


def _with_share(batch: pa.RecordBatch, of: OutboxPart) -> pa.RecordBatch:
    same = [pa.repeat(pa.scalar(value, pa.int64()), batch.num_rows) for value in of]
    columns = [batch.column(field.name).cast(field.type) for field in _ROWS if field.name not in OutboxPart._fields]
    return pa.RecordBatch.from_arrays([*columns, *same], schema=_ROWS)


def _nobody(of: OutboxPart) -> pa.RecordBatch:
    row = {
        field.name: None if field.nullable else b"" if field.name == "head" else "" if field.name == "message_id" else 0
        for field in INBOX_SCHEMA
    } | {"commit": of.last, "entity": NOBODY}
    return pa.RecordBatch.from_pylist([row], schema=INBOX_SCHEMA)
