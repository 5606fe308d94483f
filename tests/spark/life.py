"""Run a random life of a ledger on a cluster, in a separate process: life.py MASTER FOLDER SEED."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
sys.path.insert(0, str(Path(__file__).parent.parent))

from pyspark.sql import SparkSession

from cluster import FILE_MANAGER
from spark.lives import Life

if __name__ == "__main__":
    session = (
        SparkSession.builder.master(sys.argv[1])
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.executor.memory", "512m")
        .config("spark.task.maxFailures", "20")
        .config("spark.stage.maxConsecutiveAttempts", "20")
        .config("spark.speculation", "true")
        .config(*FILE_MANAGER)
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    Life(session, Path(sys.argv[2]), int(sys.argv[3])).live(epochs=5)
    session.stop()
