"""Run a streaming query in a separate process, to be killed: killed.py FOLDER. Ends when the whole source is judged."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.drivers import MAY_BE_KILLED, quiet_session
from tests.spark.streams import Stream

if __name__ == "__main__":
    session = quiet_session("local[2]", MAY_BE_KILLED)
    Stream(session, Path(sys.argv[1])).run()
    session.stop()
