"""Send the rows of files to a queue, on a cluster, until the process is killed.

`python -m connector.followed MASTER FOLDER QUEUE plain|detected`, in the folder `tests`. FOLDER/string holds the
connection string.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import functions as F

from oncebus.connector import register
from tests.drivers import quiet_session
from tests.spark.streams import SCHEMA, Stream

FILES = 8
"""How many files make a batch. Spark spreads them over the cores of the cluster."""


def follow(master: str, folder: Path, queue: str, how: str) -> None:
    session = quiet_session(master)
    register(session)
    stream = Stream(session, folder)
    rows = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", FILES).parquet(str(stream.source))
    if how == "detected":
        rows = stream.check(rows).filter("not is_duplicate")
    writer = rows.select(F.col("sequence").cast("string").alias("body")).writeStream.format("servicebus")
    writer = writer.option("connection_string_file", str(folder / "string")).option("queue", queue)
    writer.option("checkpointLocation", str(stream.checkpoint)).start().awaitTermination()


if __name__ == "__main__":
    follow(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4])
