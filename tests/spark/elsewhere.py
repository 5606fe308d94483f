"""A streaming query and a batch in a process of its own: elsewhere.py cluster|connect URL FOLDER."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
sys.path.insert(0, str(Path(__file__).parent.parent))

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from oncebus.spark import Ledger, detect_duplicates
from spark.streams import Stream, expected, verdicts
from spark.test_streaming import history_of


def session(how: str, url: str) -> SparkSession:
    if how == "connect":
        return SparkSession.builder.remote(url).getOrCreate()
    builder = SparkSession.builder.master(url).config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    return builder.config("spark.sql.shuffle.partitions", "2").config("spark.executor.memory", "512m").getOrCreate()


def check_foreach_batch(stream: Stream) -> None:
    """Through Connect the tasks of a foreachBatch are not told their batch: that is said, and nothing is written."""
    stream.write(history_of(1))
    try:
        stream.run(each=lambda batch, number: batch.write.format("noop").mode("overwrite").save())
    except Exception as error:
        assert "Inside foreachBatch through Spark Connect it does not" in str(error), error
    else:
        raise AssertionError("nothing was refused")
    assert Ledger.open(stream.ledger).summary().runs == 0


if __name__ == "__main__":
    how, url, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    spark = session(how, url)
    Stream(spark, folder).run()

    messages = [message for batch in history_of(3) for message in batch]
    rows = [(message.key, message.time, message.sequence, message.window) for message in messages]
    frame = spark.createDataFrame(rows, "key string, time long, sequence long, window long")
    frame = frame.withColumn("time", F.timestamp_micros("time"))
    with Ledger.open(folder / "batch-ledger").batch() as ledger:
        checked = detect_duplicates(frame, key="key", time="time", window="window", sequence="sequence", ledger=ledger)
        assert verdicts(checked) == verdicts(checked) == expected([messages])
    if how == "connect":
        check_foreach_batch(Stream(spark, folder / "refused"))
    spark.stop()
