"""A backfill joins the ledger of a running stream, which goes on with its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from oncebus.spark import Ledger, detect_duplicates
from tests.reference import Forget, Message, Reference
from tests.spark.streams import FAR_FUTURE, Stream, verdicts
from tests.spark.test_batch import frame_of
from tests.spark.test_streaming import history_of

OPTIONS: dict[str, Any] = {"key": "key", "time": "time", "window": "window", "sequence": "sequence"}


def test_a_backfill_joins_while_the_stream_runs(spark: SparkSession, tmp_path: Path) -> None:
    history = history_of(6)
    backfill = [message._replace(key=f"old {message.key}") for message in history_of(1, seed=2)[0]]
    repeats = [m._replace(sequence=m.sequence + 10_000) for m in backfill]
    stream, reference = Stream(spark, tmp_path), Reference()
    found: dict[Message, Any] = {}

    def each(batch: DataFrame, number: int) -> None:
        found.update(verdicts(batch))

    def check(*batches: list[Message]) -> None:
        for messages in batches:
            expected = reference.batch(messages, FAR_FUTURE)
            assert {message: found[message] for message in messages} == expected

    stream.write(history[:2])
    checked = stream.checked()
    query = checked.writeStream.foreachBatch(each).option("checkpointLocation", str(stream.checkpoint)).start()
    try:
        query.processAllAvailable()
        check(*history[:2])
        with Ledger.open(stream.ledger).batch(checkpoint=stream.checkpoint) as ledger:
            aside, since = reference.aside(), len(reference.accepted)
            result = detect_duplicates(frame_of(spark, backfill), **OPTIONS, ledger=ledger)
            wanted = aside.batch(backfill, FAR_FUTURE)
            assert verdicts(result) == wanted
            stream.write(history[2:4], first=2)
            query.processAllAvailable()
            assert verdicts(result) == wanted, "the stream changed what the backfill sees"
            check(*history[2:4])
        assert reference.join(aside, since)
        stream.write([repeats, history[4]], first=4)
        query.processAllAvailable()
        check(repeats, history[4])
        assert any(found[message].is_duplicate for message in repeats)
        ledger_of_stream = Ledger.open(stream.ledger)
        known = [m for m in history[4] if m.key is not None and ledger_of_stream.contains(m.key)]
        forgotten = max(known, key=lambda message: message.time)
        assert ledger_of_stream.forget([forgotten.key], checkpoint=stream.checkpoint) == 1
        again = [forgotten._replace(sequence=30_000)]
        reference.batch([Forget(*forgotten)], 0)
        stream.write([again], first=6)
        query.processAllAvailable()
        check(again)
        assert not found[again[0]].is_duplicate
    finally:
        query.stop()
    # The query continues from its checkpoint, and a backfill joins while it is stopped.
    with Ledger.open(stream.ledger).batch(checkpoint=stream.checkpoint) as ledger:
        more = [message._replace(key=f"older {message.key}") for message in history[5]]
        aside, since = reference.aside(), len(reference.accepted)
        wanted = aside.batch(more, FAR_FUTURE)
        assert verdicts(detect_duplicates(frame_of(spark, more), **OPTIONS, ledger=ledger)) == wanted
    assert reference.join(aside, since)
    stream.write([history[5], [m._replace(sequence=m.sequence + 20_000) for m in more]], first=7)
    stream.run(each=each)
    check(history[5], [m._replace(sequence=m.sequence + 20_000) for m in more])
