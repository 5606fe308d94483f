"""Measures what a batch and a task of `detect_duplicates` cost in Spark besides their rows, and prints it as JSON.

It runs small batches with different numbers of parts on two cores. `python -m bench.scale spark` writes the result to
docs/bench/scale.json.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from bench.contender import SCHEMA, session
from bench.generate import FILES_PER_BATCH, generate
from bench.served import cpu_below, since
from oncebus.spark import detect_duplicates

ROWS = 400
BATCHES = 14
PARTS = (2, 64)


def main() -> None:
    spark = session({})
    found: dict[int, float] = {}
    with tempfile.TemporaryDirectory(prefix="oncebus-bench-", dir=os.environ.get("BENCH_WORK")) as work:
        source = Path(work, "in")
        generate(source, rows=ROWS * BATCHES, batch=ROWS, duplicates=0.1)
        for turn, parts in enumerate((PARTS[0], *PARTS)):
            # The first turn only warms up.
            messages = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", FILES_PER_BATCH)
            checked = detect_duplicates(
                messages.parquet(str(source)),
                key="message_id",
                time="enqueued_time",
                window="7 days",
                ledger=Path(work, f"ledger-{turn}"),
                parts=parts,
            )
            before = cpu_below(os.getpid(), "driver")
            query = checked.writeStream.format("noop").option("checkpointLocation", f"{work}/checkpoint-{turn}")
            running = query.trigger(availableNow=True).start()
            running.awaitTermination()
            cpu = since(before, cpu_below(os.getpid(), "driver"))["all"]
            found[parts] = cpu / BATCHES
    few, many = (found[parts] for parts in PARTS)
    task = (many - few) / (PARTS[1] - PARTS[0])
    print(json.dumps({"task_cpu_seconds": task, "batch_cpu_seconds": few - PARTS[0] * task}))


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = sys.executable
    main()
    sys.stdout.flush()
    os._exit(0)
