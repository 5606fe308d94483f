"""The DataFrame samples in README.md and in the guide for data engineers run, and print the output shown there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.docs.pages import agrees, blocks

GUIDE = "guides/data-engineers.md"


def test_the_guide_prints_what_it_shows(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {}
    shown = ""
    for block in blocks(GUIDE):
        if block.language == "python":
            exec(block.text.replace('"data/', f'"{tmp_path}/'), names)
        elif block.language == "text":
            shown += block.text
    printed = capsys.readouterr().out
    assert shown
    assert agrees(shown, printed), printed


def test_the_sample_of_the_readme_runs_on_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    [block] = [block for block in blocks("../README.md") if block.language == "python"]
    columns = "message_id string, enqueued_time timestamp"
    rows = spark.sql("SELECT 'a' message_id, timestamp'2026-01-31 08:00:00' enqueued_time FROM range(2)")
    rows.write.parquet(f"{tmp_path}/in")
    names: dict[str, Any] = {"messages": spark.readStream.schema(columns).parquet(f"{tmp_path}/in")}
    exec(block.text.replace('"/data/', f'"{tmp_path}/'), names)
    query = (
        names["new"]
        .writeStream.format("parquet")
        .option("path", f"{tmp_path}/out")
        .option("checkpointLocation", f"{tmp_path}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert [row.message_id for row in spark.read.parquet(f"{tmp_path}/out").collect()] == ["a"]
