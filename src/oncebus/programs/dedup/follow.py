"""A run that follows folders: it deduplicates new files as they arrive.

Each batch of the stream is written as files with the batch number in their names. After a stop, Spark may repeat its
last batch with the same rows, and the ledger gives them the same verdicts. The repeated batch deletes the files with
its number before it writes its own.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time as clock
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.storagelevel import StorageLevel

from oncebus.ledger import BadCheckpoint, Ledger, LedgerMismatch
from oncebus.programs.dedup import DedupError, frames
from oncebus.programs.dedup.outputs import (
    STATE,
    Marker,
    OutputError,
    Outputs,
    clear,
    decide_follow,
    move_parts,
    write_marker,
)
from oncebus.programs.dedup.progress import Display, display, show_summary, speed
from oncebus.programs.dedup.request import DedupRequest
from oncebus.programs.dedup.session import spark_session
from oncebus.programs.dedup.sources import find_sources, local_path, outermost
from oncebus.values import disk

_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 20.0


class _BatchWriter:
    """Writes the new rows and the duplicates of each batch, and counts them."""

    def __init__(self, request: DedupRequest, format_name: str, places: Outputs, shown: Display) -> None:
        self.counts = {"rows": 0, "new": 0, "duplicates": 0, "without_key": 0}
        self.batches = 0
        self._request, self._format, self._places, self._shown = request, format_name, places, shown

    def __call__(self, checked: DataFrame, batch: int) -> None:
        checked.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            counts = frames.count_verdicts(checked, self._request.key)
            sizes = (counts["new"], counts["duplicates"])
            sides = frames.both_sides(checked, self._format)
            for folder, rows, size in zip(self._places.folders, sides, sizes, strict=False):
                self._write(folder, rows if size else None, batch)
        finally:
            checked.unpersist()
        self.batches += 1
        for name, count in counts.items():
            self.counts[name] += count
        self._shown.rows(self.counts["rows"])
        self._shown.duplicates(self.counts["duplicates"])

    def _write(self, folder: Path, rows: DataFrame | None, batch: int) -> None:
        prefix = f"part-batch{batch:09d}-"
        staging = self._places.staging(folder)
        if rows is not None:
            frames.write(rows, self._format, staging)
        for name in os.listdir(folder):
            if name.startswith(prefix):
                disk.delete(folder / name)
        if rows is not None:
            move_parts(staging, folder, prefix)


def run_follow(request: DedupRequest, *, as_json: bool) -> None:
    """Follow folders until SIGINT or SIGTERM, then print a summary of everything since the start."""
    started = clock.monotonic()
    folders = tuple(dict.fromkeys(local_path(text, "Source") for text in request.given))
    for folder in folders:
        if not folder.is_dir():
            raise DedupError(f"Source '{folder}' is not a folder. Only folders can be followed.")
    with Outputs(request.folders) as places:
        state = request.out / STATE
        ledger = request.ledger or str(state / "ledger")
        known, unwanted = _known_stream(request, places)
        with display() as shown, spark_session(request.master) as spark:
            marker = known or _new_stream(request, spark, ledger)
            for folder in unwanted:
                clear(folder, everything=True)
            for folder in places.folders:
                write_marker(folder, marker)
            schema = T.StructType.fromJson(json.loads(marker.summary["schema"]))
            format_name = marker.summary["format"]
            writer = _BatchWriter(request, format_name, places, shown)
            messages = frames.read_stream(
                spark, outermost(folders), format_name, schema, marker.summary["partitions"], request
            )
            checked = frames.detect(messages, request, ledger)
            with _stop_signals() as stop:
                checkpoint = state / "checkpoint"
                query = (
                    checked.writeStream.foreachBatch(writer).option("checkpointLocation", f"file:{checkpoint}").start()
                )
                shown.count_from_here()
                shown.phase("following")
                _wait(query, stop)
                _end(query, stop)
            working = shown.seconds
            # Confirming lets other runs with this ledger see the ids of the last batch too. It fails for a query that
            # has not run a batch, which has nothing to confirm.
            with suppress(BadCheckpoint, LedgerMismatch):
                Ledger.open(ledger).confirm(checkpoint=checkpoint)
    summary: dict[str, Any] = {"batches": writer.batches, **writer.counts}
    summary |= speed(writer.counts["rows"], clock.monotonic() - started, working)
    summary |= {
        "out": str(request.out),
        "duplicates_out": str(request.duplicates) if request.duplicates else None,
        "ledger": ledger,
    }
    show_summary(summary, as_json=as_json, title="oncebus dedup --follow (since this start)")


def _known_stream(request: DedupRequest, places: Outputs) -> tuple[Marker | None, list[Path]]:
    """Return the marker of the stream that wrote these folders, or None, and the folders to empty first."""
    found = places.find()
    main = found[0].marker
    given_format = request.format
    if given_format is None and main is not None and main.state == "follow":
        # Keep the format of the first start: files of another format may have arrived since, or all may be deleted.
        given_format = main.arguments["format"]
    format_name = given_format or find_sources(request.given, None).format
    arguments = request.arguments(format_name)
    known = decide_follow(found[0], arguments, overwrite=request.overwrite)
    unwanted = [found[0]] if known is None and not found[0].is_empty else []
    for other in found[1:]:
        is_same = known is not None and other.marker is not None and other.marker.token == known.token
        if not is_same and not other.is_empty:
            if not request.overwrite:
                raise OutputError(f"Output '{other.folder}' is not empty. Give a new folder or --overwrite.")
            unwanted.append(other)
    return known, [place.folder for place in unwanted]


def _new_stream(request: DedupRequest, spark: SparkSession, ledger: str) -> Marker:
    files = find_sources(request.given, request.format)
    schema = frames.read_schema(spark, files)
    messages = frames.read_batch(spark, files, schema, request)
    # A trial call without a ledger: it raises for bad arguments before anything is marked or deleted.
    frames.detect(messages, request)
    about = {"schema": schema.json(), "format": files.format, "partitions": files.partitions}
    return Marker("follow", uuid.uuid4().hex, "", request.arguments(files.format), ledger, None, about)


def _wait(query: StreamingQuery, stop: threading.Event) -> None:
    while query.isActive and not stop.wait(_POLL_SECONDS):
        pass


def _end(query: StreamingQuery, stop: threading.Event) -> None:
    """Stop the query after its current batch. If that takes too long, or at a second signal, abandon the batch.

    The next start repeats an abandoned batch.
    """
    failed = query.exception() if not query.isActive else None
    if failed is not None:
        raise failed
    stop.clear()
    patient_until = clock.monotonic() + _PATIENCE_SECONDS
    while query.isActive and query.status["isTriggerActive"] and clock.monotonic() < patient_until:
        if stop.wait(_POLL_SECONDS):
            break
    query.stop()


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set. After the block, their previous handlers are restored."""
    stop = threading.Event()

    def request_stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        stop.set()

    before = {number: signal.signal(number, request_stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
