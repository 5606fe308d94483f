"""Run a streaming query on a cluster until the process is killed: followed.py MASTER FOLDER stream|foreach."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from pyspark.sql import DataFrame

from oncebus.spark import Ledger
from tests.drivers import quiet_session
from tests.spark.streams import Stream


def follow(stream: Stream, how: str) -> None:
    """Detect duplicates in the plan of the stream and write a table, or do both in foreachBatch, a table each."""

    def each(batch: DataFrame, number: int) -> None:
        with Ledger.open(stream.ledger).batch(query="followed", batch=number) as ledger:
            stream.check(batch, ledger=ledger).write.mode("overwrite").parquet(str(stream.output / str(number)))

    if how == "stream":
        writer = stream.checked().writeStream.format("parquet").option("path", str(stream.output))
    else:
        writer = stream.messages().writeStream.foreachBatch(each)
    writer.option("checkpointLocation", str(stream.checkpoint)).start().awaitTermination()


if __name__ == "__main__":
    follow(Stream(quiet_session(sys.argv[1]), Path(sys.argv[2])), sys.argv[3])
