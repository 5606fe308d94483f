"""Every way of evaluating a streaming batch gives the verdicts of the reference model, once."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from oncebus.spark import Ledger
from tests.histories import SECOND, START, histories
from tests.reference import Message
from tests.spark.streams import Stream, expected, spark_examples, verdicts


def history_of(batches: int, size: int = 40, seed: int = 1) -> list[list[Message]]:
    """Return batches with many repeated keys, out of order, with several windows."""
    chance = random.Random(seed)
    result, sequence = [], 0
    for number in range(batches):
        messages = []
        for _ in range(size):
            sequence += 1
            key = chance.choice(["a", "b", "c", None, *(f"k{at}" for at in range(30))])
            time = START + number * 15 * SECOND + chance.randrange(-20, 20) * SECOND
            messages.append(Message(key, time, sequence, chance.choice([20, 20, 20, 60]) * SECOND))
        result.append(messages)
    return result


@given(drawn=histories(most_batches=5, forgets=False), lateness=st.sampled_from([0, 30 * SECOND]))
@spark_examples(4)
def test_random_histories(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, drawn: list[object], lateness: int
) -> None:
    history = [list(batch.messages) for batch in drawn]  # type: ignore[attr-defined]
    stream = Stream(spark, tmp_path_factory.mktemp("history"), {"lateness": f"{lateness} microseconds"})
    stream.write(history)
    stream.run()
    assert stream.found() == expected(history, lateness)


def test_a_query_continues_after_it_was_stopped(spark: SparkSession, tmp_path: Path) -> None:
    history = history_of(14)
    stream = Stream(spark, tmp_path)
    stream.write(history[:10])
    stream.run()
    stream.write(history[10:], first=10)
    stream.options["parts"] = 3
    stream.run()
    assert stream.found() == expected(history)
    assert Ledger.open(stream.ledger).summary().runs < 14 * 3, "nothing was merged or deleted"


def test_foreach_batch_may_evaluate_a_batch_more_than_once(spark: SparkSession, tmp_path: Path) -> None:
    history = history_of(4)
    stream = Stream(spark, tmp_path)
    stream.write(history)

    def each(batch: DataFrame, number: int) -> None:
        batch.filter("not is_duplicate").write.mode("append").parquet(f"{stream.output}/new")
        batch.filter("is_duplicate").write.mode("append").parquet(f"{stream.output}/dropped")

    stream.run(each=each)
    both = spark.read.parquet(f"{stream.output}/new").union(spark.read.parquet(f"{stream.output}/dropped"))
    assert verdicts(both) == expected(history)


def test_a_result_may_be_united_with_itself(spark: SparkSession, tmp_path: Path) -> None:
    history = history_of(4)
    stream = Stream(spark, tmp_path)
    stream.write(history)
    stream.run(lambda checked: checked.selectExpr("*", "1 as side").union(checked.selectExpr("*", "2 as side")))
    output = spark.read.parquet(str(stream.output))
    for side in (1, 2):
        assert verdicts(output.filter(f"side = {side}").drop("side")) == expected(history)


def test_tasks_may_be_retried(spark: SparkSession, tmp_path: Path) -> None:
    history = history_of(4)
    stream = Stream(spark, tmp_path)
    stream.write(history)
    failed = tmp_path / "failed"
    failed.mkdir()

    def change(checked: DataFrame) -> DataFrame:
        def fail_once(batches):  # type: ignore[no-untyped-def]
            from pyspark import TaskContext

            context = TaskContext.get()
            assert context is not None
            yield from batches
            marker = failed / f"{context.getLocalProperty('streaming.sql.batchId')}-{context.partitionId()}"
            if not marker.exists():
                marker.touch()
                raise RuntimeError("this attempt fails after its rows were judged")

        return checked.mapInArrow(fail_once, checked.schema)

    stream.run(change)
    assert len(list(failed.iterdir())) == 8
    assert stream.found() == expected(history)


def test_a_new_checkpoint_still_knows_the_old_keys(spark: SparkSession, tmp_path: Path) -> None:
    """Except the keys of the last batch, which may never have been output, unless `confirm` says it was."""
    messages = [[Message(f"k{at}", START + at * SECOND, at, 3600 * SECOND)] for at in range(4)]
    for confirmed in (False, True):
        stream = Stream(spark, tmp_path / str(confirmed))
        stream.write(messages)
        stream.run()
        if confirmed:
            assert Ledger.open(stream.ledger).confirm(checkpoint=stream.checkpoint) == 3
        shutil.rmtree(stream.checkpoint)
        shutil.rmtree(stream.output)
        stream.run()
        new = {message.key for message, verdict in stream.found().items() if not verdict.is_duplicate}
        assert new == (set() if confirmed else {"k3"})


def test_a_batch_that_was_never_committed_is_not_lost_with_its_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    history = history_of(3)
    stream = Stream(spark, tmp_path)
    stream.write(history)

    def fails_at_the_last(batch: DataFrame, number: int) -> None:
        batch.write.format("noop").mode("overwrite").save()
        if number == 2:
            raise RuntimeError("judged, but never output")
        batch.write.mode("append").parquet(str(stream.output))

    with pytest.raises(StreamingQueryException, match="never output"):
        stream.run(each=fails_at_the_last)
    assert Ledger.open(stream.ledger).confirm(checkpoint=stream.checkpoint) == 1
    before = stream.found()
    shutil.rmtree(stream.checkpoint)
    later = Stream(spark, tmp_path / "later", {"ledger": stream.ledger})
    later.write(history[2:])
    later.run()
    assert before | later.found() == expected(history)


def test_an_older_checkpoint_is_right_or_refused(spark: SparkSession, tmp_path: Path) -> None:
    history = history_of(14, size=12)
    stream = Stream(spark, tmp_path)
    outputs: dict[int, dict[object, object]] = {}

    def keep(batch: DataFrame, number: int) -> None:
        outputs[number] = verdicts(batch)  # type: ignore[assignment]

    def whole() -> dict[object, object]:
        return {message: verdict for batch in outputs.values() for message, verdict in batch.items()}

    stream.write(history[:2])
    stream.run(each=keep)
    shutil.copytree(stream.checkpoint, tmp_path / "older")
    stream.write(history[2:7], first=2)
    stream.run(each=keep)
    assert whole() == expected(history[:7])

    shutil.rmtree(stream.checkpoint)
    shutil.copytree(tmp_path / "older", stream.checkpoint)
    stream.run(each=keep)
    assert whole() == expected(history[:7])

    stream.write(history[7:], first=7)
    stream.run(each=keep)
    assert whole() == expected(history)
    shutil.rmtree(stream.checkpoint)
    shutil.copytree(tmp_path / "older", stream.checkpoint)
    with pytest.raises(
        StreamingQueryException,
        match=r"can go back to batch 6 of query .* at most, but its checkpoint continues at batch 2",
    ):
        stream.run(each=keep)


def test_a_second_query_on_the_same_ledger_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path)
    stream.write(history_of(1))
    rival = stream.checked()
    stream.run()
    query = rival.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "rival")).start()
    try:
        with pytest.raises(StreamingQueryException, match=r"LedgerInUse: Ledger '.*' is being written by query"):
            query.processAllAvailable()
    finally:
        query.stop()

    running = stream.checked().writeStream.format("noop").option("checkpointLocation", str(stream.checkpoint)).start()
    try:
        running.processAllAvailable()
        with pytest.raises(Exception, match=r"is being written by query .* of this process"):
            stream.checked()
    finally:
        running.stop()
    stream.write(history_of(2)[1:], first=1)
    stream.run()
    assert stream.found() == expected(history_of(2))
