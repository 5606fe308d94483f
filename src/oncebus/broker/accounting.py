"""Accounting: the bytes and the work of each entity that are under way, and how much room they leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from oncebus.broker.acceptor import Appending, Charge
from oncebus.broker.backlog import Backlog, spread
from oncebus.broker.catalogues import Catalogues
from oncebus.broker.clock import Clock
from oncebus.broker.errors import ServerBusy
from oncebus.broker.latencies import Latencies
from oncebus.broker.shares import Shares, work_of
from oncebus.broker.store_thread import StoreThread
from oncebus.broker.unread import inline_bytes, left_in
from oncebus.broker.waiting import Progress
from oncebus.engine.engine import Log
from oncebus.engine.inbox import Row
from oncebus.model.entities import Entity, Subscription, Topic
from oncebus.model.entities.weights import weight
from oncebus.model.messages import NOBODY


class Accounting:
    """Counts rows from their append until the store has ingested them, towards limits, quotas and shares.

    `most_bytes` is the limit of the pipeline, `sizes` has the bytes of each entity in the store.
    """

    def __init__(
        self,
        catalogues: Catalogues,
        shares: Shares,
        clock: Clock,
        progress: Progress,
        latencies: Latencies,
        most_bytes: int,
        sizes: dict[int, int],
    ) -> None:
        self.shares = shares
        self._catalogues = catalogues
        self._clock = clock
        self._progress = progress
        self._latencies = latencies
        self._most_bytes = most_bytes
        self._sizes = sizes
        self._backlog = Backlog()
        # The bytes on disk of each entity in the pipeline besides its messages. They count towards no quota.
        self._overhead = Backlog()
        self._last_sent: dict[int, int] = {}

    # Into the pipeline

    def work_of(self, entity: int, messages: int, size: int) -> int:
        """Return the work of an entity's messages with a total of `size` bytes. See `oncebus.broker.shares`."""
        return work_of(messages, size, self._catalogues.cost_of(entity))

    def charge(self, rows: Sequence[Row]) -> list[Charge]:
        """Return what rows cost each of their entities."""
        sizes: dict[int, list[int]] = {}
        for row in rows:
            sizes.setdefault(row["entity"], []).append(row["size"])
        return [
            Charge(entity, len(some), sum(some), self.work_of(entity, len(some), sum(some)))
            for entity, some in sizes.items()
        ]

    def weigh(self, charges: Sequence[Charge]) -> int:
        """Return how much of a commit rows take up. See `Acceptor.append`."""
        return sum([weight(each.rows, each.size, self._catalogues.cost_of(each.entity)) for each in charges])

    def add(self, charges: Sequence[Charge]) -> None:
        """Count rows that are being appended."""
        for charge in charges:
            self._backlog.add(charge.entity, charge.size)
            self.shares.add(charge.entity, charge.work)

    def remove(self, charges: Sequence[Charge]) -> None:
        """Subtract rows that were refused."""
        for charge in charges:
            self._backlog.remove({charge.entity: charge.size})
            self.shares.remove(charge.entity, charge.work)

    def commit(self, commit: int, group: Sequence[Appending], length: int) -> None:
        """Record that rows which were added before are durable now, in a commit of `length` bytes."""
        sizes: Counter[int] = Counter()
        rows: Counter[int] = Counter()
        charges = [charge for each in group for charge in each.charges]
        for charge in charges:
            sizes[charge.entity] += charge.size
            rows[charge.entity] += charge.rows
            if charge.entity in self._catalogues.policies:
                self._last_sent[charge.entity] = commit
        now = self._clock.passed()
        self._backlog.commit(commit, sizes.items(), now)
        if rows.keys() != {NOBODY}:
            inline = sum([inline_bytes(each.rows) for each in group])
            self._overhead.add_commit(commit, spread(length - inline, rows), now)
        self.shares.commit(commit, [(charge.entity, charge.work) for charge in charges], now)
        # The commit may have come out already: the pipeline does not wait for this call.
        self.take(self._progress.position)

    def note_left(self, inbox: Log) -> set[str]:
        """Count the rows that an earlier broker left in the pipeline. Return the body files that they name."""
        now, passed = self._clock.now(), self._clock.passed()
        body_files: set[str] = set()
        reader = inbox.reader()
        for left in left_in(inbox.reader().read(self._progress.position + 1, self._progress.left_behind)):
            if left.time is None:
                # Only pulses: nobody waits for them.
                continue
            since = passed - max(now - left.time, 0)
            self._backlog.add_commit(left.commit, left.sizes, since)
            self._overhead.add_commit(left.commit, spread(reader.length(left.commit) - left.inline, left.rows), since)
            for entity, size in left.sizes:
                self.shares.add(entity, size)
            self.shares.commit(left.commit, left.sizes, since)
            body_files.update(left.body_files)
        return body_files

    # Out of the pipeline

    def take(self, commit: int, since_judged: int = 0) -> int:
        """Remove everything up to a commit, because the store has ingested it.

        Its verdicts are `since_judged` microseconds old. Return how long the oldest of these commits was on its way.
        """
        now = self._clock.passed()
        waits = [now - since for since in self._backlog.take(commit)]
        self._latencies.batch.observe_all(waits)
        self._latencies.judge.observe_all(max(wait - since_judged, 0) for wait in waits)
        self._latencies.ingest.observe_all(min(wait, since_judged) for wait in waits)
        self._overhead.take(commit)
        self.shares.take(commit)
        return max(waits, default=0)

    def note_sizes(self, sizes: Mapping[int, int]) -> None:
        """Record the sizes of entities in the store."""
        self._sizes |= sizes

    async def refresh_sizes(self, store: StoreThread) -> None:
        """Read the sizes of all entities from the store."""
        entities = list(self._catalogues.policies)
        self._sizes = await store.run(lambda store: {entity: store.entities.size(entity) for entity in entities})

    def forget(self, entities: Iterable[int]) -> None:
        """Forget entities that were deleted."""
        for entity in entities:
            self._last_sent.pop(entity, None)

    # What is under way

    def last_sent(self, entity: Entity) -> int:
        """Return the commit of the last message that was accepted for an entity or, for a subscription, its topic."""
        sent_to = entity.topic_id if isinstance(entity, Subscription) else entity.id
        return self._last_sent.get(sent_to, self._progress.left_behind)

    @property
    def oldest_wait(self) -> int:
        """Return how long the oldest commit has waited, in microseconds, across restarts; 0 if none is waiting."""
        oldest = self._backlog.oldest
        return 0 if oldest is None else max(self._clock.passed() - oldest, 0)

    def in_pipeline(self, entity: int) -> int:
        """Return how many bytes of an entity are accepted and not in the store yet."""
        return self._backlog.of(entity)

    def on_disk(self, entity: int) -> int:
        """Return how many bytes on disk an entity's messages in the pipeline take."""
        return self._backlog.of(entity) + self._overhead.of(entity)

    @property
    def in_inbox(self) -> int:
        """Return how many bytes on disk all messages in the pipeline take."""
        return self._backlog.total + self._overhead.total

    def held(self, entity: Entity) -> int:
        """Return how many bytes count towards an entity's quota, in the pipeline and (a moment ago) in the store."""
        held = self.in_pipeline(entity.id) + self._sizes.get(entity.id, 0)
        if isinstance(entity, Topic):
            held += sum(self._sizes.get(each.id, 0) for each in self._catalogues.current.subscriptions_of(entity))
        return held

    @property
    def has_room(self) -> bool:
        """Return whether the pipeline is below its limit."""
        return self.in_inbox < self._most_bytes

    def check_room(self, entity: Entity, size: int) -> None:
        """Raise `ServerBusy` if `size` more bytes would exceed the limit of the pipeline or the share of the entity.

        An entity may use at most half of the part of the limit that other entities do not use.
        """
        held, of_entity = self.in_inbox, self.on_disk(entity.id)
        if held + size <= self._most_bytes < held + size + of_entity:
            raise ServerBusy(
                f"The server is busy: {of_entity} bytes of '{entity.path}' are waiting for the "
                f"pipeline, and its share of {self._most_bytes} is used up. Please retry the operation later."
            )
        if held + size > self._most_bytes:
            raise ServerBusy(
                f"The server is busy: {held} bytes are waiting for the pipeline, {self._most_bytes} is the limit. "
                "Please retry the operation later."
            )
