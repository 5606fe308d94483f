"""The delivery store: what receivers see."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from oncebus.store.duplicates import Duplicates
from oncebus.store.ingest import Ingest
from oncebus.store.quarantine import Quarantine
from oncebus.store.receiving import Receiving
from oncebus.store.requeueing import Requeueing
from oncebus.store.rules import discard
from oncebus.store.sessions import Sessions
from oncebus.store.settling import Settling
from oncebus.store.sql import times
from oncebus.store.sweeping import Sweeping
from oncebus.store.values import Counts, SubQueue


class Store(Ingest, Receiving, Settling, Sessions, Sweeping, Requeueing, Duplicates, Quarantine):
    """Everything that can be asked of the store. See `StoreBase` for its contract, and each part for its methods."""

    def counts(self, entity: int) -> Counts:
        """What an entity holds now and what was counted since it was made."""
        return self._tables.counters.of(entity)

    def size_of(self, entity: int) -> int:
        """The bytes that an entity holds, without looking at its messages."""
        return self._tables.counters.size(entity)

    def delete_entities(self, entities: Sequence[int], appended: int) -> None:
        """Forget entities and all they hold. No row with an origin in them may stand beyond the commit `appended`."""
        tables = self._change()
        for entity in entities:
            for sequence, body_file in tables.messages.remove_all(entity):
                tables.records.end_origin(entity, sequence, appended, body_file)
            tables.sessions.delete_all(entity)
            tables.records.delete_entity(entity)
            tables.records.end_origins_of(entity, appended)
        tables.counters.delete(entities)

    def batch_delete(self, entity: int, enqueued_before: int, count: int, sub_queue: SubQueue = SubQueue.MAIN) -> int:
        """Delete the oldest active messages that nobody holds. Answers how many."""
        tables = self._change()
        copies = tables.messages.oldest(entity, sub_queue, enqueued_before, count)
        for copy in copies:
            discard(tables, copy)
        return len(copies)

    def unknown_body_files(self, names: Iterable[str]) -> list[str]:
        """Those of these body files that no row which was taken ever named."""
        return self._tables.body_files.unknown(names)

    def needed_body_files(self) -> list[str]:
        """Names of body files that messages need."""
        return self._tables.body_files.needed()

    def unused_body_files(self, limit: int = 1000) -> list[str]:
        """Names of body files that no message needs any more."""
        return self._tables.body_files.unused(limit)

    def forget_body_files(self, names: Sequence[str]) -> None:
        """Their files are gone."""
        self._change().body_files.forget(names)

    def bring_back(self, now: int, longest_lock: int) -> int:
        """Let no time that the broker has written lie in the future; how many messages were enqueued later than now.

        They are enqueued now, and live for as long as they would have lived from then on. Locks end `longest_lock` from
        now at the latest. What senders ask for, the time that a message is scheduled for, stays.
        """
        self._connection.need_transaction()
        return times.bring_back(self._connection, now, longest_lock)
