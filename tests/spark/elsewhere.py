"""Run streaming queries and batches in a separate process: elsewhere.py cluster|connect|all-of-connect URL FOLDER."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
sys.path.insert(0, str(Path(__file__).parents[2]))

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from oncebus.spark import Ledger, detect_duplicates
from tests.reference import Message
from tests.spark.streams import SCHEMA, Stream, expected, started, verdicts
from tests.spark.test_streaming import history_of


def session(how: str, url: str) -> SparkSession:
    if how != "cluster":
        return SparkSession.builder.remote(url).getOrCreate()
    builder = SparkSession.builder.master(url).config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    return builder.config("spark.sql.shuffle.partitions", "2").config("spark.executor.memory", "512m").getOrCreate()


OPTIONS: dict[str, Any] = {"key": "key", "time": "time", "window": "window", "sequence": "sequence"}
APART = "/proc/self/cwd/apart"
"""A path that is a different folder in each process (in each session of Connect), as if machines shared nothing."""


def batch_of(spark: SparkSession, messages: list[Message]) -> DataFrame:
    rows = [(message.key, message.time, message.sequence, message.window) for message in messages]
    frame = spark.createDataFrame(rows, "key string, time long, sequence long, window long")
    return frame.withColumn("time", F.timestamp_micros("time"))


def check_refused(work: Callable[[], object], text: str) -> None:
    try:
        work()
    except Exception as error:
        assert text in str(error), error
    else:
        raise AssertionError("nothing was rejected")


def check_batch_apart(spark: SparkSession, messages: list[Message]) -> None:
    with Ledger.open(APART).batch() as ledger:
        detect_duplicates(batch_of(spark, messages), **OPTIONS, ledger=ledger).collect()


def check_foreach_batch(spark: SparkSession, stream: Stream) -> None:
    """With Connect the tasks of a foreachBatch get no batch number from Spark; a batch of the ledger brings its own."""
    history = history_of(3)
    stream.write(history)
    check_refused(lambda: stream.run(each=lambda batch, number: print(batch.count())), "Ledger.open(…).batch(query=…")
    assert Ledger.open(stream.ledger).summary().runs == 0
    ledger_folder, output, options = str(stream.folder / "in-batches"), str(stream.output), dict(OPTIONS)

    def each(batch: DataFrame, number: int) -> None:
        from oncebus.spark import Ledger, detect_duplicates

        with Ledger.open(ledger_folder).batch(query="orders", batch=number) as ledger:
            detect_duplicates(batch, **options, ledger=ledger).write.mode("append").parquet(output)

    messages = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(stream.source))
    writer = messages.writeStream.foreachBatch(each).option("checkpointLocation", str(stream.folder / "another"))
    assert started(writer.trigger(availableNow=True)).awaitTermination(300)
    assert stream.found() == expected(history)


def check_partitioned(spark: SparkSession, folder: Path) -> None:
    """Behind any plan, a key in two partitions is refused, and a key in one is not."""

    def new_of(keys: int, rows: int, change: Callable[[DataFrame], DataFrame], *, counted: bool = False) -> int:
        """Return the number of new rows among rows in two partitions whose keys repeat after `keys` rows."""
        frame = spark.range(0, rows, 1, 2).selectExpr(f"id % {keys} AS key", "timestamp_micros(id) AS at")
        with Ledger.open(tempfile.mkdtemp(dir=folder)).batch() as ledger:
            checked = detect_duplicates(frame, key="key", time="at", window="1 hour", ledger=ledger, partitioned=True)
            if counted:
                assert checked.count() == rows
            return change(checked).filter("not is_duplicate").count()

    assert new_of(10, 10, lambda checked: checked.coalesce(1), counted=True) == 10
    assert new_of(10, 10, lambda checked: checked.union(checked).distinct()) == 10
    assert new_of(10, 10, lambda checked: checked.crossJoin(spark.range(2)).drop("id").distinct()) == 10
    check_refused(lambda: new_of(10, 20, lambda checked: checked.coalesce(1)), "has a key that another partition")
    check_refused(lambda: new_of(10, 20, lambda checked: checked), "has a key that another partition")


def check_any_names(spark: SparkSession) -> None:
    """Any name of a column works, in every role; names in backticks and fields mean what they mean in Spark."""
    rows = [(1, "a", "x"), (1, "a", "y"), (2, None, "z")]
    frame = spark.createDataFrame(rows, ["order.no", "`tick`", "__oncebus_part"]).select(
        "*",
        F.col("`order.no`").alias("order.no "),
        F.timestamp_micros("`order.no`").alias("at.`when`"),
        F.lit("twice").alias("twice"),
        F.lit("twice").alias("twice"),
        F.struct(F.col("`order.no`").alias("no.")).alias("head.er"),
    )
    for key in ("order.no", "`order.no`", "`head.er`.`no.`", ["`tick`", "order.no"], F.col("`head.er`.`no.`")):
        checked = detect_duplicates(frame, key=key, time="at.`when`", window="1 hour", sequence="order.no ")
        assert checked.columns == [*frame.columns, "is_duplicate", "original_time", "original_sequence"]
        found = sorted((row["__oncebus_part"] in "xy", row["is_duplicate"]) for row in checked.collect())
        assert found == [(False, False), (True, False), (True, True)], key
    named: dict[str, Any] = {"time": "at.`when`", "window": "1 hour"}
    check_refused(lambda: detect_duplicates(frame, key="head.er.no", **named), "There is no key column 'head.er.no'.")
    check_refused(
        lambda: detect_duplicates(frame, key="twice", **named), "There are 2 columns 'twice', so it cannot be the key"
    )


def check_random_keys(spark: SparkSession) -> None:
    """A key that a repeated task would compute differently is refused."""
    frame = spark.range(3).select("id", F.timestamp_micros("id").alias("at"))
    draws = F.udf(lambda: "x").asNondeterministic()
    for key in (F.rand().cast("string"), F.expr("uuid()"), F.concat("id", F.monotonically_increasing_id()), draws()):
        check_refused(
            lambda key=key: detect_duplicates(frame, key=key, time="at", window="1 hour"),  # type: ignore[misc]
            "is not deterministic: a repeated task would compute something else.",
        )
    steady = F.udf(lambda number: str(number % 2))
    assert (
        detect_duplicates(frame, key=steady(frame["id"]), time="at", window="1 hour").filter("is_duplicate").count()
        == 1
    )


if __name__ == "__main__":
    how, url, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    spark = session(how, url)
    Stream(spark, folder).run()

    messages = [message for batch in history_of(3) for message in batch]
    with Ledger.open(folder / "batch-ledger").batch() as ledger:
        checked = detect_duplicates(batch_of(spark, messages), **OPTIONS, ledger=ledger)
        assert verdicts(checked) == verdicts(checked) == expected([messages])

    if how != "connect":
        apart = Stream(spark, folder / "apart-stream", {"ledger": APART})
        apart.write(history_of(1))
        check_refused(apart.run, f"cannot see the driver's ledger at '{APART}': it finds no ledger there")
        check_refused(lambda: check_batch_apart(spark, messages), f"cannot see the driver's ledger at '{APART}'")
    if how == "all-of-connect":
        assert not Path(APART).exists(), "the client created a ledger of its own"
        check_partitioned(spark, folder)
        check_any_names(spark)
        check_random_keys(spark)
        check_foreach_batch(spark, Stream(spark, folder / "foreach"))
    spark.stop()
