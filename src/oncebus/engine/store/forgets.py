"""The record of forgets: the newest ones of each entity."""

from __future__ import annotations

from collections.abc import Sequence

from oncebus.engine.store.records import Forget
from oncebus.engine.store.sql.tables import Tables
from oncebus.model.messages import Result

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


def add_forgets(tables: Tables, forgets: Sequence[Result]) -> None:
    """Record the forgets of an outbox entry. Delete older ones above the limit."""
    tables.forgets.add(
        (
            row.entity,
            row.message_id,
            row.session,
            row.partition_key,
            row.time,
            row.sequence,
            original_sequence,
            original_time,
        )
        for row, *_, original_sequence, original_time in forgets
    )
    for entity in {row.entity for row, *_ in forgets}:
        tables.forgets.keep_newest(entity, FORGETS_KEPT)
