"""Write histories as files, run queries over them, and read their output in the terms of the reference model."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, Phase, settings
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from oncebus.spark import detect_duplicates
from tests.properties import examples
from tests.reference import Message, Reference, Verdict

SCHEMA = "key string, time timestamp, sequence long, window long"
FAR_FUTURE = 2**60


def spark_examples(number: int) -> settings:
    """Return the settings of a property test on Spark. It does not shrink its examples: each of them takes seconds."""
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return examples(number, phases=[Phase.explicit, Phase.reuse, Phase.generate], suppress_health_check=checks)


def write_batch(folder: Path, number: int, messages: Iterable[Message]) -> None:
    """Write one file, which a query reads as one batch. Queries read the files in the order of their numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    columns: list[Sequence[Any]] = list(zip(*messages, strict=True)) or [[], [], [], []]
    table = pa.table(
        {
            "key": pa.array(columns[0], pa.string()),
            "time": pa.array(columns[1], pa.timestamp("us", "UTC")),
            "sequence": pa.array(columns[2], pa.int64()),
            "window": pa.array(columns[3], pa.int64()),
        }
    )
    hidden = folder / f".{number:06d}"
    pq.write_table(table, hidden)
    os.utime(hidden, (1_000_000 + number, 1_000_000 + number))
    hidden.rename(folder / f"{number:06d}.parquet")


def verdicts(frame: DataFrame) -> dict[Message, Verdict]:
    """Return the verdicts in a checked DataFrame. Fails if a message occurs twice."""
    found: dict[Message, Verdict] = {}
    for row in frame.selectExpr("*", "unix_micros(time) t", "unix_micros(original_time) o").collect():
        message = Message(row["key"], row["t"], row["sequence"], row["window"])
        assert message not in found, f"{message} twice"
        found[message] = Verdict(True, row["o"], row["original_sequence"]) if row["is_duplicate"] else Verdict(False)
    return found


def rows_in(table: Path, *columns: str) -> list[dict[str, Any]]:
    """Return the rows of a table that Spark has written. Reads without Spark, which is slow for few rows."""
    files = {str(file) for file in table.glob("*.parquet")}
    if (table / "_spark_metadata").exists():
        # Files that are not in the log of a streaming sink belong to attempts that failed.
        log = sorted((table / "_spark_metadata").glob("[0-9]*"))
        entries = (json.loads(line) for file in log for line in file.read_text().splitlines() if line.startswith("{"))
        files = {unquote(urlsplit(entry["path"]).path) for entry in entries}
    return [row for file in sorted(files) for row in pq.read_table(file, columns=list(columns)).to_pylist()]


def expected(history: Sequence[Sequence[Message]], lateness: int = 0) -> dict[Message, Verdict]:
    reference = Reference(lateness)
    found: dict[Message, Verdict] = {}
    for messages in history:
        found |= reference.batch(messages, FAR_FUTURE)
    return found


class StreamFiles:
    """The files of a query over a folder of batches: its source, ledger, checkpoint and output."""

    folder: Path

    @property
    def source(self) -> Path:
        return self.folder / "source"

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def output(self) -> Path:
        return self.folder / "output"

    def write(self, history: Sequence[Sequence[Message]], first: int = 0) -> None:
        for number, messages in enumerate(history, first):
            write_batch(self.source, number, messages)

    def as_cut(self, history: Sequence[Sequence[Message]]) -> list[list[Message]]:
        """Return the history in the batches that the query actually cut, according to its checkpoint.

        Normally a batch is one file. But a query that is killed between recording a file in its source and recording
        the batch puts that file and the next into one batch when it restarts.
        """
        noted: dict[int, int] = {}
        for log in (self.checkpoint / "sources" / "0").iterdir():
            if log.name.removesuffix(".compact").isdigit():
                for line in log.read_text().splitlines()[1:]:
                    entry = json.loads(line)
                    noted[int(Path(entry["path"]).stem)] = entry["batchId"]
        assert sorted(noted) == list(range(len(history)))
        offsets = sorted(int(path.name) for path in (self.checkpoint / "offsets").iterdir() if path.name.isdigit())
        cut, after = [], -1
        for batch in offsets:
            end = json.loads((self.checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1])["logOffset"]
            files = [number for number in sorted(noted) if after < noted[number] <= end]
            cut.append([message for number in files for message in history[number]])
            after = end
        assert [message for batch in cut for message in batch] == [message for batch in history for message in batch]
        return cut


def started(writer: DataStreamWriter) -> StreamingQuery:
    """Start a query.

    Spark Connect gives the Python worker of foreachBatch ten seconds to start, and has no setting for it. While other
    tests keep the machine busy that may be too short, so try again: nothing has begun.
    """
    for _ in range(9):
        try:
            return writer.start()
        except PySparkException as error:
            if "failed to connect back" not in str(error):
                raise
    return writer.start()


@dataclass
class Stream(StreamFiles):
    """A query over a folder of batches, written as a user would write it."""

    spark: SparkSession
    folder: Path
    options: dict[str, Any] = field(default_factory=dict)

    def check(self, messages: DataFrame, **others: Any) -> DataFrame:
        columns = {"key": "key", "time": "time", "window": "window", "sequence": "sequence"}
        return detect_duplicates(messages, **{**columns, "ledger": self.ledger, **self.options, **others})

    def messages(self) -> DataFrame:
        return self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(self.source))

    def checked(self) -> DataFrame:
        return self.check(self.messages())

    def run(
        self,
        change: Callable[[DataFrame], DataFrame] = lambda frame: frame,
        each: Callable[[DataFrame, int], None] | None = None,
    ) -> StreamingQuery:
        """Run the query until it has read every file, into `output` or through foreachBatch."""
        writer = change(self.checked()).writeStream.option("checkpointLocation", str(self.checkpoint))
        writer = writer.trigger(availableNow=True)
        if each is not None:
            query = started(writer.foreachBatch(each))
        else:
            query = started(writer.format("parquet").option("path", str(self.output)))
        assert query.awaitTermination(300), "the query did not end"
        return query

    def found(self) -> dict[Message, Verdict]:
        return verdicts(self.spark.read.parquet(str(self.output)))
