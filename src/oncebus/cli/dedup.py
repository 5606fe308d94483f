"""`oncebus dedup`: the rows of files, each id once, and beside them what was dropped and why."""

from __future__ import annotations

import json
import signal
import time as clock
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from oncebus.cli import sources
from oncebus.cli.durations import duration_in
from oncebus.cli.errors import RequestError
from oncebus.cli.outputs import Marker, Outputs, decide, fingerprint
from oncebus.cli.progress import Display, display, show_summary, speed
from oncebus.cli.session import spark_session
from oncebus.cli.sources import FORMATS, Sources, local_path, quoted
from oncebus.durations import NotADuration, checked_duration
from oncebus.entities import iso_timespan
from oncebus.errors import OncebusError
from oncebus.ledger import Generation, Ledger, LedgerBatch
from oncebus.spark import detect_duplicates
from oncebus.spark.columns import IS_DUPLICATE

_EXAMPLE = "oncebus dedup orders.jsonl --key id --time at --window '10 minutes' --out unique --duplicates dropped"

_PART_BYTES = 128 << 20
_PACKED_RATIO = 4
_MOST_PARTS = 256


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asks for, checked as far as it can be without Spark."""

    given: tuple[str, ...]
    key: tuple[str, ...]
    time: str
    window: str
    out: Path
    duplicates: Path | None
    ledger: str | None
    sequence: str | None
    lateness: str | None
    format: str | None
    master: str | None
    overwrite: bool

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where rows are written: the accepted, then, if they are wanted, the duplicates."""
        return (self.out,) if self.duplicates is None else (self.out, self.duplicates)

    def window_among(self, columns: Sequence[str]) -> str:
        """The window as Spark takes it: a column, where there is one of that name, else a duration."""
        if self.window in columns:
            return self.window
        try:
            length = duration_in(self.window, "window")
        except NotADuration:
            # It may have been meant for a column: the answer to that names them all.
            return self.window
        return iso_timespan(checked_duration(length, self.window, "window"))

    def arguments(self, format_name: str) -> dict[str, Any]:
        """What decides the result, by the names of the options."""
        return {
            "key": list(self.key),
            "time": self.time,
            "window": self.window,
            "sequence": self.sequence,
            "lateness": self.lateness,
            "format": format_name,
            "source": [str(local_path(text, "Source")) for text in self.given],
            "duplicates": str(self.duplicates) if self.duplicates else None,
            "ledger": self.ledger,
        }


@click.command(short_help="Write each message once, and what was dropped beside it.", epilog=f"Example: {_EXAMPLE}")
@click.argument("src", nargs=-1, required=True, metavar="SRC…")
@click.option("--key", "key", multiple=True, required=True, metavar="COL", help="Column that makes the id; repeatable.")
@click.option("--time", "time", required=True, metavar="COL", help="Timestamp column; text is read as one.")
@click.option(
    "--window", required=True, metavar="TEXT", help="10m, PT10M, '10 minutes', or a column that holds the window."
)
@click.option("--out", required=True, metavar="DIR", help="Folder for the accepted rows.")
@click.option("--duplicates", metavar="DIR", help="Folder for the duplicates, with the time of their original.")
@click.option("--ledger", metavar="DIR", help="Folder that remembers ids from run to run.")
@click.option("--sequence", metavar="COL", help="Whole-number column that breaks ties in time.")
@click.option("--lateness", metavar="TEXT", help="How much longer than the window to remember an id.")
@click.option(
    "--format", "format_name", type=click.Choice(FORMATS), help="Format of SRC; else guessed from file names."
)
@click.option("--master", metavar="URL", help="Spark master; local[*] unless given.")
@click.option("--follow", is_flag=True, help="Go on with files as they come, until Ctrl-C.")
@click.option("--overwrite", is_flag=True, help="Replace what another run left in the output folders.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object.")
def dedup(
    src: tuple[str, ...],
    key: tuple[str, ...],
    time: str,
    window: str,
    out: str,
    duplicates: str | None,
    ledger: str | None,
    sequence: str | None,
    lateness: str | None,
    format_name: str | None,
    master: str | None,
    follow: bool,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Copy the rows of SRC (files or folders of Parquet, JSON lines or CSV) without duplicates.

    A row is a duplicate if one with its key was accepted less than one window away in time. A row in which a key column
    is null never is. A run that failed or was killed can simply be run again; one that has finished is not done twice.
    """
    request = Request(
        src,
        key,
        time,
        window,
        local_path(out, "Output"),
        local_path(duplicates, "Output") if duplicates is not None else None,
        Ledger.open(ledger).location if ledger is not None else None,
        sequence,
        _lateness(lateness) if lateness is not None else None,
        format_name,
        master,
        overwrite,
    )
    check_places(request, tuple(local_path(text, "Source") for text in request.given))
    signal.signal(signal.SIGTERM, _interrupt)
    if follow:
        # Imported late: it brings in the streaming half, which a batch does not need.
        from oncebus.cli.follow import run_follow

        run_follow(request, as_json=as_json)
        return
    started = clock.monotonic()
    files = sources.find_sources(request.given, request.format)
    with Outputs(request.folders) as places:
        finished, is_new = _run(request, files, places, started)
    show_summary(
        finished.summary | {"finished_before": not is_new},
        as_json=as_json,
        title="oncebus dedup" if is_new else "oncebus dedup (had finished before)",
    )


def _run(request: Request, files: Sources, places: Outputs, started: float) -> tuple[Marker, bool]:
    """The marker of the finished run, and whether it was this one that did it."""
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
            batch = Ledger.open(request.ledger).batch() if request.ledger is not None else None
            counts = _write_both(request, files, places, batch, spark, shown)
            _refuse_changes(files)
        rows = counts["rows"]
        summary = counts | speed(rows, clock.monotonic() - started) | _places(request)
        # Without rows there is nothing to commit, and so nothing by which a commit could be told.
        generation = _as_dict(batch.generation) if batch is not None and rows else None
        written = places.publish(summary, generation)
    except BaseException:
        places.roll_back()
        if batch is not None:
            batch.discard()
        raise
    if batch is not None and rows:
        _commit(batch, places)
    return written, True


def _write_both(
    request: Request,
    files: Sources,
    places: Outputs,
    batch: LedgerBatch | None,
    spark: SparkSession,
    shown: Display,
) -> dict[str, int]:
    shown.phase("reading the schema")
    schema = sources.read_schema(spark, files, as_text=(*request.key, request.time))
    messages = sources.with_timestamps(sources.read_batch(spark, files, schema), request.time)
    checked = detect_duplicates(
        messages,
        key=request.key,
        time=request.time,
        window=request.window_among(messages.columns),
        ledger=batch,
        sequence=request.sequence,
        lateness=request.lateness,
        parts=_parts(spark, files),
    ).persist(StorageLevel.MEMORY_AND_DISK)
    shown.count_from_here()
    shown.phase("detecting")
    with shown.watching(spark):
        counts = count_verdicts(checked, request.key)
    shown.rows(counts["rows"])
    shown.duplicates(counts["duplicates"])
    shown.phase("writing")
    for folder, rows in zip(places.folders, both_sides(checked, messages.columns), strict=False):
        sources.write(rows, files.format, places.staging(folder))
    return counts


def _parts(spark: SparkSession, files: Sources) -> int:
    """As many parts as there are cores, or more where a part would be large: a Python worker holds it as a whole."""
    unpacked = sum(file.size for file in files.files) * (_PACKED_RATIO if files.is_packed else 1)
    return min(max(spark.sparkContext.defaultParallelism, unpacked // _PART_BYTES + 1), _MOST_PARTS)


def both_sides(checked: DataFrame, columns: list[str]) -> tuple[DataFrame, DataFrame]:
    """The accepted rows as they came, and the duplicates with their originals."""
    accepted = checked.where(~F.col(IS_DUPLICATE)).select(*[quoted(name) for name in columns])
    return accepted, checked.where(IS_DUPLICATE).drop(IS_DUPLICATE)


def count_verdicts(checked: DataFrame, key: tuple[str, ...]) -> dict[str, int]:
    """How many rows there are, of each kind. Evaluates the DataFrame, and with that fills its cache."""
    without_key = F.lit(False)
    for name in key:
        without_key = without_key | F.col(quoted(name)).isNull()
    counted = checked.agg(
        F.count("*").alias("rows"),
        F.count_if(IS_DUPLICATE).alias("duplicates"),
        F.count_if(without_key).alias("without"),
    ).first()
    if counted is None:
        raise RuntimeError("an aggregate without groups has one row")
    rows, duplicates, without = counted
    return {"rows": rows, "accepted": rows - duplicates, "duplicates": duplicates, "without_key": without}


def check_places(request: Request, given: tuple[Path, ...]) -> None:
    """Refuse folders of which one would be read or deleted as part of another."""
    named = [*(("Source", path) for path in given), *(("Output", path) for path in request.folders)]
    if request.ledger is not None and Path(request.ledger).is_absolute():
        named.append(("Ledger", Path(request.ledger)))
    for at, (what, path) in enumerate(named):
        for other_what, other in named[:at]:
            if what == other_what == "Source":
                continue
            inner, outer = path.resolve(), other.resolve()
            if inner.is_relative_to(outer) or outer.is_relative_to(inner):
                raise RequestError(f"{what} '{path}' and {other_what.lower()} '{other}' must not be in one another.")


def _lateness(text: str) -> str:
    return iso_timespan(checked_duration(duration_in(text, "lateness"), text, "lateness", least=0))


def _commit(batch: LedgerBatch, places: Outputs) -> None:
    """The last step. What is written stays only if it counts, or if that cannot be told now: the next run will know."""
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
        raise RequestError(
            f"Ledger '{marker.ledger}', which tells whether an earlier run had finished, is not there. Bring it back, "
            "or give new folders for the output and the ledger."
        )
    return ledger.is_committed(Generation.from_json(_to_json(marker.generation)))


def _refuse_changes(files: Sources) -> None:
    changed = next((file.path for file in files.files if file.has_changed()), None)
    if changed is not None:
        raise RequestError(f"Source '{changed}' changed while it was read. Run again when it is complete.")


def _places(request: Request) -> dict[str, str | None]:
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


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise KeyboardInterrupt
