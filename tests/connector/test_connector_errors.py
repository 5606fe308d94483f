"""What a user sees when something is wrong: one clear line, in the exception of the call that fails.

`test_connector_sending` has the texts of all refusals, without Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from oncebus.spark import detect_duplicates
from oncebus.values.errors import OncebusError
from tests.spark.streams import rows_in

from .bus import DETECTS, Bus, drained, error_line, messages, stream, texts

QUICK_END = {"retry_timeout": "1 second"}


def failed(action: Callable[[], object]) -> str:
    """Return the line of the connector in the error that an action raises, which has no traceback of Python."""
    with pytest.raises(PySparkException) as raised:
        action()
    assert "Traceback" not in str(raised.value)
    return error_line(raised.value)


def write(frame: DataFrame, bus: Bus, **options: object) -> None:
    frame.write.format("servicebus").options(**bus.options(**QUICK_END, **options)).mode("append").save()


def test_errors_of_a_batch(session: SparkSession, bus: Bus) -> None:
    queue, plain = bus.queue("error-batch", **DETECTS), bus.queue("error-plain")
    good = session.range(2).selectExpr("cast(id as string) as body").coalesce(1)
    wrong_type = failed(lambda: write(good.selectExpr("1L as body"), bus, queue=queue))
    assert wrong_type == "BadColumn: Column 'body' has the type bigint, not binary or string."
    undetected = failed(lambda: write(good, bus, queue=plain))
    assert undetected.startswith(f"BadOption: Duplicate detection is off for queue '{plain}'")
    # Spark runs a task that fails four times.
    missing = failed(lambda: write(good, bus, queue="nope"))
    assert missing.startswith("ServiceBusFailure: Sending to queue 'nope' at localhost:")
    assert "could not be found." in missing
    wrong = session.read.format("servicebus").options(**bus.options(queue=queue, max_rows="0")).load()
    assert failed(wrong.collect) == "BadOption: Option 'max_rows' 0 must be between 1 and 10000000."
    assert bus.receive(queue, 0) == []


def test_errors_of_a_stream(session: SparkSession, bus: Bus, tmp_path: Path) -> None:
    queue, sessions = bus.queue("error-stream"), bus.queue("error-sessions", RequiresSession=True)

    def error(name: str, **options: object) -> str:
        folder = tmp_path / name
        return failed(lambda: drained(stream(session, bus, folder, **QUICK_END, **options), folder))

    missing = error("missing", queue="nope")
    assert missing.startswith("ServiceBusFailure: Receiving from queue 'nope' at localhost:")
    assert "could not be found." in missing
    expired = error("expired", queue=queue, connection_string=bus.expired())
    assert "ExpiredToken" in expired
    assert expired.endswith("Check the connection string or credential, and its rights.")
    assert "an entity that requires sessions" in error("sessions", queue=sessions)
    assert error("option", queue=queue, max_rows="0") == "BadOption: Option 'max_rows' 0 must be between 1 and 1000000."
    assert error("unknown", queue=queue, quue="a").startswith("BadOption: Unknown option 'quue'. There are: ")


def test_errors_of_a_stream_that_is_written(session: SparkSession, bus: Bus, tmp_path: Path) -> None:
    """They are in the exception of `start` or `awaitTermination`."""
    queue = bus.queue("error-sink", **DETECTS)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.txt").write_text("a")
    rows = session.readStream.text(str(tmp_path / "in"))

    def run(frame: DataFrame, name: str, **options: object) -> None:
        writer = frame.writeStream.format("servicebus").options(**bus.options(**QUICK_END, **options))
        query = writer.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True).start()
        query.awaitTermination()

    body = rows.selectExpr("value as body")
    expired = failed(lambda: run(body, "expired", queue=queue, connection_string=bus.expired(), detection="ignore"))
    assert expired.startswith(f"ServiceBusFailure: Sending to queue '{queue}' at localhost:")
    assert "ExpiredToken" in expired
    wrong_type = failed(lambda: run(rows.selectExpr("length(value) as body"), "type", queue=queue))
    assert wrong_type == "BadColumn: Column 'body' has the type int, not binary or string."
    # The corrected query sends the row.
    run(body, "good", queue=queue)
    bus.receive(queue, 1)
    with pytest.raises(PySparkException) as raised:
        run(session.readStream.table("nowhere"), "table", queue=queue)
    assert "The table or view `nowhere` cannot be found." in str(raised.value).splitlines()[0]


@pytest.mark.release
def test_a_ledger_of_another_query(session: SparkSession, bus: Bus, tmp_path: Path) -> None:
    """The second query is refused, its messages stay in the queue, and it works with a ledger of its own."""
    first, second = bus.queue("ledger-first"), bus.queue("ledger-second")
    bus.send(first, messages(1, 2))
    bus.send(second, messages(2, 3, 3))

    def checked(queue: str, folder: Path, ledger: Path, key: str = "message_id") -> DataFrame:
        return detect_duplicates(
            stream(session, bus, folder, queue=queue),
            key=key,
            time="enqueued_time",
            window="1 hour",
            sequence="sequence_number",
            ledger=str(ledger),
        )

    shared, one, two = tmp_path / "shared", tmp_path / "one", tmp_path / "two"
    early = checked(second, two, shared)
    writer = checked(first, one, shared).writeStream.format("parquet").option("path", str(one / "out"))
    running = writer.option("checkpointLocation", str(one / "checkpoint")).start()
    try:
        bus.emptied(first)
        in_use = f"Ledger '{shared}' is being written by query {running.id} of this process. Stop that query first,"
        with pytest.raises(OncebusError) as at_once:
            checked(second, two, shared)
        with pytest.raises(OncebusError) as other_key:
            checked(second, two, shared, key="body")
        # It was made before the first query began, so only its tasks can tell.
        with pytest.raises(PySparkException) as late:
            drained(early, two)
    finally:
        running.stop()
    assert str(at_once.value).startswith(in_use)
    assert in_use in error_line(late.value)
    assert "\n" not in str(at_once.value) + str(other_key.value)
    assert bus.http.metric("messages", entity=second) == 3
    # The checkpoint has a batch of the refused query, whose rows are in the spool.
    own = checked(second, two, tmp_path / "own")
    assert drained(own.filter("not is_duplicate"), two) == texts(2, 3)
    assert sorted(row["message_id"] for row in rows_in(one / "out", "message_id")) == ["id-1", "id-2"]
