"""The program that the kill tests kill: messages go from a queue to a table, and from the table to another queue.

`python -m connector.killed MASTER FOLDER NAME`, in the folder `tests`. FOLDER/string holds the connection string. The
queues are NAME-source and NAME-target.
"""

from __future__ import annotations

import sys
from pathlib import Path

from oncebus.connector import register
from oncebus.connector.schema import SCHEMA
from oncebus.spark import detect_duplicates
from tests.drivers import LOSES_EXECUTORS, MAY_BE_KILLED, quiet_session


def main(master: str, folder: Path, name: str) -> None:
    session = quiet_session(master, LOSES_EXECUTORS | MAY_BE_KILLED)
    register(session)
    access = {"connection_string_file": str(folder / "string"), "retry_timeout": "2 minutes"}
    received = (
        session.readStream.format("servicebus")
        .options(
            **access,
            queue=f"{name}-source",
            spool=str(folder / "spool"),
            receivers="2",
            max_rows="40",
            wait="300 milliseconds",
        )
        .load()
    )
    checked = detect_duplicates(
        received, key="sequence_number", time="enqueued_time", window="1 hour", ledger=str(folder / "ledger")
    )
    table = str(folder / "table")
    (
        checked.writeStream.format("parquet")
        .option("path", table)
        .option("checkpointLocation", str(folder / "checkpoint-table"))
        .start()
    )
    # The file source reads the log of the file sink, so it sees committed files only.
    rows = session.readStream.schema(SCHEMA.add("is_duplicate", "boolean")).option("maxFilesPerTrigger", 4)
    (
        rows.parquet(table)
        .filter("not is_duplicate")
        .select("body", "subject")
        .writeStream.format("servicebus")
        .options(**access, queue=f"{name}-target")
        .option("checkpointLocation", str(folder / "checkpoint-target"))
        .start()
    )
    session.streams.awaitAnyTermination()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
