"""Input that is partitioned by the key needs no shuffle; input that is not is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from oncebus.spark import Ledger, detect_duplicates
from oncebus.values.errors import OncebusError
from tests.histories import SECOND, START
from tests.reference import Message
from tests.spark.elsewhere import check_partitioned
from tests.spark.streams import SCHEMA, Stream, expected, verdicts
from tests.spark.test_batch import frame_of
from tests.spark.test_streaming import history_of

OPTIONS: dict[str, Any] = {"key": "key", "time": "time", "window": "window", "sequence": "sequence"}


def test_a_partitioned_stream(spark: SparkSession, tmp_path: Path) -> None:
    history = history_of(5)
    stream = Stream(spark, tmp_path)

    def run(by: str, partitions: int, *, partitioned: bool = True) -> None:
        source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(stream.source))
        checked = detect_duplicates(
            source.repartition(partitions, by), **OPTIONS, ledger=stream.ledger, partitioned=partitioned
        )
        writer = checked.writeStream.format("parquet").option("path", str(stream.output))
        query = writer.option("checkpointLocation", str(stream.checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(300)

    stream.write(history[:2])
    run("key", 3)
    stream.write(history[2:4], first=2)
    run("key", 2)
    stream.write(history[4:], first=4)
    with pytest.raises(StreamingQueryException, match=r"NotPartitioned: Partition \d of the input has a key"):
        run("sequence", 3)
    run("key", 2, partitioned=False)
    assert stream.found() == expected(history)


def test_a_partitioned_batch(spark: SparkSession, tmp_path: Path) -> None:
    messages = history_of(1)[0]
    frame = frame_of(spark, messages).repartition(3, "key")
    with Ledger.open(tmp_path / "ledger").batch() as ledger:
        checked = detect_duplicates(frame, **OPTIONS, ledger=ledger, partitioned=True)
        java: Any = checked._jdf
        assert java.queryExecution().optimizedPlan().toString().count("Repartition") == 1
        assert verdicts(checked) == expected([messages])
    wrong: list[dict[str, Any]] = [{}, {"parts": 3, "ledger": "x"}]
    for options in wrong:
        with pytest.raises(OncebusError, match="partitioned=True needs a ledger, which checks it"):
            detect_duplicates(frame, **OPTIONS, **options, partitioned=True)


def test_a_task_that_computes_several_partitions(spark: SparkSession, tmp_path: Path) -> None:
    """Behind `coalesce`, a task computes several partitions; `union` and `crossJoin` compute one several times."""
    check_partitioned(spark, tmp_path)


@pytest.mark.release
def test_a_coalesced_stream(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path)
    stream.write([[Message(str(key), START, 10 * turn + key, SECOND) for turn in range(2) for key in range(10)]])

    def run(spread: Callable[[DataFrame], DataFrame]) -> None:
        source = spread(spark.readStream.schema(SCHEMA).parquet(str(stream.source)))
        checked = detect_duplicates(source, **OPTIONS, ledger=stream.ledger, partitioned=True)
        writer = checked.coalesce(1).writeStream.format("parquet").option("path", str(stream.output))
        query = writer.option("checkpointLocation", str(stream.checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(300)

    with pytest.raises(StreamingQueryException, match=r"NotPartitioned: Partition \d of the input has a key"):
        run(lambda source: source.repartition(2, "sequence"))
    run(lambda source: source.repartition(2, "key"))
    assert sum(not verdict.is_duplicate for verdict in stream.found().values()) == 10
