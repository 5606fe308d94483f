"""The record of dropped duplicates: the most recent ones of each entity, up to a number and an age."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from oncebus.store.entry import groups, integers, values
from oncebus.store.sql.tables import Tables

KEPT = 100_000
AGE = 7 * 24 * 3600 * 1_000_000

_STEP = 1000


def add_drops(tables: Tables, rows: pa.Table, now: int, kept: int, age: int) -> None:
    """Record these duplicates, which the counters hold already, and forget what is too old or too much."""
    entity = integers(rows, "entity")
    order, starts, lengths = groups(entity)
    entities = entity[order[starts]].tolist()
    newest = [tables.counters.of(each).duplicates for each in entities]
    number = np.empty(len(entity), np.int64)
    rank = np.arange(len(order)) - np.repeat(starts, lengths)
    number[order] = np.repeat(np.array(newest) - lengths, lengths) + 1 + rank
    names = ("message_id", "time", "sequence", "original_sequence", "original_time")
    columns = [values(rows, name) for name in names]
    tables.records.add_drops(zip(entity.tolist(), number.tolist(), *columns, strict=True))
    for each, last in zip(entities, newest, strict=True):
        tables.records.forget_drops(each, last - kept)
        forget_old(tables, each, now - age)


def forget_old(tables: Tables, entity: int, before: int) -> int:
    """Forget an entity's drops from before a time. Answers how many."""
    forgotten = 0
    while oldest := tables.records.oldest_drops(entity, 1 if not forgotten else _STEP):
        old = [number for number, time in oldest if time < before]
        if not old:
            break
        tables.records.forget_drops(entity, old[-1])
        forgotten += len(old)
    return forgotten
