"""A run over the existing files.

It is atomic: either all its rows are written and its keys remembered, or nothing is.
"""

from __future__ import annotations

import json
import time as clock
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pyspark.sql import SparkSession
from pyspark.storagelevel import StorageLevel

from oncebus.ledger import Generation, Ledger, LedgerBatch, LedgerMismatch
from oncebus.programs.dedup import DedupError, frames
from oncebus.programs.dedup.outputs import Marker, Outputs, decide, fingerprint
from oncebus.programs.dedup.progress import Display, display, show_summary, speed
from oncebus.programs.dedup.request import DedupRequest
from oncebus.programs.dedup.session import spark_session
from oncebus.programs.dedup.sources import Sources, find_sources
from oncebus.spark.places import MOST_PARTS
from oncebus.values.errors import OncebusError

_PART_BYTES = 128 << 20
_PACKED_RATIO = 4


def run_batch(request: DedupRequest, *, as_json: bool) -> None:
    """Deduplicate the request's files and print a summary. A run that has already finished is not repeated."""
    started = clock.monotonic()
    files = find_sources(request.given, request.format)
    with Outputs(request.folders) as places:
        finished, is_new = _run(request, files, places, started)
    show_summary(
        finished.summary | {"finished_before": not is_new},
        as_json=as_json,
        title="oncebus dedup" if is_new else "oncebus dedup (already finished)",
    )


def _run(request: DedupRequest, files: Sources, places: Outputs, started: float) -> tuple[Marker, bool]:
    """Return the marker of the finished run, and whether this run did the work."""
    arguments = request.arguments(files.format)
    wanted = fingerprint(arguments, [(file.path, file.size, file.modified_ns) for file in files.files])
    found = places.find()
    decision = decide(found[0], found[1] if found[1:] else None, wanted, _is_committed, overwrite=request.overwrite)
    if decision.finished is not None:
        return decision.finished, False
    places.start(decision, wanted, arguments, request.ledger)
    batch: LedgerBatch | None = None
    try:
        with display() as shown, spark_session(request.master) as spark:
            if request.ledger is not None:
                batch = Ledger.open(request.ledger).batch(take_over=request.take_over)
            shown.count_from_here()
            counts = _write_both(request, files, places, batch, spark, shown)
            _refuse_changes(files)
            working = shown.seconds
        rows = counts["rows"]
        summary = counts | speed(rows, clock.monotonic() - started, working) | _places(request)
        # Without rows there is nothing to commit, so the marker names no generation to look for in the ledger.
        generation = _as_dict(batch.generation) if batch is not None and rows else None
        written = places.publish(summary, generation)
    except BaseException:
        places.roll_back()
        if batch is not None:
            batch.discard()
        raise
    if batch is not None and rows:
        _commit(batch, places)
        # If this fails, the next run asks the ledger.
        with suppress(OSError):
            places.finish(written)
    return written, True


def _write_both(
    request: DedupRequest,
    files: Sources,
    places: Outputs,
    batch: LedgerBatch | None,
    spark: SparkSession,
    shown: Display,
) -> dict[str, int]:
    shown.phase("reading the schema")
    messages = frames.read_batch(spark, files, frames.read_schema(spark, files), request)
    checked = frames.detect(messages, request, batch, _parts(spark, files)).persist(StorageLevel.MEMORY_AND_DISK)
    shown.phase("detecting")
    with shown.watching(spark):
        counts = frames.count_verdicts(checked, request.key)
    shown.rows(counts["rows"])
    shown.duplicates(counts["duplicates"])
    shown.phase("writing")
    for folder, rows in zip(places.folders, frames.both_sides(checked, files.format), strict=False):
        frames.write(rows, files.format, places.staging(folder))
    return counts


def _parts(spark: SparkSession, files: Sources) -> int:
    """Return the number of parts: one per core, or more if the parts would be too large.

    A Python worker holds a whole part in memory.
    """
    unpacked = sum(file.size for file in files.files) * (_PACKED_RATIO if files.is_packed else 1)
    return min(max(spark.sparkContext.defaultParallelism, unpacked // _PART_BYTES + 1), MOST_PARTS)


def _commit(batch: LedgerBatch, places: Outputs) -> None:
    """Commit the keys to the ledger, the last step of a run. If the commit definitely failed, delete the output.

    If it is unknown whether the commit happened, the output stays, and the next run finds out.
    """
    try:
        batch.commit()
    except OncebusError:
        if not batch.ledger.is_committed(batch.generation):
            places.roll_back()
            raise


def _is_committed(marker: Marker) -> bool:
    if marker.ledger is None or marker.generation is None:
        return True
    ledger = Ledger.open(marker.ledger)
    if not ledger.exists():
        raise DedupError(
            f"Ledger '{marker.ledger}' does not exist, but only it can tell whether an earlier run finished. Restore "
            "it, or give new folders for the output and the ledger."
        )
    try:
        return ledger.is_committed(Generation.from_json(_to_json(marker.generation)))
    except LedgerMismatch as error:
        raise DedupError(
            f"{error} The rows in the output are complete. To write them again, give new folders for the output and "
            "the ledger."
        ) from error


def _refuse_changes(files: Sources) -> None:
    changed = next((file.path for file in files.files if file.has_changed()), None)
    if changed is not None:
        raise DedupError(f"Source '{changed}' changed while it was being read. Run again when it is complete.")


def _places(request: DedupRequest) -> dict[str, str | None]:
    return {
        "out": str(request.out),
        "duplicates_out": str(request.duplicates) if request.duplicates else None,
        "ledger": request.ledger,
    }


def _as_dict(generation: Generation) -> Mapping[str, Any]:
    fields: dict[str, Any] = json.loads(generation.to_json())
    return fields


def _to_json(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields).encode()
