"""New rows and duplicates of one stream go to two places: with the samples of docs/reference/spark.md, in one query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.docs.pages import blocks
from tests.spark.streams import Stream, expected, verdicts
from tests.spark.test_streaming import history_of


@pytest.mark.parametrize("sample", ["partitionBy", "write_both"])
def test_a_sample_writes_both_outputs(spark: SparkSession, tmp_path: Path, sample: str) -> None:
    history = history_of(3)
    stream = Stream(spark, tmp_path)
    stream.write(history)
    [block] = [block for block in blocks("reference/spark.md") if block.language == "python" and sample in block.text]
    text = block.text.replace('"/data/', f'f"{tmp_path}/').replace('ff"', 'f"')
    # The sample starts a query that runs for ever: let this one end.
    text = text.replace(".start()", ".trigger(availableNow=True).start().awaitTermination()")
    names: dict[str, Any] = {"spark": spark, "checked": stream.checked()}
    exec(text, names)
    if sample == "partitionBy":
        # Spark reads the names of folders as text.
        typed = {"is_duplicate": F.col("is_duplicate").cast("boolean")}
        new, both = names["new"].withColumns(typed), spark.read.parquet(f"{tmp_path}/out").withColumns(typed)
    else:
        new = spark.read.parquet(f"{tmp_path}/new").drop("batch")
        both = new.unionByName(spark.read.parquet(f"{tmp_path}/dropped").drop("batch"))
    wanted = expected(history)
    assert verdicts(both) == wanted
    assert set(verdicts(new)) == {message for message, verdict in wanted.items() if not verdict.is_duplicate}


def test_one_result_as_two_queries_is_refused_with_the_way_out(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path)
    stream.write(history_of(1))
    checked = stream.checked()

    def run(name: str) -> None:
        writer = checked.writeStream.format("noop").option("checkpointLocation", str(tmp_path / name))
        writer.trigger(availableNow=True).start().awaitTermination(300)

    run("new")
    with pytest.raises(StreamingQueryException) as raised:
        run("dropped")
    [line] = [line for line in str(raised.value).splitlines() if "LedgerInUse: " in line][:1]
    assert "One result of detect_duplicates was started as two queries" in line
    assert 'partitionBy("is_duplicate"), or foreachBatch' in line
