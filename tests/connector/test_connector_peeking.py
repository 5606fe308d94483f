"""The reading of a batch, without Spark: a repeated attempt gives no message twice, and a key can be replaced."""

from __future__ import annotations

from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from pyspark.sql.datasource import InputPartition

from oncebus.connector import attempts, peeking
from oncebus.connector.errors import BadOption
from oncebus.connector.options import peek_options
from oncebus.connector.peeking import BatchSource
from tests.protocols.servicebus.bus import running_bus


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


def test_the_key_is_replaced_while_a_batch_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peeking, "_AT_ONCE", 1)
    file = tmp_path / "string"
    with running_bus(tmp_path / "bus") as bus:
        queue, errors = bus.queue(), list[str]()
        bus.put(queue, *(ServiceBusMessage(str(number)) for number in range(2)))
        given = peek_options({"connection_string_file": str(file), "queue": queue})

        def replace(error: Exception, *_: object) -> None:
            errors.append(str(error))
            file.write_text(bus.string())

        monkeypatch.setattr(attempts, "log_retry", replace)
        file.write_text(bus.string())
        batches = BatchSource(given).read(InputPartition(0))
        bodies = next(batches).column("body").to_pylist()
        file.write_text("")
        bodies += [body for batch in batches for body in batch.column("body").to_pylist()]
        assert bodies == [b"0", b"1"]
        assert errors == [f"Cannot read '{file}' (option 'connection_string_file'): it is empty."]
        # A file that never worked is refused at once.
        file.write_text("")
        with pytest.raises(BadOption, match="it is empty"):
            next(BatchSource(given).read(InputPartition(0)))
