"""Runs one contender in its own process: reads the input as a stream, batch by batch, and measures.

contender.py NAME WARM_UP SOURCE WORK WINDOW ANSWER measures once, and writes its measurements to the file ANSWER.
contender.py NAME WARM_UP WORK WINDOW reads the warm-up, and then SOURCE WORK from each line of its input. Each time it
prints the rows and the seconds of each batch as one line of JSON.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bench.generate import FILES_PER_BATCH
from oncebus.spark import Ledger, detect_duplicates
from oncebus.spark.columns import resolve_columns

SCHEMA = "message_id string, enqueued_time timestamp, sequence_number long, body binary"
SKIPPED_BATCHES = 2


def session(settings: dict[str, str]) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("bench")
    common = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": os.environ.get("BENCH_MEMORY", "8g"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
        # Saves every contender 100 ms per batch.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
    }
    for name, value in {**common, **settings}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
}


def oncebus(messages: DataFrame, work: Path, window: str) -> DataFrame:
    checked = detect_duplicates(
        messages,
        key="message_id",
        time="enqueued_time",
        window=window,
        ledger=work / "ledger",
        sequence="sequence_number",
    )
    return checked.filter("not is_duplicate")


def floor(messages: DataFrame, work: Path, window: str) -> DataFrame:
    """Do the least that any operator in Python has to do: shuffle by the key, and pass all rows through a worker."""
    columns = resolve_columns(messages, "message_id", "enqueued_time", window, "sequence_number")

    def pass_through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            count = batch.num_rows
            yield pa.RecordBatch.from_arrays(
                [
                    *batch.columns,
                    pa.repeat(pa.scalar(False), count),
                    pa.nulls(count, batch.schema.field("enqueued_time").type),
                    pa.nulls(count, pa.int64()),
                ],
                names=columns.output.names,
            )

    return messages.repartition(2, "message_id").mapInArrow(pass_through, columns.output).filter("not is_duplicate")


def spark_own(messages: DataFrame, work: Path, window: str) -> DataFrame:
    return messages.withWatermark("enqueued_time", window).dropDuplicatesWithinWatermark(["message_id"])


CONTENDERS = {
    "oncebus": (oncebus, {}),
    "floor": (floor, {}),
    "rocksdb": (spark_own, ROCKSDB),
    "memory": (spark_own, {}),
}


def run(spark: SparkSession, name: str, source: Path, work: Path, window: str) -> list[tuple[int, float]]:
    """Read everything once. Return the rows and seconds of each batch."""
    messages = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", FILES_PER_BATCH).parquet(str(source))
    query = (
        CONTENDERS[name][0](messages, work, window)
        .writeStream.format("noop")
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [
        (progress["numInputRows"], progress["durationMs"]["triggerExecution"] / 1000)
        for progress in query.recentProgress
        if progress["numInputRows"]
    ]


def worker_bytes() -> int:
    """Return the anonymous memory of Spark's Python workers: what they hold besides mapped files."""
    total = 0
    for status in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"pyspark.daemon" in status.read_bytes() or b"pyspark.worker" in status.read_bytes():
                lines = (status.parent / "smaps_rollup").read_text().splitlines()
                total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous:"))
        except OSError:
            continue
    return total


def measure(name: str, warm_up: Path, source: Path, work: Path, window: str) -> dict[str, Any]:
    spark = session(CONTENDERS[name][1])
    run(spark, name, warm_up, work / "warm-up", window)
    batches = run(spark, name, source, work, window)[SKIPPED_BATCHES:]
    result: dict[str, Any] = {
        "contender": name,
        "rows_per_second": statistics.median(rows / seconds for rows, seconds in batches),
        "mean_rows_per_second": sum(rows for rows, _ in batches) / sum(seconds for _, seconds in batches),
        "batches": batches,
    }
    if name == "oncebus":
        held = Ledger.open(work / "ledger").summary()
        result |= {"ids": held.ids, "ledger_bytes": held.bytes, "runs": held.runs, "worker_bytes": worker_bytes()}
    return result


def answer_rounds(name: str, warm_up: Path, work: Path, window: str) -> None:
    spark = session(CONTENDERS[name][1])
    print(json.dumps(run(spark, name, warm_up, work, window)), flush=True)
    for line in sys.stdin:
        source, folder = line.split()
        print(json.dumps(run(spark, name, Path(source), Path(folder), window)), flush=True)


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = sys.executable
    name, warm_up, *words = sys.argv[1:]
    if len(words) == 2:
        answer_rounds(name, Path(warm_up), Path(words[0]), words[1])
    else:
        source, work, window, answer = words
        measured = measure(name, Path(warm_up), Path(source), Path(work), window)
        Path(answer).write_text(json.dumps(measured))
    # Do not stop the session: RocksDB state stores sometimes hang for minutes while they unload.
    os._exit(0)
