"""What the store holds of each entity."""

from __future__ import annotations

from collections.abc import Sequence

from oncebus.engine.store.records import Counts
from oncebus.engine.store.sampler import Sampler
from oncebus.engine.store.sql.tables import Tables


class StoredEntities:
    """The counts of entities, and their deletion."""

    def __init__(self, tables: Tables, sampler: Sampler) -> None:
        self._tables = tables
        self._sampler = sampler

    def counts(self, entity: int) -> Counts:
        """Return the counts of an entity, or of `NAMESPACE`: its messages now, and its totals since it was created."""
        return self._tables.counters.of(entity)

    def size(self, entity: int) -> int:
        """Return how many bytes an entity holds, without reading its messages."""
        return self._tables.counters.size(entity)

    def oldest_waiting(self, entity: int) -> int | None:
        """Return when the oldest message that waits for a receiver was enqueued; None if none waits.

        A message that is locked, or whose session is locked, does not wait.
        """
        tables = self._tables
        if not tables.counters.of(entity).active:
            return None
        first = tables.messages.first_ready(entity, "")
        if first is None and (free := tables.sessions.next_free(entity)) is not None:
            # Nearly always exact: the recorded head of a session may be behind for a moment.
            first = tables.messages.first_ready(entity, free.key)
        return None if first is None else first.enqueued

    def delete(self, entities: Sequence[int], appended: int) -> None:
        """Delete entities and everything they hold.

        No row with an origin in them may come after the commit `appended`.
        """
        tables = self._tables.for_change()
        for entity in entities:
            for sequence, body_file in tables.messages.remove_all(entity):
                tables.origins.end(entity, sequence, appended, body_file)
            tables.sessions.delete_all(entity)
            tables.progress.delete_all(entity)
            tables.duplicates.delete_all(entity)
            tables.forgets.delete_all(entity)
            tables.quarantine.delete_all(entity)
            tables.origins.end_all(entity, appended)
        tables.counters.delete(entities)
        self._sampler.forget(entities)
