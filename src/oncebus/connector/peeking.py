"""Reads an entity as a batch: the rows are the messages that are there, looked at without locking or deleting them.

A batch DataFrame is lazy, and Spark may evaluate it many times. So a batch never takes messages away. To take what is
there and stop, run a stream with the trigger availableNow.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
from azure.servicebus import ServiceBusReceivedMessage, ServiceBusReceiver
from pyspark.sql.datasource import DataSourceReader, InputPartition

from oncebus.connector.failures import failure, may_pass
from oncebus.connector.options import PeekOptions
from oncebus.connector.schema import rows_from
from oncebus.connector.sending import pauses

_AT_ONCE = 250


class BatchSource(DataSourceReader):
    """The reader of a batch: one task that peeks from the lowest sequence number on, up to the option `max_rows`."""

    def __init__(self, options: PeekOptions) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Peek all messages, in a task."""
        after, left = 0, self._options.max_rows
        while left > 0 and (found := self._peeked(after + 1, min(left, _AT_ONCE))):
            yield rows_from(found)
            after = max(message.sequence_number or 0 for message in found)
            left -= len(found)

    def _peeked(self, first: int, most: int) -> list[ServiceBusReceivedMessage]:
        options = self._options
        waits = pauses(options.retry_timeout)
        while True:
            try:
                with options.access.client() as client:
                    entity = options.entity
                    sub_queue = None if entity.sub_queue is None else entity.sub_queue.replace("_", "")
                    if entity.subscription is None:
                        receiver = client.get_queue_receiver(entity.name, sub_queue=sub_queue)
                    else:
                        receiver = client.get_subscription_receiver(
                            entity.name, entity.subscription, sub_queue=sub_queue
                        )
                    with receiver:
                        return _peek(receiver, first, most)
            except Exception as error:
                pause = next(waits, None) if may_pass(error) else None
                if pause is None:
                    raise failure(error, f"Peeking at {options.entity} at {options.access.host}") from None
                time.sleep(pause)


def _peek(receiver: ServiceBusReceiver, first: int, most: int) -> list[ServiceBusReceivedMessage]:
    return list(receiver.peek_messages(most, sequence_number=first))
