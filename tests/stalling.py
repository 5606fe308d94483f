"""Runs the Python workers of Spark's executors, and stops one of them in the middle of a task if a test orders it.

Spark runs this module as its Python daemon (`spark.python.daemon.module`). An order is a file in the folder `STALLS`:
`BATCH.KIND.ACCESS.ANY`. The first task of that micro-batch that makes its access number ACCESS of this kind takes the
order and stops with SIGSTOP, before the access takes place. The kinds are `ledger`, for calls of the file system on a
path with such a folder, and `connection`. So a test can stop a task anywhere in its work with a ledger, or before it
sends anything, without knowing the code. To a task that stops, it is as if its machine were paused.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

STALLS = "STALLS"
ACCESSES = ("open", "os.scandir", "os.listdir", "os.rename", "os.link", "os.remove", "pyarrow.memory_map")
BATCH_ID = "streaming.sql.batchId"

# Not the package, whose modules a task imports.
_LEDGER = re.compile(r"(?<!/oncebus)/ledger(/|$)")
_counted: Counter[tuple[int, str]] = Counter()


def order_stall(folder: Path, batch: int, kind: str, access: int, number: int = 0) -> None:
    """Order that a task of this batch stops before its access number `access`, which counts from 1."""
    (folder / f"{batch}.{kind}.{access}.{number}").touch()


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    """Stop this process if there is an order for this access. Python calls this for every event that it audits."""
    if event == "socket.connect":
        kind, name = "connection", str(arguments[1])
    elif event in ACCESSES and isinstance(arguments[0], str) and _LEDGER.search(arguments[0]):
        kind, name = "ledger", arguments[0]
    else:
        return
    from pyspark import TaskContext

    context = TaskContext.get()
    batch = context.getLocalProperty(BATCH_ID) if context else None
    if context is None or batch is None:
        return
    attempt = context.taskAttemptId()
    _counted[attempt, kind] += 1
    access, folder = _counted[attempt, kind], Path(os.environ[STALLS])
    for order in sorted(folder.glob(f"{batch}.{kind}.{access}.*")):
        # Only one process can take the order.
        with suppress(FileNotFoundError):
            order.rename(folder / f"taken-{order.name}")
            with (folder / "log").open("a") as log:
                log.write(f"stopped: batch {batch}, attempt {attempt}, access {access}: {event} {name}\n")
            signal.raise_signal(signal.SIGSTOP)
            return


if __name__ == "__main__":
    import pyarrow as pa
    from pyspark import daemon

    map_memory = pa.memory_map

    def watch_mapping(path: str, *arguments: Any) -> pa.MemoryMappedFile:
        """Python does not audit the files that Arrow opens."""
        _watch("pyarrow.memory_map", (path,))
        return map_memory(path, *arguments)

    pa.memory_map = watch_mapping
    sys.addaudithook(_watch)
    daemon.manager()
