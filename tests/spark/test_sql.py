"""SQL reads a view of the result, as docs/reference/spark.md shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from oncebus.spark import detect_duplicates
from tests.docs.pages import blocks
from tests.spark.streams import Stream, expected, verdicts
from tests.spark.test_streaming import history_of


def test_the_sample_runs(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "('a', timestamp'2026-01-31 08:00:00'), ('a', timestamp'2026-01-31 08:01:00'), ('b', now())"
    spark.sql(f"SELECT * FROM VALUES {rows} AS t(id, at)").createOrReplaceTempView("events")
    samples = [block for block in blocks("reference/spark.md") if block.language == "python"]
    [block] = [block for block in samples if "createOrReplaceTempView" in block.text]
    names: dict[str, Any] = {"spark": spark, "detect_duplicates": detect_duplicates}
    exec(block.text, names)
    shown = ["+---+-------+", "| id|repeats|", "+---+-------+", "|  a|      1|", "+---+-------+"]
    assert capsys.readouterr().out.split("\n")[:5] == shown


def test_a_stream_through_a_view(spark: SparkSession, tmp_path: Path) -> None:
    history = history_of(2)
    stream = Stream(spark, tmp_path)
    stream.write(history)
    stream.checked().createOrReplaceTempView("checked_stream")
    new = spark.sql("SELECT * FROM checked_stream WHERE NOT is_duplicate")
    writer = new.writeStream.format("parquet").option("path", str(stream.output))
    query = writer.option("checkpointLocation", str(stream.checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    wanted = {message for message, verdict in expected(history).items() if not verdict.is_duplicate}
    assert set(verdicts(spark.read.parquet(str(stream.output)))) == wanted
