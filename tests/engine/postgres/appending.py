"""A gateway's writer as a process: appends to a log, and prints the id and the number of each row that was accepted."""

from __future__ import annotations

import itertools
import sys
import time

from oncebus.engine.inbox import InboxError, Row
from oncebus.engine.postgres.log import PostgresLog
from oncebus.model.messages import PARTITION_SHIFT

SHARDS = 4


def main() -> None:
    url, name, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
    log = PostgresLog(url, SHARDS)
    for number in itertools.count():
        if times and number == times:
            break
        rows = [
            Row(
                entity=7 + each % 2,
                sequence=each % 3 << PARTITION_SHIFT,
                time=time.time_ns() // 1000,
                window=0,
                message_id=f"{name}-{number}-{each}",
                hops=0,
                size=1,
                head=b"h",
            )
            for each in range(1 + number % 4)
        ]
        try:
            commit = log.append(rows, 0)
        except InboxError as error:
            # Not accepted, or nobody knows.
            print("refused", *(row["message_id"] for row in rows), int(log.is_torn), str(error)[:40], flush=True)
            continue
        for row in rows:
            print("accepted", row["message_id"], commit, row["entity"], row["sequence"], row["time"], flush=True)
    log.close()


if __name__ == "__main__":
    main()
