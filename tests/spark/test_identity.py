"""The driver and Spark decide who writes to a ledger: user code in a query cannot change it silently."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark import InheritableThread, inheritable_thread_target
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from oncebus.ledger import LedgerInUse, NotRepeatable
from oncebus.spark import Ledger, LedgerBatch, detect_duplicates
from tests.reference import Message, Verdict
from tests.spark.streams import SCHEMA, Stream, expected, verdicts
from tests.spark.test_streaming import history_of


def test_a_job_group_does_not_matter(spark: SparkSession, tmp_path: Path) -> None:
    """The query runs several actions, some in threads, some on a persisted DataFrame; then it gets a new checkpoint."""
    history = history_of(5)
    stream = Stream(spark, tmp_path)
    stream.write(history[:3])
    found: list[dict[Message, Verdict]] = []

    def each(batch: DataFrame, number: int) -> None:
        batch.sparkSession.sparkContext.setJobGroup(group, "a group of the user's own")
        first = verdicts(batch)
        evaluated = list[dict[Message, Verdict]]()

        def evaluate() -> None:
            evaluated.append(verdicts(batch))

        thread = InheritableThread(target=evaluate, session=batch.sparkSession)
        thread.start()
        thread.join()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(inheritable_thread_target(batch.sparkSession)(evaluate)).result()
        batch.persist()
        evaluate()
        batch.unpersist()
        assert evaluated == [first] * 3
        found.append(first)

    group = "abc123"
    stream.run(each=each)
    assert {**found[0], **found[1], **found[2]} == expected(history[:3])
    Ledger.open(stream.ledger).confirm(checkpoint=stream.checkpoint)
    shutil.rmtree(stream.checkpoint)
    for path in stream.source.iterdir():
        path.unlink()
    stream.write(history[3:4], first=3)
    stream.run(each=each)
    group = "nightly-etl"
    stream.write(history[4:], first=4)
    stream.run(each=each)
    assert {message: verdict for batch in found for message, verdict in batch.items()} == expected(history)


def test_a_thread_that_inherits_nothing_gets_an_error_with_the_fix(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path)
    stream.write(history_of(1))

    def each(batch: DataFrame, number: int) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(batch.count).result()

    with pytest.raises(StreamingQueryException, match=r"start threads with pyspark\.InheritableThread"):
        stream.run(each=each)
    assert Ledger.open(stream.ledger).summary().runs == 0


def test_rows_of_one_batch_are_not_judged_as_another_batch(spark: SparkSession, tmp_path: Path) -> None:
    """A DataFrame is used after its batch, and a plan is started again from an old checkpoint."""
    history = history_of(3)
    stream = Stream(spark, tmp_path)
    stream.write(history[:2])
    kept: list[DataFrame] = []

    def each(batch: DataFrame, number: int) -> None:
        kept.append(batch)
        batch.collect()
        kept[0].collect()

    with pytest.raises(StreamingQueryException, match="has different rows as batch 1 of query"):
        stream.run(each=each)

    other = Stream(spark, tmp_path / "other")
    other.write(history[:2])
    plan = other.checked()

    def run() -> None:
        writer = plan.writeStream.format("noop").option("checkpointLocation", str(other.checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(300)

    run()
    for part in ("offsets", "commits", "sources/0"):
        for path in (other.checkpoint / part).glob("*1*"):
            path.unlink()
    # With two files where there was one, batch 1 has different rows now.
    (other.source / "000001.parquet").unlink()
    other.write(history[2:], first=2)
    with pytest.raises(StreamingQueryException, match="If the query's checkpoint was restored, call detect_duplicates"):
        run()
    plan = other.checked()
    run()


def test_two_operators_of_one_query_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    one, two = Stream(spark, tmp_path / "one"), Stream(spark, tmp_path / "two", {"ledger": tmp_path / "one/ledger"})
    history = history_of(2)
    one.write(history[:1])
    two.write(history[1:])

    def run(frame: DataFrame) -> None:
        writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.format("parquet").option("path", str(one.output)).trigger(availableNow=True).start()
        query.awaitTermination(300)

    with pytest.raises(
        StreamingQueryException, match="is also written by another detect_duplicates call of the same query"
    ):
        run(one.checked().union(two.checked()))
    # The fix that the error suggests: build the union first.
    sources = [spark.readStream.schema(SCHEMA).parquet(str(stream.source)) for stream in (one, two)]
    options: dict[str, Any] = {"key": "key", "time": "time", "window": "window", "sequence": "sequence"}
    run(detect_duplicates(sources[0].union(sources[1]), **options, ledger=one.ledger))
    assert one.found() == expected([[message for batch in history for message in batch]])


def test_a_repeated_batch_does_not_see_its_own_keys(spark: SparkSession, tmp_path: Path) -> None:
    """Detection runs inside foreachBatch. The query dies after the block has ended, when the batch has joined."""
    history = history_of(4)
    stream = Stream(spark, tmp_path)
    stream.write(history)
    found: dict[int, dict[Message, Verdict]] = {}
    fails = {1, 3}

    def judge_all(batch: DataFrame, opened: LedgerBatch) -> None:
        with opened as ledger:
            detect_duplicates(batch, key="key", time="time", window="window", sequence="sequence", ledger=ledger)

    def each(batch: DataFrame, number: int) -> None:
        with pytest.raises(NotRepeatable, match="Spark may repeat a call of foreachBatch"):
            judge_all(batch, Ledger.open(stream.ledger).batch())
        with Ledger.open(stream.ledger).batch(query="orders", batch=number) as ledger:
            checked = detect_duplicates(
                batch, key="key", time="time", window="window", sequence="sequence", ledger=ledger
            )
            found[number] = verdicts(checked)
            assert verdicts(checked) == found[number]
        with pytest.raises(LedgerInUse, match=f"has judged batch {number} of query 'orders' in this run already"):
            judge_all(batch, Ledger.open(stream.ledger).batch(query="orders", batch=number))
        if number in fails:
            fails.remove(number)
            raise RuntimeError("after the block")

    messages = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(stream.source))
    for _ in range(3):
        writer = messages.writeStream.foreachBatch(each).option("checkpointLocation", str(stream.checkpoint))
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination(300)
        except StreamingQueryException as error:
            assert "after the block" in str(error)
    assert not fails
    assert {message: verdict for batch in found.values() for message, verdict in batch.items()} == expected(history)
