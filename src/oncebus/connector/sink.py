"""Writes the rows of a DataFrame as messages: the batch and the streaming writer of the data source.

Tasks send as they read. There is nothing to commit afterwards: the ids make a repeated task harmless, see
`oncebus.connector.ids`. `commit` and `abort` therefore do nothing, and a failed write leaves the messages that were
sent in the entity. The write that repeats it adds only the missing ones.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from oncebus.connector.errors import BadRow, ServiceBusFailure, one_line
from oncebus.connector.ids import Ids
from oncebus.connector.options import SinkOptions
from oncebus.connector.rows import message_from
from oncebus.connector.sending import Placed, Sending

# Spark sets these local properties for every job of a query. The id of the query is stored in its checkpoint, so it is
# the same after a restart. Neither is an argument of the writer.
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


@dataclass
class Sent(WriterCommitMessage):
    """How many messages a task sent."""

    count: int


class BatchSink(DataSourceArrowWriter):
    """Writes a batch DataFrame.

    Without `id_prefix`, the ids belong to this one write: Spark's retries of its tasks are recognised, but a second
    write of the same DataFrame sends everything again. Spark makes this object on the driver and copies it to the
    tasks.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._origin = options.id_prefix or uuid.uuid4().hex

    @one_line()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send the rows of a partition, in a task."""
        partition = _context().partitionId()
        return _send(iterator, self._options, Ids(("write", self._origin), partition, self._origin), partition)


class StreamSink(DataSourceStreamArrowWriter):
    """Writes a streaming DataFrame. The ids belong to the query and the micro-batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    @one_line()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send the rows of a partition of a micro-batch, in a task."""
        context = _context()
        partition = context.partitionId()
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise ServiceBusFailure("Spark gave this task no query or batch number, so its messages can have no ids.")
        name = self._options.id_prefix or query
        return _send(iterator, self._options, Ids(("stream", name, batch), partition, f"{name}-{batch}"), partition)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "a writer runs in a task"
    return context


def _send(batches: Iterator[pa.RecordBatch], options: SinkOptions, ids: Ids, partition: int) -> Sent:
    with Sending(options.access, options.entity, options.retry_timeout) as sending:
        return Sent(sending.send_all(_messages(batches, ids, partition)))


def _messages(batches: Iterator[pa.RecordBatch], ids: Ids, partition: int) -> Iterator[Placed]:
    position = 0
    for batch in batches:
        columns = {name: _values(name, batch.column(at), partition) for at, name in enumerate(batch.schema.names)}
        for values in zip(*columns.values(), strict=True):
            row = {name: _plain(value) for name, value in zip(columns, values, strict=True)}
            place = f"row {position} of partition {partition}"
            given = row.get("message_id")
            yield Placed(message_from(row, ids.next_for(row) if given is None else given, place), place)
            position += 1


def _values(name: str, column: pa.Array, partition: int) -> list[Any]:
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError) as error:
        # Spark has times after the year 9999.
        raise BadRow(f"Column '{name}' in partition {partition} has a value that is out of range: {error}.") from None


def _plain(value: Any) -> Any:
    """Return a map as a dict: Arrow gives a list of pairs."""
    return dict(value) if isinstance(value, list) else value
