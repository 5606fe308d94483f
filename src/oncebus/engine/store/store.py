"""The delivery store: the messages that receivers see."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from oncebus.engine.store.duplicates import Duplicates
from oncebus.engine.store.forgets import Forgets
from oncebus.engine.store.ingest import Ingest
from oncebus.engine.store.looking import Looking
from oncebus.engine.store.quarantine import Quarantine
from oncebus.engine.store.receiving import Receiving
from oncebus.engine.store.requeueing import Requeueing
from oncebus.engine.store.samples import Samples, Span
from oncebus.engine.store.sessions import Sessions
from oncebus.engine.store.settling import Settling
from oncebus.engine.store.sweeping import Sweeping
from oncebus.engine.store.transactions import Transactions
from oncebus.engine.store.unsettled import discard, discard_all
from oncebus.engine.store.values import Counts, SubQueue
from oncebus.model.entities.session_ids import session_key


class Store(
    Ingest,
    Receiving,
    Settling,
    Sessions,
    Sweeping,
    Requeueing,
    Transactions,
    Duplicates,
    Forgets,
    Quarantine,
    Looking,
):
    """All operations of the store. See `StoreBase` for the contract and each base class for its methods."""

    def counts(self, entity: int) -> Counts:
        """Return the counts of an entity, or of `NAMESPACE`: its messages now, and its totals since it was created."""
        return self._tables.counters.of(entity)

    def begin_samples(self, now: int) -> None:
        """Begin to take samples of the counters. Without this, nothing is sampled."""
        self._change()
        self._sampler.begin(now)

    def take_sample(self, now: int) -> None:
        """Sample the counters that have changed. Call it soon after each slot of the shortest span has ended."""
        self._change()
        self._sampler.take(now)

    def end_samples(self, now: int) -> None:
        """Take the last sample before the store is closed."""
        self._change()
        self._sampler.end(now)

    def samples(self, entity: int, span: Span, now: int, since: int = 0) -> Samples:
        """Return what changed in each slot of a span, for an entity that exists since a time, or for `NAMESPACE`."""
        self._change()
        return self._sampler.samples(entity, span, now, since)

    def size_of(self, entity: int) -> int:
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

    def delete_entities(self, entities: Sequence[int], appended: int) -> None:
        """Delete entities and everything they hold.

        No row with an origin in them may come after the commit `appended`.
        """
        tables = self._change()
        for entity in entities:
            for sequence, body_file in tables.messages.remove_all(entity):
                tables.records.end_origin(entity, sequence, appended, body_file)
            tables.sessions.delete_all(entity)
            tables.records.delete_entity(entity)
            tables.records.end_origins_of(entity, appended)
        tables.counters.delete(entities)
        self._sampler.forget(entities)

    def batch_delete(
        self,
        entity: int,
        enqueued_before: int,
        count: int,
        sub_queue: SubQueue = SubQueue.MAIN,
        session: str | None = None,
    ) -> int:
        """Delete the oldest active messages that nobody has locked, of all sessions or of one.

        Return how many were deleted.
        """
        tables = self._change()
        key = None if session is None else session_key(session)
        copies = tables.messages.oldest(entity, sub_queue, enqueued_before, count, key)
        for copy in copies:
            discard(tables, copy)
        return len(copies)

    def purge(
        self, entity: int, enqueued_before: int, count: int, sub_queue: SubQueue, after: int, most_read: int
    ) -> tuple[int, int | None]:
        """Delete up to `count` active messages that nobody has locked, with numbers above `after`.

        Reads at most `most_read` messages. Return how many were deleted, and the `after` for the next call; None if
        there are no more.
        """
        tables = self._change()
        copies, following = tables.messages.unlocked(entity, sub_queue, after, enqueued_before, count, most_read)
        discard_all(tables, copies)
        return len(copies), following

    def unknown_body_files(self, names: Iterable[str]) -> list[str]:
        """Return those names that no ingested row ever referred to."""
        return self._tables.body_files.unknown(names)

    def needed_body_files(self) -> list[str]:
        """Return the names of body files that messages need."""
        return self._tables.body_files.needed()

    def unused_body_files(self, limit: int = 1000) -> list[str]:
        """Return names of body files that no message needs any more."""
        return self._tables.body_files.unused(limit)

    def forget_body_files(self, names: Sequence[str]) -> None:
        """Forget body files that have been deleted."""
        self._change().body_files.forget(names)
