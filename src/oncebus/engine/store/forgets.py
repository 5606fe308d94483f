"""The record of forgets: the newest ones of each entity."""

from __future__ import annotations

import pyarrow as pa

from oncebus.engine.store.copies import values
from oncebus.engine.store.records import Forget
from oncebus.engine.store.sql.tables import Tables

FORGETS_KEPT = 1000
"""The number of forgets that the record keeps for each entity."""


class Forgets:
    """The record of forgets."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def page(self, entity: int, limit: int = 100, after: int = 0) -> list[Forget]:
        """Return forgets of an entity, oldest first. `after` is the last `number` on the previous page."""
        return self._tables.forgets.page(entity, limit, after)

    def at(self, entity: int, sequence: int) -> Forget | None:
        """Return the forget that took this sequence number; None if the record does not have it."""
        return self._tables.forgets.at(entity, sequence)

    def newest(self, entity: int, limit: int = 100) -> list[Forget]:
        """Return the newest forgets of an entity, newest first."""
        return self._tables.forgets.newest(entity, limit)


def add_forgets(tables: Tables, rows: pa.Table) -> None:
    """Record the forgets of an outbox entry. Delete older ones above the limit."""
    tables.forgets.add(zip(*(values(rows, name) for name in Forget._fields[1:]), strict=True))
    for entity in set(values(rows, "entity")):
        tables.forgets.keep_newest(entity, FORGETS_KEPT)
