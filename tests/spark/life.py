"""Run a random life of a ledger on a cluster, in a separate process: life.py MASTER FOLDER SEED."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.drivers import LOSES_EXECUTORS, quiet_session
from tests.spark.lives import Life

if __name__ == "__main__":
    session = quiet_session(sys.argv[1], LOSES_EXECUTORS | {"spark.speculation": "true"})
    Life(session, Path(sys.argv[2]), int(sys.argv[3])).live(epochs=5)
    session.stop()
