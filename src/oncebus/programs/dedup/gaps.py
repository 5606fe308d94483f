"""`oncebus dedup --gaps`: reads how far apart the rows of a key are. Writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from oncebus.detection.gaps import Gaps
from oncebus.programs.dedup import frames
from oncebus.programs.dedup.progress import display
from oncebus.programs.dedup.request import DedupRequest
from oncebus.programs.dedup.session import spark_session
from oncebus.programs.dedup.sources import find_sources
from oncebus.spark import repeat_gaps


def run_gaps(
    given: Sequence[str],
    key: Sequence[str],
    time: str,
    format_name: str | None,
    master: str | None,
) -> Gaps:
    """Read the files, and return the gaps between their repeats."""
    files = find_sources(given, format_name)
    # A run without a window and an output: the files are read as a run would read them.
    request = DedupRequest(
        tuple(given), tuple(key), time, "1 second", Path(), None, None, None, None, format_name, master, overwrite=False
    )
    with display() as shown, spark_session(master) as spark:
        shown.count_from_here()
        shown.phase("reading the schema")
        messages = frames.read_batch(spark, files, frames.read_schema(spark, files), request)
        shown.phase("measuring gaps")
        with shown.watching(spark):
            return repeat_gaps(messages, key=request.key, time=time)
