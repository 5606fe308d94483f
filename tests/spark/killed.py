"""Run a streaming query in a separate process, to be killed: killed.py FOLDER. Ends when the whole source is judged."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
sys.path.insert(0, str(Path(__file__).parent.parent))

from pyspark.sql import SparkSession

from cluster import FILE_MANAGER
from spark.streams import Stream

if __name__ == "__main__":
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config(*FILE_MANAGER)
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    Stream(session, Path(sys.argv[1])).run()
    session.stop()
