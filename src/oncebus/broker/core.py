"""What the broker is made of, and what runs in it by itself: taking what the pipeline has judged, and the chores."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from oncebus.broker.acceptor import Acceptor
from oncebus.broker.chores import Chores
from oncebus.broker.clock import Clock
from oncebus.broker.errors import DataMismatch, ServerBusy
from oncebus.broker.idle import Accesses
from oncebus.broker.numbers import Numbers
from oncebus.broker.policies import policies_of
from oncebus.broker.transactions import Transactions
from oncebus.broker.waiting import Arrivals, Progress
from oncebus.entities import Catalogue, CatalogueFiles, Entity, Namespace, Subscription, Topic
from oncebus.errors import OncebusError
from oncebus.folders import Folders
from oncebus.inbox import Blobs, InboxReader, InboxWriter, Row
from oncebus.ledger.generations import REPEATABLE_BATCHES
from oncebus.outbox import Entry, Outbox
from oncebus.pipeline.rules import check_rule
from oncebus.store import IngestReport, Place, Store, SubQueue
from oncebus.store.drops import KEPT

T = TypeVar("T")
log = logging.getLogger(__name__)

POLL_SECONDS = 0.004
BACK_OFF_SECONDS = 0.5
DEFAULT_PIPELINE_BYTES = 4 << 30
ABANDONED_AGE = 3600 * 1_000_000
"""No task takes so long to write its part of an entry: an unfinished one of that age was left by one that died."""


class Core:
    """The parts of a broker. `open` recovers them, `start` sets them going, `close` ends all of it."""

    def __init__(
        self,
        folders: Folders,
        catalogue: Catalogue,
        inbox: InboxWriter,
        store: Store,
        most_bytes: int,
        clock: Clock | None,
    ) -> None:
        position = store.position()
        if position > inbox.last_commit:
            raise DataMismatch(
                f"The store '{folders.store}' has taken commit {position}, but the inbox '{folders.inbox}' ends with "
                f"commit {inbox.last_commit}: they are not of the same broker, or one was restored alone."
            )
        highest = store.highest()
        marks = inbox.unread_marks(position)
        newest = max([mark.time for mark in highest] + [marks.time or 0], default=0)
        self.clock = clock or Clock()
        self.clock.begin_at(newest)
        self.numbers = Numbers(
            [(mark.entity, mark.partition, mark.sequence) for mark in highest]
            + [(entity, partition, sequence) for (entity, partition), sequence in marks.sequences.items()]
        )
        self.catalogue = catalogue
        self.policies = policies_of(catalogue)
        self.acceptor = Acceptor(inbox)
        self.blobs = Blobs(folders.blobs)
        self.arrivals = Arrivals()
        self.progress = Progress(position)
        # What was sent and forwarded before this broker was opened ends here, and may not have been seen yet.
        self.left_behind = inbox.last_commit
        self.outbox = Outbox(folders.outbox)
        self._folders = folders
        self._files = CatalogueFiles(folders.catalogue)
        self._transactions = Transactions(store)
        self._most_bytes = most_bytes
        self._sizes = {entity: store.size_of(entity) for entity in self.policies}
        # What is in the pipeline: by entity, and by commit in the order of commits.
        self._bytes: Counter[int] = Counter()
        self._under_way: deque[tuple[int, int, int]] = deque()
        self._last_sent: dict[int, int] = {}
        self._taken: deque[int] = deque(maxlen=REPEATABLE_BATCHES + 1)
        self._published: deque[tuple[int, int]] = deque()
        self.last_taken_at = time.monotonic()
        self._trouble: str | None = None
        self.accesses = Accesses(self.clock.passed)
        self._chores = Chores(self)
        self._tasks: list[asyncio.Task[None]] = []
        self._changing = asyncio.Lock()
        self._changes: set[asyncio.Task[Catalogue]] = set()
        self._others: set[asyncio.Task[None]] = set()
        self._note_unread(position)

    @classmethod
    async def open(
        cls,
        folders: Folders,
        *,
        shards: int,
        namespace: Namespace | None = None,
        most_bytes: int = DEFAULT_PIPELINE_BYTES,
        drops_kept: int = KEPT,
        clock: Clock | None = None,
    ) -> Core:
        """Open what lies in the folders, or begin there. Nothing runs yet."""

        def opened() -> Core:
            folders.data.mkdir(parents=True, exist_ok=True)
            files = CatalogueFiles(folders.catalogue)
            catalogue = files.latest()
            if catalogue is None:
                catalogue = Catalogue(version=1, namespace=namespace or Namespace())
                files.publish(catalogue)
            inbox = InboxWriter.open(folders.inbox, shards)
            try:
                store = Store.open(folders.store, drops_kept=drops_kept)
                try:
                    _forget_deleted(store, catalogue, inbox.last_commit)
                    core = cls(folders, catalogue, inbox, store, most_bytes, clock)
                    core.outbox.sweep(ABANDONED_AGE, core.clock.now())
                    return core
                except BaseException:
                    store.close()
                    raise
            except BaseException:
                inbox.close()
                raise

        # The store belongs to one thread at a time, and may change threads between calls.
        return await asyncio.to_thread(opened)

    def start(self) -> None:
        """Begin to take what the pipeline has judged, and to do the chores."""
        self._tasks = [asyncio.create_task(self._take_entries()), asyncio.create_task(self._chores.run())]

    async def close(self) -> None:
        """End what runs, wait for what is being made durable, and let go of the files."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*self._changes, *self._others, return_exceptions=True)
        await self.acceptor.close()
        await self._transactions.close()
        # Who still waits for a message is told by the next look.
        self.arrivals.tell_all()

    def run(self, work: Callable[[Store], T], unwanted: Callable[[T], None] | None = None) -> Coroutine[Any, Any, T]:
        """Do something in the store, durably. See `Transactions.run`."""
        return self._transactions.run(work, unwanted)

    def start_task(self, doing: Coroutine[Any, Any, object]) -> None:
        """Do something that nobody waits for. Where it fails, it is as if it had not been begun."""

        async def do() -> None:
            try:
                await doing
            except OncebusError as error:
                log.info("Given up: %s", error)

        task = asyncio.create_task(do())
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    def discard_bodies(self, names: Sequence[str]) -> None:
        """Delete bodies of messages that are not accepted."""
        if names:
            self.start_task(asyncio.to_thread(self.blobs.delete, names))

    # Entities

    async def change(self, how: Callable[[Catalogue, int], Catalogue]) -> Catalogue:
        """See `Broker.change`."""
        # On its own: a version that is published has to be put in force, though who asked for it be gone.
        task = asyncio.create_task(self._change(how))
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    async def _change(self, how: Callable[[Catalogue, int], Catalogue]) -> Catalogue:
        async with self._changing:
            before = self.catalogue
            after = how(before, self.clock.now())
            if after is before:
                return before
            touched = [entity for entity in after.entities.values() if before.entity(entity.id) != entity]
            for entity in touched:
                for rule in entity.rules if isinstance(entity, Subscription) else ():
                    check_rule(rule)
            await asyncio.to_thread(self._files.publish, after)
            # Rows that are waiting for their commit may still name the version before.
            self._published.append((self.acceptor.highest_commit, after.version))
            self.catalogue = after
            self.policies = policies_of(after)
            for entity in touched:
                self.note_access(entity)
            gone = {entity.id for entity in before.entities.values() if after.entity(entity.id) is None}
            if gone:
                await self._delete(gone)
            return after

    async def _delete(self, gone: set[int]) -> None:
        appended = self.acceptor.highest_commit
        self.accesses.forget(gone)
        self.numbers.forget(gone)
        for entity in gone:
            self._last_sent.pop(entity, None)
        try:
            await self.run(lambda store: store.delete_entities(sorted(gone), appended))
        except OncebusError as error:
            # They are gone all the same: nobody can reach what is left of them, and the next start clears it away.
            log.warning("What deleted entities held could not be deleted yet: %s", error)
        # Who waits there is to learn of it.
        self.arrivals.tell([Place(entity, sub_queue) for entity in gone for sub_queue in SubQueue])

    def note_access(self, entity: Entity) -> None:
        """Somebody uses an entity; a subscription's topic with it."""
        self.accesses.note(entity.id)
        if isinstance(entity, Subscription):
            self.accesses.note(entity.topic_id)

    # The pipeline

    def append(self, entity: int, rows: Sequence[Row]) -> asyncio.Future[int]:
        """Put rows of an entity into the pipeline; the commit, once they are durable."""
        size = sum(row["size"] for row in rows)
        appended = self.acceptor.append(rows, self.catalogue.version)
        self._bytes[entity] += size

        def note(future: asyncio.Future[int]) -> None:
            if future.exception() is not None:
                self._bytes[entity] -= size
                return
            self._under_way.append((future.result(), entity, size))
            if entity in self.policies:
                self._last_sent[entity] = future.result()
            self._settle_under_way()

        appended.add_done_callback(note)
        # Who gives up waiting does not take it back: it is accepted, and counts.
        return asyncio.shield(appended)

    def last_sent(self, entity: int) -> int:
        """The commit of the last message that was accepted for an entity."""
        return self._last_sent.get(entity, self.left_behind)

    def in_pipeline(self, entity: int) -> int:
        """How many bytes of an entity were accepted and are not in the store yet."""
        return self._bytes[entity]

    def held(self, entity: Entity) -> int:
        """What counts for an entity's quota: what is in the pipeline, and what was in the store a moment ago."""
        holders = [entity.id]
        if isinstance(entity, Topic):
            holders += [each.id for each in self.catalogue.subscriptions_of(entity)]
        return self.in_pipeline(entity.id) + sum(self._sizes.get(holder, 0) for holder in holders)

    def check_room(self, size: int) -> None:
        """Refuse what would make the pipeline hold too much."""
        held = self._bytes.total()
        if held + size > self._most_bytes:
            raise ServerBusy(
                f"The server is busy: {held} bytes are waiting for the pipeline, {self._most_bytes} is the limit. "
                "Please retry the operation later."
            )

    @property
    def lag(self) -> int:
        """How many commits wait for the pipeline."""
        return self.acceptor.last_commit - self.progress.position

    @property
    def trouble(self) -> str | None:
        """What keeps the broker from its work just now."""
        return self._trouble or self._chores.trouble

    def wake_chores(self) -> None:
        """There may be something to forward, or to fall due."""
        self._chores.wake()

    async def refresh_sizes(self) -> None:
        """Look how large the entities are now."""
        entities = list(self.policies)
        self._sizes = await self.run(lambda store: {entity: store.size_of(entity) for entity in entities})

    async def _take_entries(self) -> None:
        while True:
            try:
                entry = self.outbox.next_entry(self.progress.position) if self.lag else None
                if entry is None:
                    await asyncio.sleep(POLL_SECONDS)
                else:
                    await self._take(entry)
                    self._trouble = None
            except Exception as error:
                # Whatever it is, to give up would stop all deliveries; it is shown, and tried again.
                text = str(error) or type(error).__name__
                if self._trouble != text:
                    unexpected = None if isinstance(error, OncebusError) else error
                    log.error("What the pipeline has judged cannot be taken: %s", text, exc_info=unexpected)
                self._trouble = text
                await asyncio.sleep(BACK_OFF_SECONDS)

    async def _take(self, entry: Entry) -> None:
        rows = await asyncio.to_thread(entry.rows)
        policies, now = self.policies, self.clock.now()

        def take(store: Store) -> tuple[IngestReport, dict[int, int]]:
            report = store.ingest(rows, entry.after + 1, entry.last, policies, now)
            return report, {entity: store.size_of(entity) for entity in report.counted}

        report, sizes = await self.run(take)
        self._sizes |= sizes
        self.last_taken_at = time.monotonic()
        self.progress.reach(entry.last)
        self._settle_under_way()
        self.arrivals.tell(report.arrived)
        if report.transfers or report.scheduled:
            self.wake_chores()
        # This one stays until the next: a pipeline that begins anew sees by it how far the last had come.
        await asyncio.to_thread(self.outbox.delete_up_to, entry.after)
        self._taken.append(entry.last)
        if len(self._taken) == self._taken.maxlen:
            # Spark may run the newest batches again, and then reads their commits again.
            await self._forget_up_to(self._taken[0])

    async def _forget_up_to(self, commit: int) -> None:
        await self.acceptor.forget_up_to(commit)
        needed = None
        while self._published and self._published[0][0] <= commit:
            needed = self._published.popleft()[1]
        if needed is not None:
            await asyncio.to_thread(self._files.delete_below, needed)

    def _settle_under_way(self) -> None:
        while self._under_way and self._under_way[0][0] <= self.progress.position:
            _, entity, size = self._under_way.popleft()
            self._bytes[entity] -= size
            if self._bytes[entity] <= 0:
                del self._bytes[entity]

    def _note_unread(self, position: int) -> None:
        """Count what an earlier broker has left in the pipeline."""
        last = self.acceptor.last_commit
        if position >= last:
            return
        for batch in InboxReader(self._folders.inbox).read(position + 1, last):
            commit = batch.column("commit")[0].as_py()
            for entity, size in zip(batch.column("entity").to_pylist(), batch.column("size").to_pylist(), strict=True):
                self._bytes[entity] += size
                self._under_way.append((commit, entity, size))


def _forget_deleted(store: Store, catalogue: Catalogue, appended: int) -> None:
    """Clear away what is left of entities whose deletion was cut short, or that rows in flight came for later."""
    gone = {mark.entity for mark in store.highest() if catalogue.entity(mark.entity) is None}
    if gone:
        with store.transaction():
            store.delete_entities(sorted(gone), appended)
