"""The progress display on standard error, and the summary at the end.

On a terminal the display is live. Elsewhere, in a log or a pipe, it is a line now and then.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from oncebus.spark.borrowed import open_status_store

_EVERY_SECONDS = 0.25
_LINE_SECONDS = 10.0
"""How often to print a line if there is no terminal. A run that is over sooner prints none."""


class Live:
    """Shows the fields on a terminal, where they change in place."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID = progress.add_task("starting Spark", rows="0", duplicates="?", rate="")

    def show(self, fields: Mapping[str, str]) -> None:
        """Show the new values of some fields."""
        self._progress.update(self._task, **fields)  # type: ignore[arg-type]


class Lines:
    """Prints the fields as a line, at most every ten seconds. `passed` returns seconds."""

    def __init__(self, file: TextIO, passed: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._passed = passed
        self._last = passed()
        self._fields = {"description": "starting Spark"}

    def show(self, fields: Mapping[str, str]) -> None:
        """Take the new values of some fields. Print all of them if it is time."""
        self._fields |= fields
        if (now := self._passed()) - self._last >= _LINE_SECONDS:
            self._last = now
            known = self._fields
            counts = [f"{known[name]} {name}" for name in ("rows", "duplicates") if name in known]
            words = [known["description"], *counts, *([known["rate"]] if known.get("rate") else [])]
            print(f"oncebus dedup: {', '.join(words)}", file=self._file, flush=True)


class Display:
    """Shows rows read, duplicates and rows per second. The speed does not include the start of Spark."""

    def __init__(self, shown: Live | Lines) -> None:
        self._shown = shown
        self._started = time.monotonic()

    def phase(self, text: str) -> None:
        """Show what the run is doing now."""
        self._shown.show({"description": text})

    def rows(self, count: int) -> None:
        """Show `count` as the number of rows read so far."""
        seconds = time.monotonic() - self._started
        self._shown.show({"rows": f"{count:,}", "rate": f"{count / seconds:,.0f} rows/s" if seconds else ""})

    def duplicates(self, count: int) -> None:
        """Show `count` as the number of duplicates."""
        self._shown.show({"duplicates": f"{count:,}"})

    def count_from_here(self) -> None:
        """Start measuring the speed now: Spark is ready."""
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Return how many seconds have passed since Spark was ready."""
        return time.monotonic() - self._started

    @contextmanager
    def watching(self, spark: SparkSession) -> Iterator[None]:
        """Show how many rows the Spark jobs of the block have read so far."""
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


@contextmanager
def display() -> Iterator[Display]:
    """Yield a display on standard error."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("[bold]{task.fields[rows]}[/] rows"),
        TextColumn("[bold]{task.fields[duplicates]}[/] duplicates"),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
    )
    # A duplicate of the descriptor, because standard error is redirected to a file while Spark starts.
    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as errors:
        if not Console(stderr=True).is_terminal:
            yield Display(Lines(errors))
            return
        with Progress(*columns, console=Console(file=errors), transient=True) as progress:
            yield Display(Live(progress))


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
            table.add_row(name.replace("_", " "), _as_text(value))
    Console().print(table)


def speed(rows: int, seconds: float, working: float) -> dict[str, Any]:
    """Return the times for a summary: of the whole run, and the rows per second while it was `working`.

    The start of Spark takes seconds, whatever the number of rows, so it is not part of the speed.
    """
    return {
        "seconds": round(seconds, 3),
        "start_seconds": round(seconds - working, 3),
        "rows_per_second": round(rows / working) if working > 0 else 0,
    }


def _as_text(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)


def _update_stages(spark: SparkSession, rows: dict[int, int]) -> None:
    """Update the number of rows that each stage has read from files, including stages that have ended since."""
    store = open_status_store(spark)
    active = store.activeStages()
    running = [active.apply(at) for at in range(active.size())]
    ended = [store.lastStageAttempt(stage) for stage in rows.keys() - {stage.stageId() for stage in running}]
    for stage in (*running, *ended):
        rows[int(stage.stageId())] = int(stage.inputRecords())
