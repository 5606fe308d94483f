"""A streaming query in a process of its own, to be killed. Ends when the whole source is judged.

`python -m spark.killed FOLDER`, in the folder `tests`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from drivers import quiet_session
from spark.streams import Stream

if __name__ == "__main__":
    session = quiet_session("local[2]")
    Stream(session, Path(sys.argv[1])).run()
    session.stop()
