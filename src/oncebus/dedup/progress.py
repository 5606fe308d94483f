"""The progress display on a terminal, and the summary at the end. Without a terminal there is only the summary."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

_EVERY_SECONDS = 0.25


class Display:
    """Shows rows read, duplicates and rows per second. Does nothing if standard error is not a terminal."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._task: TaskID | None = None
        self._started = time.monotonic()
        if progress is not None:
            self._task = progress.add_task("starting Spark", rows="0", duplicates="?", rate="")

    def phase(self, text: str) -> None:
        """Show what the run is doing now."""
        self._update(description=text)

    def rows(self, count: int) -> None:
        """Show `count` as the number of rows read so far."""
        seconds = time.monotonic() - self._started
        self._update(rows=f"{count:,}", rate=f"{count / seconds:,.0f} rows/s" if seconds else "")

    def duplicates(self, count: int) -> None:
        """Show `count` as the number of duplicates."""
        self._update(duplicates=f"{count:,}")

    def count_from_here(self) -> None:
        """Start measuring the speed now."""
        self._started = time.monotonic()

    @contextmanager
    def watching(self, spark: SparkSession) -> Iterator[None]:
        """Show how many rows the Spark jobs of the block have read so far."""
        if self._progress is None:
            yield
            return
        ended = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(spark, ended), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()

    def _watch(self, spark: SparkSession, ended: threading.Event) -> None:
        stages: dict[int, int] = {}
        while not ended.wait(_EVERY_SECONDS):
            # The status store is a private API of Spark. A run must not fail because progress is unavailable.
            with suppress(Exception):
                _update_stages(spark, stages)
            self.rows(sum(stages.values()))

    def _update(self, **fields: Any) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, **fields)


@contextmanager
def display() -> Iterator[Display]:
    """Yield a display on standard error. It shows nothing if that is not a terminal."""
    if not Console(stderr=True).is_terminal:
        yield Display(None)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("[bold]{task.fields[rows]}[/] rows"),
        TextColumn("[bold]{task.fields[duplicates]}[/] duplicates"),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
    )
    # A duplicate of the descriptor, because standard error is redirected to a file while Spark starts.
    with (
        os.fdopen(os.dup(sys.stderr.fileno()), "w") as terminal,
        Progress(*columns, console=Console(file=terminal), transient=True) as progress,
    ):
        yield Display(progress)


def show_summary(summary: Mapping[str, Any], *, as_json: bool, title: str) -> None:
    """Print the summary on standard output, as a table or one JSON object."""
    if as_json:
        print(json.dumps(summary), flush=True)
        return
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in summary.items():
        if value is not None and not isinstance(value, bool):
            table.add_row(name.replace("_", " "), _shown(value))
    Console().print(table)


def speed(rows: int, seconds: float) -> dict[str, Any]:
    """Return the seconds and the rows per second for a summary."""
    return {"seconds": round(seconds, 3), "rows_per_second": round(rows / seconds) if seconds > 0 else 0}


def _shown(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)


def _update_stages(spark: SparkSession, rows: dict[int, int]) -> None:
    """Update the number of rows that each stage has read from files, including stages that have ended since."""
    store = spark.sparkContext._jsc.sc().statusStore()
    active = store.activeStages()
    running = [active.apply(at) for at in range(active.size())]
    ended = [store.lastStageAttempt(stage) for stage in rows.keys() - {stage.stageId() for stage in running}]
    for stage in (*running, *ended):
        rows[int(stage.stageId())] = int(stage.inputRecords())
