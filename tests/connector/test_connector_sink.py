"""Rows become messages, each once, although tasks and batches are repeated."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from .bus import DETECTS, Bus, stream, text

CORES = "spark.sql.files.minPartitionNum"
TIME_ZONE = "spark.sql.session.timeZone"


def write(frame: DataFrame, bus: Bus, **options: object) -> None:
    frame.write.format("servicebus").options(**bus.options(**options)).mode("append").save()


def failing_late(attempts: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that ends a partition with a bad row, in the first attempts of its task.

    The attempt that succeeds has the rows in another order, as after a shuffle.
    """

    def function(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            bodies = batch.column(0).to_pylist()
            changed = [*bodies[:-1], None] if context.attemptNumber() < attempts else bodies[::-1]
            yield pa.record_batch([pa.array(changed, batch.schema.types[0])], schema=batch.schema)

    return function


def test_every_column_reaches_the_receiver(session: SparkSession, bus: Bus) -> None:
    queue = bus.queue("sink-columns", **DETECTS, RequiresSession=True)
    due = datetime(2020, 1, 1, 12, tzinfo=UTC)
    rows = [(b"\x00\xff", "id-1", "s", "s", "sub", "cor", "rep", "rs", "text/plain", "to", {"a": 1}, due, "1 hour")]
    schema = (
        "body binary, message_id string, session_id string, partition_key string, subject string, "
        "correlation_id string, reply_to string, reply_to_session_id string, content_type string, `to` string, "
        "application_properties map<string, long>, scheduled_enqueue_time timestamp, time_to_live string"
    )
    write(session.createDataFrame(rows, schema), bus, queue=queue)
    with bus.client() as client, client.get_queue_receiver(queue, session_id="s") as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=60)
        assert b"".join(message.body) == b"\x00\xff"
        assert (message.message_id, message.session_id, message.partition_key) == ("id-1", "s", "s")
        assert (message.subject, message.correlation_id, message.reply_to) == ("sub", "cor", "rep")
        assert (message.reply_to_session_id, message.content_type, message.to) == ("rs", "text/plain", "to")
        assert message.application_properties == {b"a": 1}
        assert message.scheduled_enqueue_time_utc == due
        assert message.time_to_live == timedelta(hours=1)


def test_a_repeated_task_sends_nothing_twice(session: SparkSession, bus: Bus) -> None:
    queue = bus.queue("sink-retry", **DETECTS)
    # More than one batch of the client in each partition, so a part is sent before the task fails. Rows with equal
    # content are messages of their own.
    frame = session.range(0, 200, 1, 2).selectExpr("concat(id % 75, repeat('.', 5000)) as body")
    write(frame.mapInArrow(failing_late(2), frame.schema), bus, queue=queue)
    found = bus.receive(queue, 200)
    assert sorted(text(each).rstrip(".") for each in found) == sorted(str(number % 75) for number in range(200))
    assert bus.http.drops(queue)
    # A second write is new, unless both have the same prefix.
    few = session.range(3).selectExpr("cast(id as string) as body")
    for _ in range(2):
        write(few, bus, queue=queue, id_prefix="nightly-2030-01-01")
    write(few, bus, queue=queue)
    assert sorted(map(text, bus.receive(queue, 6))) == ["0", "0", "1", "1", "2", "2"]


@pytest.fixture
def settings(session: SparkSession) -> Iterator[SparkSession]:
    """Return the session. Settings that a test changes are restored."""
    before = {name: session.conf.get(name, None) for name in (CORES, TIME_ZONE)}
    yield session
    for name, value in before.items():
        session.conf.set(name, value) if value is not None else session.conf.unset(name)


def run_stream(frame: DataFrame, bus: Bus, queue: str, checkpoint: Path) -> str:
    """Write the available rows as a stream, and return the id of the query."""
    writer = frame.writeStream.format("servicebus").options(**bus.options(queue=queue))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return str(query.id)


def test_a_batch_that_a_restarted_query_repeats_is_sent_once(settings: SparkSession, bus: Bus, tmp_path: Path) -> None:
    """The number of partitions follows the cores of the cluster, which may have lost a machine."""
    queue = bus.queue("sink-restart", **DETECTS)
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    settings.range(0, 48, 1, 4).selectExpr("cast(id as string) as body").write.parquet(str(source))

    def run(cores: int, time_zone: str) -> str:
        settings.conf.set(CORES, str(cores))
        settings.conf.set(TIME_ZONE, time_zone)
        rows = settings.readStream.schema("body string").parquet(str(source))
        frame = rows.selectExpr("body", "timestamp'2020-01-01T00:00:00Z' as scheduled_enqueue_time")
        return run_stream(frame, bus, queue, checkpoint)

    identity = run(4, "UTC")
    for cores, time_zone in ((2, "UTC"), (1, "Asia/Tokyo")):
        # As if the driver had died before it could note that the batch is done.
        shutil.rmtree(checkpoint / "commits")
        assert run(cores, time_zone) == identity
    found = bus.receive(queue, 48)
    assert sorted(map(text, found)) == sorted(map(str, range(48)))
    assert all(str(message.message_id).startswith(f"{identity}-0-") for message in found)
    assert len(bus.http.drops(queue)) == 96


def test_equal_rows_in_different_partitions_are_an_error_and_none_is_lost(
    settings: SparkSession, bus: Bus, tmp_path: Path
) -> None:
    queue = bus.queue("sink-equal", **DETECTS)
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    settings.range(0, 8, 1, 2).selectExpr("cast(id % 3 as string) as body").write.parquet(str(source))
    settings.conf.set(CORES, "2")
    rows = settings.readStream.schema("body string").parquet(str(source))
    error = (
        r"EqualRows: 3 of the rows are in more than one partition, so different rows got the same message id, such as "
        r"'[0-9a-f-]+-0-[0-9a-f]{32}' in the partitions 0 and 1\. Bring equal rows together with "
        r"\.repartition\('body'\), and write again: that adds the missing messages\."
    )
    with pytest.raises(StreamingQueryException, match=error):
        run_stream(rows, bus, queue, checkpoint)
    run_stream(rows.repartition(2, "body"), bus, queue, checkpoint)
    assert sorted(map(text, bus.receive(queue, 8))) == sorted(str(number % 3) for number in range(8))
    with pytest.raises(PySparkException, match="EqualRows: 3 of the rows are in more than one partition"):
        write(settings.read.parquet(str(source)), bus, queue=queue, id_prefix="again")


def test_messages_to_a_topic(session: SparkSession, bus: Bus) -> None:
    assert bus.http.put("sink-topic", DETECTS, "Topic")[0] == 201
    assert bus.http.put("sink-topic/subscriptions/all", {}, "Subscription")[0] == 201
    write(session.range(3).selectExpr("cast(id as string) as body"), bus, topic="sink-topic")
    rows = session.read.format("servicebus").options(**bus.options(topic="sink-topic", subscription="all")).load()
    found = rows.selectExpr("cast(body as string) as body", "state").collect()
    assert sorted((row["body"], row["state"]) for row in found) == [("0", "active"), ("1", "active"), ("2", "active")]


def test_no_plan_log_page_or_file_shows_a_secret(
    session: SparkSession, bus: Bus, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    queue = bus.queue("sink-secret", **DETECTS)
    secrets = [bus.string.split("SharedAccessKey=")[1].split(";")[0], bus.expired().split("sig=")[1].split("&")[0]]
    for string in (bus.string, bus.expired()):
        options = {"connection_string": string, "queue": queue}
        session.read.format("servicebus").options(**options).load().explain(True)
        session.readStream.format("servicebus").options(**options, spool=str(tmp_path / "none")).load().explain(True)
    assert "servicebus" in capfd.readouterr().out
    write(session.range(3).selectExpr("cast(id as string) as body"), bus, queue=queue)
    received = stream(session, bus, tmp_path, queue=queue).select("body")
    writer = received.writeStream.format("servicebus").options(
        **bus.options(queue=bus.queue("sink-secret-2", **DETECTS))
    )
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    query.explain(True)
    shown = capfd.readouterr()
    written = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert len(written) > 4
    pages = pages_of(session)
    assert sum("servicebus" in page.lower() for page in pages) >= 2
    progress = str(query.recentProgress)
    for place in (shown.out, shown.err, progress, *pages, *(content.decode(errors="replace") for content in written)):
        assert not any(secret in place for secret in secrets)


def pages_of(session: SparkSession) -> list[str]:
    """Return what the SQL tab of Spark's UI shows, also without a UI."""
    jvm_session: Any = session
    executions = jvm_session._jsparkSession.sharedState().statusStore().executionsList()
    found = [executions.apply(at) for at in range(executions.size())]
    return [f"{each.description()} {each.details()} {each.physicalPlanDescription()}" for each in found]
