"""Bringing times that lie in the future back to now: for a repair, never while a query writes the ledger."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np

from oncebus.ledger.names import parse_run_names
from oncebus.ledger.run import Run, encode_run
from oncebus.ledger.storage import storage_at


def bring_back(location: str | os.PathLike[str], now: int) -> int:
    """Let no entry and no horizon be later than `now`; how many entries were moved there.

    So an id that was accepted at a later time is remembered for its window from `now` on. Runs are immutable: each is
    replaced by one of another name, published before the old one is deleted. Killed at any instant, this can be called
    again with the same `now`, or an earlier one. Raises `CorruptRun`.
    """
    storage = storage_at(location)
    moved = 0
    # A run's horizon is the greatest time among its rows: those that do not reach beyond now need not be read.
    for name in [name for name in parse_run_names(storage.names()) if name.horizon > now]:
        run = Run(f"{location}/{name}", storage.read(str(name)))
        run.verify()
        entries = run.entries()
        moved += int(np.count_nonzero(entries.time > now))
        brought = replace(entries, time=np.minimum(entries.time, now))
        storage.publish(replace(name, horizon=now).file_name(), encode_run(brought, now))
        storage.delete([str(name)])
    return moved
