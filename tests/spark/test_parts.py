"""A query keeps its number of parts, whatever happens to the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from oncebus.ledger import Ledger as Files
from oncebus.spark import Ledger, detect_duplicates
from tests.spark.streams import Stream, expected, verdicts
from tests.spark.test_batch import frame_of
from tests.spark.test_streaming import history_of

OPTIONS: dict[str, Any] = {"key": "key", "time": "time", "window": "window", "sequence": "sequence"}


def test_a_smaller_cluster_cuts_batches_into_the_same_parts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink may tell rows by their partition, and Spark may repeat a batch on what is left of the cluster."""
    history, many = history_of(2), spark.sparkContext.defaultParallelism
    stream, inside = Stream(spark, tmp_path / "stream"), Ledger.open(tmp_path / "inside")
    assert many > 1

    def check_inside(number: int) -> None:
        with inside.batch(query="orders", batch=number) as ledger:
            verdicts(detect_duplicates(frame_of(spark, history[number]), **OPTIONS, ledger=ledger))

    stream.write(history[:1])
    stream.run()
    check_inside(0)
    monkeypatch.setattr(type(spark.sparkContext), "defaultParallelism", 1)
    stream.write(history[1:], first=1)
    stream.run()
    check_inside(1)
    for ledger in (stream.ledger, tmp_path / "inside"):
        assert {run.parts for run in Files.open(ledger).listing().runs} == {many}
    assert stream.found() == expected(history)
