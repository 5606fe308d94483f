"""Reads an entity as a batch: the rows are the messages that are there, looked at without locking or deleting them.

A batch DataFrame is lazy, and Spark may evaluate it many times. So a batch never takes messages away. To take what is
there and stop, run a stream with the trigger availableNow.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from azure.servicebus import ServiceBusReceivedMessage
from pyspark.sql.datasource import DataSourceReader, InputPartition

from oncebus.connector.attempts import retry
from oncebus.connector.errors import one_line
from oncebus.connector.failures import may_pass
from oncebus.connector.options import PeekOptions
from oncebus.connector.schema import rows_from

_AT_ONCE = 250


class BatchSource(DataSourceReader):
    """The reader of a batch: one task that peeks from the lowest sequence number on, up to the option `max_rows`."""

    def __init__(self, options: PeekOptions) -> None:
        self._options = options
        self._where = str(options.entity)
        self._has_worked = False

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Peek all messages, in a task."""
        after, left = 0, self._options.max_rows
        with one_line():
            while left > 0 and (found := self._peek(after + 1, min(left, _AT_ONCE))):
                yield rows_from(found)
                after = max(message.sequence_number or 0 for message in found)
                left -= len(found)

    def _peek(self, first: int, most: int) -> list[ServiceBusReceivedMessage]:
        options, entity = self._options, self._options.entity

        def attempt() -> list[ServiceBusReceivedMessage]:
            access = options.access.resolve(entity.name)
            self._where = f"{entity} at {access.host}"
            with access.client() as client, entity.receiver(client, keep_alive=0) as receiver:
                found: list[ServiceBusReceivedMessage] = receiver.peek_messages(most, sequence_number=first)
                return found

        found = retry(
            attempt,
            lambda: f"Peeking at {self._where}",
            options.retry_timeout,
            passes=lambda error: may_pass(error, is_renewable=self._has_worked and options.access.may_change),
        )
        self._has_worked = True
        return found
