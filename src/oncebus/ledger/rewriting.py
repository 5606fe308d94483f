"""Moves times in the future back to now. Only for a repair; never call it while a query writes to the ledger."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np

from oncebus.ledger.names import parse_run_names
from oncebus.ledger.run import Run, encode_run
from oncebus.ledger.storage import storage_at


def bring_back(location: str | os.PathLike[str], now: int) -> int:
    """Limit the times of all entries and all horizons to `now`. Return how many entries were changed.

    An id that was accepted at a later time is then remembered for one window from `now`. Runs are immutable, so each
    one is replaced by a run with another name, which is published before the old one is deleted. If this is killed,
    call it again with the same `now` or an earlier one. Raises `CorruptRun`.
    """
    storage = storage_at(location)
    moved = 0
    # The horizon of a run is the greatest time among its rows, so runs with an earlier horizon need no change.
    for name in [name for name in parse_run_names(storage.names()) if name.horizon > now]:
        run = Run(f"{location}/{name}", storage.read(str(name)))
        run.verify()
        entries = run.entries()
        moved += int(np.count_nonzero(entries.time > now))
        limited = replace(entries, time=np.minimum(entries.time, now))
        storage.publish(replace(name, horizon=now).file_name(), encode_run(limited, now))
        storage.delete([str(name)])
    return moved
