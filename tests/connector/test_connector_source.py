"""Messages become rows, each once, and are completed only after their batch is committed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from oncebus.connector.schema import SCHEMA
from oncebus.spark import detect_duplicates
from tests.programs.serve.programs import until

from .bus import PATIENCE, QUICK, Bus, drained, messages, numbered, stream, texts


def test_a_stream_takes_and_completes_everything(session: SparkSession, bus: Bus, tmp_path: Path) -> None:
    queue = bus.queue("source-all")
    bus.send(queue, messages(*range(300)))
    frame = stream(session, bus, tmp_path, queue=queue, receivers=3, max_rows=120, partitions=2)
    assert frame.schema == SCHEMA
    assert drained(frame, tmp_path) == texts(*range(300))
    bus.emptied(queue)
    bus.send(queue, messages(300, 301))
    assert drained(frame, tmp_path) == texts(*range(302))
    bus.emptied(queue)
    # No batch was larger than allowed.
    offsets = [(tmp_path / "checkpoint" / "offsets" / str(number)) for number in range(4)]
    assert [json.loads(file.read_text().splitlines()[-1])["batch"] for file in offsets] == [1, 2, 3, 4]


def test_an_idle_stream_completes_its_last_batch(session: SparkSession, bus: Bus, tmp_path: Path) -> None:
    queue = bus.queue("source-idle", LockDuration="PT5M")
    writer = stream(session, bus, tmp_path, queue=queue).writeStream.format("parquet")
    writer = writer.option("path", str(tmp_path / "out")).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start()
    try:
        bus.send(queue, messages(1, 2))
        bus.emptied(queue)
    finally:
        query.stop()
    assert numbered(session.read.schema(SCHEMA).parquet(str(tmp_path / "out"))) == texts(1, 2)


def test_all_properties_become_columns(session: SparkSession, bus: Bus, tmp_path: Path) -> None:
    queue = bus.queue("source-columns")
    given = ServiceBusMessage(
        b"\x00\xff",
        message_id="id",
        partition_key="p",
        subject="sub",
        correlation_id="cor",
        reply_to="rep",
        reply_to_session_id="rs",
        content_type="text/plain",
        to="to",
        application_properties={"a": 1, "b": True, "c": "ö"},
    )
    bus.send(queue, [given])
    bus.http.metric("messages", entity=queue)
    until(lambda: peeked(session, bus, queue).count() == 1, "the message can be peeked", limit=PATIENCE)
    (row,) = peeked(session, bus, queue).collect()
    assert bytes(row["body"]) == b"\x00\xff"
    assert (row["message_id"], row["sequence_number"], row["delivery_count"]) == ("id", 1, 0)
    assert (row["partition_key"], row["subject"], row["correlation_id"]) == ("p", "sub", "cor")
    assert (row["reply_to"], row["reply_to_session_id"], row["content_type"]) == ("rep", "rs", "text/plain")
    assert (row["to"], row["session_id"], row["state"]) == ("to", None, "active")
    assert row["application_properties"] == {"a": "1", "b": "true", "c": "ö"}
    assert row["enqueued_time"] is not None
    # Looking takes nothing away.
    assert bus.receive(queue, 1)[0].delivery_count == 0


def peeked(session: SparkSession, bus: Bus, queue: str, **options: object) -> DataFrame:
    return session.read.format("servicebus").options(**bus.options(queue=queue, **options)).load()


def test_sessions_and_dead_letters(session: SparkSession, bus: Bus, tmp_path: Path) -> None:
    queue = bus.queue("source-sessions", RequiresSession=True)
    for name in ("a", "b", "c"):
        bus.send(queue, [ServiceBusMessage(f"{name}{number}", session_id=name) for number in range(4)])
    with bus.client() as client, client.get_queue_receiver(queue, session_id="c") as receiver:
        for message in receiver.receive_messages(4, max_wait_time=60):
            receiver.dead_letter_message(message, reason="why", error_description="because")
    living = stream(session, bus, tmp_path, queue=queue, sessions="true", receivers=2)
    assert drained(living, tmp_path) == [f"{name}{number}" for name in ("a", "b") for number in range(4)]
    dead = stream(session, bus, tmp_path / "dead", queue=queue, sub_queue="dead_letter", mode="receive_and_delete")
    assert drained(dead, tmp_path / "dead") == [f"c{number}" for number in range(4)]
    rows = session.read.parquet(str(tmp_path / "dead" / "out")).collect()
    assert {(row["dead_letter_reason"], row["dead_letter_description"]) for row in rows} == {("why", "because")}
    bus.emptied(queue)


def test_a_repeated_batch_has_the_same_rows(session: SparkSession, bus: Bus, tmp_path: Path) -> None:
    """The driver dies after a batch, before it notes that the batch is done. Meanwhile its locks expire."""
    queue = bus.queue("source-repeat", **QUICK)
    bus.send(queue, messages(*range(10)))
    seen: list[list[tuple[int, int]]] = []

    def run(*, fails: bool) -> None:
        def each(batch: DataFrame, number: int) -> None:
            if rows := sorted((row["sequence_number"], row["delivery_count"]) for row in batch.collect()):
                seen.append(rows)
            if fails:
                raise RuntimeError("planned")

        writer = stream(session, bus, tmp_path, queue=queue).writeStream.foreachBatch(each)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        if fails:
            with pytest.raises(PySparkException, match="planned"):
                query.awaitTermination()
        else:
            query.awaitTermination()

    run(fails=True)
    assert bus.http.metric("messages", entity=queue) == 10
    bus.send(queue, messages(10))
    run(fails=False)
    until_empty(lambda: run(fails=False), bus, queue)
    assert len(seen[0]) >= 1
    assert seen[0] == seen[1]
    numbers = [number for rows in seen[1:] for number, _ in rows]
    assert sorted(numbers) == list(range(1, 12))


def until_empty(run: object, bus: Bus, queue: str) -> None:
    """Run a query again until the messages whose locks were lost have come back and are completed."""
    assert callable(run)
    until(lambda: (run(), bus.http.metric("messages", entity=queue) == 0)[1], f"{queue} is empty", limit=PATIENCE)


def test_exactly_once_with_detection(session: SparkSession, bus: Bus, tmp_path: Path) -> None:
    """A producer sends twice, with the same id: one row remains."""
    queue = bus.queue("source-detection")
    bus.send(queue, messages(1, 2, 3))
    bus.send(queue, messages(2, 3, 4))
    checked = detect_duplicates(
        stream(session, bus, tmp_path, queue=queue),
        key="message_id",
        time="enqueued_time",
        window="1 hour",
        sequence="sequence_number",
        ledger=str(tmp_path / "ledger"),
    )
    found = drained(checked.filter("not is_duplicate").drop("is_duplicate"), tmp_path)
    assert found == texts(1, 2, 3, 4)
