"""Writes the rows of a DataFrame as messages: the batch and the streaming writer of the data source.

Tasks send as they read. The ids make a repeated task or batch harmless, see `oncebus.connector.ids`. `commit`
therefore only checks that no two rows got the same id, and `abort` does nothing: a failed write leaves the messages
that were sent in the entity. The write that repeats it adds only the missing ones.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from oncebus.connector.errors import BadRow, EqualRows, ServiceBusFailure, one_line
from oncebus.connector.ids import Ids, find_shared, first_id
from oncebus.connector.options import SinkOptions
from oncebus.connector.rows import message_from
from oncebus.connector.sending import Placed, Sending

# Spark sets these local properties for every job of a query. The id of the query is stored in its checkpoint, so it is
# the same after a restart. Neither is an argument of the writer.
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


@dataclass
class Sent(WriterCommitMessage):
    """What a task sent: the number of messages, and the different contents that its ids come from."""

    count: int
    prefix: str
    contents: bytes


class BatchSink(DataSourceArrowWriter):
    """Writes a batch DataFrame.

    Without `id_prefix`, the ids belong to this one write: Spark's retries of its tasks are recognised, but a second
    write of the same DataFrame sends everything again. Spark makes this object on the driver and copies it to the
    tasks.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._write = uuid.uuid4().hex

    @one_line()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send the rows of a partition, in a task."""
        prefix, partition = self._options.id_prefix, _context().partitionId()
        if prefix is not None:
            return _send(iterator, self._options, ("write", prefix), prefix, partition)
        # Within one write the partitions stay the same, so they may tell equal rows apart.
        return _send(iterator, self._options, ("write", self._write, str(partition)), self._write, partition)

    @one_line()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Check the ids of all tasks, on the driver. Raises `EqualRows`."""
        check_sent(messages)


class StreamSink(DataSourceStreamArrowWriter):
    """Writes a streaming DataFrame. The ids belong to the query and the micro-batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    @one_line()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send the rows of a partition of a micro-batch, in a task."""
        context = _context()
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise ServiceBusFailure("Spark gave this task no query or batch number, so its messages can have no ids.")
        name = self._options.id_prefix or query
        return _send(iterator, self._options, ("stream", name, batch), f"{name}-{batch}", context.partitionId())

    @one_line()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Check the ids of all tasks, on the driver, before Spark notes the batch as done. Raises `EqualRows`."""
        check_sent(messages)


def check_sent(messages: Sequence[WriterCommitMessage | None]) -> None:
    """Raise `EqualRows` if rows of different partitions are equal: they have the same ids, so the broker drops some."""
    sent = [each for each in messages if isinstance(each, Sent)]
    shared = find_shared([each.contents for each in sent])
    if shared is not None:
        first, second = shared.partitions[:2]
        raise EqualRows(
            f"{shared.total} of the rows {'is' if shared.total == 1 else 'are'} in more than one partition, so "
            f"different rows got the same message id, such as '{first_id(sent[0].prefix, shared.content)}' in the "
            f"partitions {first} and {second}. Bring equal rows together with .repartition('body'), and write again: "
            "that adds the missing messages."
        )


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "a writer runs in a task"
    return context


def _send(
    batches: Iterator[pa.RecordBatch], options: SinkOptions, origin: Sequence[str], prefix: str, partition: int
) -> Sent:
    ids = Ids(origin, prefix)
    with Sending(options.access, options.entity, options.retry_timeout) as sending:
        count = sending.send_all(_messages(batches, ids, partition))
    return Sent(count, prefix, ids.contents())


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
    if pa.types.is_timestamp(column.type):
        # Spark gives the time zone of the session. A time that Python has in UTC may be out of its range elsewhere.
        column = column.cast(pa.timestamp("us", "UTC"))
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError) as error:
        # Spark has times after the year 9999.
        raise BadRow(f"Column '{name}' in partition {partition} has a value that is out of range: {error}.") from None


def _plain(value: Any) -> Any:
    """Return a map as a dict: Arrow gives a list of pairs."""
    return dict(value) if isinstance(value, list) else value
