"""The reading of a batch, without Spark: a repeated attempt gives no message twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from pyspark.sql.datasource import InputPartition

from oncebus.connector.options import peek_options
from oncebus.connector.peeking import BatchSource
from servicebus.bus import running_bus


def test_an_attempt_that_fails_after_it_has_peeked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = [ConnectionResetError("reset while closing")]
    close_client = ServiceBusClient.close

    def close(client: ServiceBusClient) -> None:
        close_client(client)
        if left:
            raise left.pop()

    with running_bus(tmp_path) as bus:
        queue = bus.queue()
        bus.put(queue, *(ServiceBusMessage(str(number)) for number in range(3)))
        source = BatchSource(peek_options({"connection_string": bus.string(), "queue": queue}))
        monkeypatch.setattr(ServiceBusClient, "close", close)
        batches = list(source.read(InputPartition(0)))
        assert not left
    assert [body for batch in batches for body in batch.column("body").to_pylist()] == [b"0", b"1", b"2"]
