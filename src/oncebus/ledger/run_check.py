"""Checks the content of a run, beyond its checksum: everything that its readers rely on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from oncebus.detection import NO_HORIZON
from oncebus.ledger.filter import add_to_filter, filter_words
from oncebus.ledger.names import RunName
from oncebus.ledger.run import CorruptRun, Entries, Run
from oncebus.ledger.run_header import ADVICE


def problems_of(name: RunName, data: memoryview) -> list[str]:
    """Return what is wrong with a run, given its whole file; nothing if it is intact.

    Needs little more memory than the file itself.
    """
    try:
        run = Run(str(name), data)
        run.verify()
    except CorruptRun as error:
        return [str(error).removeprefix(f"Ledger run '{name}' ").removesuffix(ADVICE)]
    return [*_problems_of_header(name, run), *_problems_of_entries(run)]


def _problems_of_header(name: RunName, run: Run) -> Iterator[str]:
    if run.size != name.size:
        yield f"has {run.size} entries, but {name.size} in its name."
    if run.horizon != name.horizon:
        yield f"has the horizon {run.horizon}, but {name.horizon} in its name."
    spans = run.entries().spans
    ordered = np.lexsort((spans[:, 1], spans[:, 0]))
    if not np.array_equal(ordered, np.arange(len(spans))) or len(np.unique(spans, axis=0)) != len(spans):
        yield "has spans that are not ascending."


def _problems_of_entries(run: Run) -> Iterator[str]:
    entries = run.entries()
    if len(entries) and not _have_spans(entries):
        yield "has entries without a span."
        return
    if not _is_sorted(entries):
        yield "is not sorted, so keys in it may not be found."
        return
    words = np.zeros(filter_words(len(entries)), np.uint64)
    for some in entries.blocks():
        add_to_filter(words, some.high, some.low)
    if not np.array_equal(words, run.filter):
        yield "has a filter that does not belong to its keys, so keys in it may not be found."
    if not _is_forgotten_in_time(run):
        yield "says wrongly when its entries are forgotten."


def _have_spans(entries: Entries) -> bool:
    spans = len(entries.spans)
    if entries.span_of is None:
        return spans == 1
    return all(int(some.span_of.max()) < spans for some in entries.blocks() if some.span_of is not None)


def _is_sorted(entries: Entries) -> bool:
    """Return whether the entries are in the order (high, low, time)."""
    before: Entries | None = None
    for some in entries.blocks():
        columns = [some.high, some.low, some.time]
        if before is not None:
            last = [before.high[-1:], before.low[-1:], before.time[-1:]]
            columns = [np.concatenate(pair) for pair in zip(last, columns, strict=True)]
        high, low, time = columns
        same = high[1:] == high[:-1]
        if (high[1:] < high[:-1]).any() or (same & (low[1:] < low[:-1])).any():
            return False
        if (same & (low[1:] == low[:-1]) & (time[1:] < time[:-1])).any():
            return False
        before = some
    return True


def _is_forgotten_in_time(run: Run) -> bool:
    """Return whether both horizons in the header are right, without sorting the entries."""
    header = run.header
    last, before, until = NO_HORIZON, 0, 0
    for some in run.entries().blocks():
        end = some.time + some.keep()
        last = max(last, int(end.max()))
        before += int(np.count_nonzero(end < header.mostly_forgotten_from))
        until += int(np.count_nonzero(end <= header.mostly_forgotten_from))
    # The last quarter of the entries, without the one that decides, may be forgotten later.
    place = run.size - 1 - run.size // 4
    is_mostly_right = run.size == 0 or before <= place < until
    return last == header.forgotten_from and is_mostly_right
