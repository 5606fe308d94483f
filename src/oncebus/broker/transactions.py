"""Transactions: operations of a client that take effect together, when it commits them, or not at all.

Until then they are kept in memory. Locks are checked when an operation arrives, so that the client learns early what
cannot work, and again by the commit, which decides. A transaction in which an operation failed can only be rolled back.

All operations of a transaction concern one queue, or one topic with its subscriptions. It may send to other entities
*via* that one, on links of an AMQP session that goes via it. If that one is partitioned, all operations on it concern
one partition.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from types import TracebackType
from typing import Self

from oncebus.broker import addresses
from oncebus.broker.addresses import Address
from oncebus.broker.committing import Collected, Committer, Sent
from oncebus.broker.sending import Incoming, with_id
from oncebus.engine.store import ChangesRefused, Outcome, SessionLock, Settlement
from oncebus.model.entities import (
    BadRequest,
    Entity,
    InvalidOperation,
    Queue,
    QuotaExceeded,
    Subscription,
    Topic,
    decided_partition,
)
from oncebus.model.messages import partition_in
from oncebus.values.durations import SECOND
from oncebus.values.errors import ErrorKind, OncebusError

LONGEST_SECONDS = 120
"""How long a transaction may take from its first operation to its commit."""
MOST_SENT = 100
"""The most messages that a transaction may send."""
MOST_CHANGED = 1000
"""The most messages that a transaction may settle or cancel, and the most states that it may set."""
MOST_BYTES = 32 << 20
"""The most bytes of a transaction, because they are in memory."""
MOST_BYTES_IN_ALL = 256 << 20
"""The most bytes of all transactions. Those of one key have at most as many as are free: see `Pool`."""

_CHANGE_BYTES = 256
SPANS = "Local transactions cannot span multiple top-level entities such as queue or topic."
_SPANS_PARTITIONS = (
    "A transaction cannot span several partitions of an entity: its messages need the same partition key."
)
_NO_PARTITION = (
    "A message that a transaction sends to a partitioned entity needs a partition key: a SessionId or PartitionKey, or "
    "a MessageId if the entity detects duplicates."
)


class UnknownTransaction(OncebusError):
    """The client has no transaction with this id, or no longer has it."""

    kind = ErrorKind.GONE

    def __init__(self) -> None:
        super().__init__("The transaction is not declared, or it has ended.")


class TransactionFailed(OncebusError):
    """A transaction failed for a reason that is not an error of one of its operations."""

    kind = ErrorKind.ROLLED_BACK


class TransactionLate(TransactionFailed):
    """The transaction took too long and was rolled back."""

    def __init__(self) -> None:
        super().__init__(f"The transaction was not committed within {LONGEST_SECONDS // 60} minutes.")


class RequestUnfinished(TransactionFailed):
    """A request of the transaction was given up, because its link or its connection ended."""

    def __init__(self) -> None:
        super().__init__("A request of the transaction was not finished.")


class RolledBack(OncebusError):
    """The transaction could not be committed: nothing of it happened. `reason` is the error that caused it."""

    kind = ErrorKind.ROLLED_BACK

    def __init__(self, reason: Exception) -> None:
        super().__init__(f"The transaction was rolled back. {reason}")
        self.reason = reason


def top_level(entity: Entity) -> int:
    """Return the id of the queue or topic that an entity is or belongs to."""
    return entity.topic_id if isinstance(entity, Subscription) else entity.id


class Via:
    """The queue or topic that an AMQP session goes via, if its first link controls transactions.

    It is the first one that a link of the session is attached to. Only from there can the session receive.
    """

    def __init__(self) -> None:
        self.entity: int | None = None

    def attach(self, entity: Entity, *, receives: bool) -> None:
        """Record a link to an entity. Raises `InvalidOperation` for a receiver of another entity."""
        top = top_level(entity)
        if self.entity is None:
            self.entity = top
        elif receives and top != self.entity:
            raise InvalidOperation(SPANS)


class Transaction:
    """A transaction that a client has declared. It takes little memory before its first operation."""

    __slots__ = (
        "_collected",
        "_committer",
        "_failure",
        "_home",
        "_idle",
        "_is_over",
        "_key",
        "_partition",
        "_since",
        "_size",
        "_tokens",
        "_undo",
        "_working",
        "id",
        "owner",
    )

    def __init__(self, committer: Committer, owner: object) -> None:
        self.id = uuid.uuid4().bytes
        self.owner = owner
        self._key: Hashable = None
        self._committer = committer
        self._collected: Collected | None = None
        self._failure: Exception | None = None
        self._home: int | None = None
        self._idle: asyncio.Future[None] | None = None
        self._is_over = False
        self._partition: int | None = None
        self._since = 0
        self._size = 0
        self._tokens: list[bytes] = []
        self._undo: dict[object, Callable[[], object]] = {}
        self._working = 0

    # For `Work`

    def begin(self, key: Hashable) -> None:
        """Record that an operation of a client with this key has arrived. The commit waits for it."""
        self._working += 1
        if self._collected is None and not self._is_over and self._failure is None:
            self._collected = Collected()
            # Only now: a client may declare a transaction before it has a key.
            self._key = key
            self._since = self._committer.clock.passed()
            self._committer.working[self] = None

    def end(self) -> None:
        """Record that an operation is done."""
        self._working -= 1
        if not self._working and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def fail(self, error: Exception) -> None:
        """Record that an operation failed.

        The transaction can only be rolled back now, and frees everything it holds.
        """
        if not self._is_over and self._failure is None:
            self._failure = error
            self._release()
            self._call_undo()

    def when_rolled_back(self, then: Callable[[], object], key: object) -> None:
        """Call `then` right after a rollback or a failure, or now if the transaction has ended or failed already.

        It replaces what was to be called for the same key.
        """
        if self._collected is None:
            then()
        else:
            self._undo[key] = then

    def enlist(self, tokens: Sequence[bytes]) -> dict[bytes, Transaction]:
        """Keep the locks with these tokens for this transaction until it ends.

        Return those that a transaction has already, with that transaction.
        """
        enlisted = self._committer.enlisted
        taken = {token: enlisted[token] for token in tokens if token in enlisted}
        free = [token for token in tokens if token not in taken]
        enlisted.update(dict.fromkeys(free, self))
        self._tokens += free
        return taken

    def collected(self) -> Collected:
        """Return the operations that the transaction has collected so far. Raises if it has ended or failed."""
        if self._is_over:
            raise UnknownTransaction
        if self._failure is None and self.is_late(self._committer.clock.passed()):
            self.time_out()
        if self._failure is not None:
            raise RolledBack(self._failure)
        assert self._collected is not None
        return self._collected

    def join(self, entity: Entity, via: int | None, *, sends: bool) -> None:
        """Check that the transaction may use an entity. `via` belongs to the AMQP session of the link: see `Via`."""
        top = top_level(entity)
        home = top if via is None else via
        if home != (self._home or home) or (top != home and not sends):
            raise InvalidOperation(SPANS)
        self._home = home

    def keep_to(self, entity: Entity, partitions: Iterable[int | None]) -> None:
        """Check that operations on a partitioned entity keep to one partition. None stands for a message without one.

        Messages to other entities than the transaction's own are free: they are on their way to them.
        """
        if top_level(entity) != self._home:
            return
        for partition in partitions:
            if partition is None:
                raise InvalidOperation(_NO_PARTITION)
            if self._partition not in (None, partition):
                raise InvalidOperation(_SPANS_PARTITIONS)
            self._partition = partition

    def hold(self, size: int) -> None:
        """Add to the bytes that the transaction keeps in memory. Raises if there are too many."""
        if self._size + size > MOST_BYTES:
            raise QuotaExceeded(f"A transaction cannot hold more than {MOST_BYTES} bytes.")
        self._committer.memory.take(self._key, size, MOST_BYTES_IN_ALL)
        self._size += size

    # Ending

    def is_late(self, passed: int) -> bool:
        """Return whether the transaction has taken too long."""
        return self._collected is not None and not self._is_over and passed - self._since >= LONGEST_SECONDS * SECOND

    def time_out(self) -> None:
        """Roll back, because the transaction has taken too long."""
        self.fail(TransactionLate())

    async def commit(self) -> None:
        """Make all operations take effect, durably. If it raises `RolledBack`, none has taken effect."""
        while self._working:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle
        if self._is_over:
            raise RolledBack(UnknownTransaction())
        if self._collected is None and self._failure is None:
            # It did nothing.
            self._is_over = True
            return
        collected = self.collected()
        self._is_over = True
        # It cannot be late any more, and must not keep others from being found late.
        self._committer.working.pop(self, None)
        try:
            await self._committer.commit(collected)
        except Exception as error:
            self._release()
            self._call_undo()
            raise RolledBack(error) from error
        else:
            for then in collected.then:
                then()
        finally:
            self._release()

    def roll_back(self) -> None:
        """Forget all operations. Does nothing once the commit has begun."""
        if not self._is_over:
            self._is_over = True
            self._release()
            self._call_undo()

    def _call_undo(self) -> None:
        undo, self._undo = self._undo, {}
        for then in undo.values():
            then()

    def _release(self) -> None:
        self._committer.working.pop(self, None)
        self._committer.memory.give_back(self._key, self._size)
        self._size, self._collected = 0, None
        for token in self._tokens:
            self._committer.enlisted.pop(token, None)
        self._tokens = []


class Work:
    """One request of a client in a transaction: calls of its methods, in a `with` block.

    The methods take effect when the transaction is committed. An error in the block, an outcome that is not `DONE`, and
    a block that is cancelled make the transaction fail.
    """

    def __init__(
        self,
        transaction: Transaction,
        committer: Committer,
        via: int | None,
        key: Hashable,
    ) -> None:
        self.transaction = transaction
        self._committer = committer
        self._admission = committer.admission
        self._via = via
        self._is_open = True
        transaction.begin(key)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(error)

    def close(self, error: BaseException | None = None) -> None:
        """End the request. With an error, or if it was cancelled, the transaction fails. A second call does nothing."""
        if self._is_open:
            self._is_open = False
            if error is not None:
                self.transaction.fail(error if isinstance(error, Exception) else RequestUnfinished())
            self.transaction.end()

    def when_committed(self, then: Callable[[], None]) -> None:
        """Call `then` right after the commit."""
        self.transaction.collected().then.append(then)

    def send(self, path: str, messages: Sequence[Incoming]) -> None:
        """Send messages to a queue or a topic. See `Broker.send`."""
        self._add(path, messages, in_advance=False)

    async def schedule(
        self, path: str, messages: Sequence[Incoming], wants_original: Collection[int] = ()
    ) -> list[int]:
        """Schedule messages. Return the numbers to cancel them by, once the transaction is committed.

        Raises `BadRequest` for `wants_original`: the verdict on a message comes after the commit.
        """
        if wants_original:
            raise BadRequest("A transaction cannot ask for the number of an original: the verdict comes later.")
        return self._add(path, messages, in_advance=True)

    def _add(self, path: str, messages: Sequence[Incoming], *, in_advance: bool) -> list[int]:
        collected = self.transaction.collected()
        entity, size = self._admission.check(path, messages)
        self.transaction.join(entity, self._via, sends=True)
        if entity.enable_partitioning:
            self.transaction.keep_to(entity, (_partition_of(entity, message) for message in messages))
        if sum(len(each.messages) for each in collected.sent) + len(messages) > MOST_SENT:
            raise QuotaExceeded(f"Cannot send more than {MOST_SENT} messages in a single transaction.")
        self._admission.check_room(entity, size + sum(each.size for each in collected.sent if each.entity == entity.id))
        self.transaction.hold(size + _CHANGE_BYTES * len(messages))
        complete = [with_id(message) for message in messages]
        numbers = [self._committer.entrance.number(entity, message) for message, _ in complete] if in_advance else None
        collected.sent.append(
            Sent(path, entity.id, [message for message, _ in complete], [own for _, own in complete], size, numbers)
        )
        return numbers or []

    async def settle(
        self, address: Address, settlements: Sequence[Settlement], session: SessionLock | None = None
    ) -> list[Outcome]:
        """Settle locked messages.

        Return an outcome for each. A settlement can still fail if its lock is lost before the commit.
        """
        changes = self.transaction.collected().changes
        entity = addresses.holding(self._committer.entities.catalogue, address)
        self.transaction.join(entity, self._via, sends=False)
        self._check_count(len(changes.settlements) + len(settlements))
        self.transaction.hold(sum(_size_of(each) for each in settlements))
        # The entity may be deleted meanwhile.
        now, entities = self._committer.clock.steady(), self._committer.entities
        is_partitioned = entities.catalogues.policies[entity.id].partitioned
        entities.note_use(entity)
        taken = self.transaction.enlist([each.token for each in settlements])
        found = await self._committer.store.run(
            lambda store: store.locks.check_settlements(entity.id, settlements, now, session)
        )
        changes = self.transaction.collected().changes
        if is_partitioned:
            self.transaction.keep_to(entity, (partition_in(each) for each in found if isinstance(each, int)))
        outcomes = [each if isinstance(each, Outcome) else Outcome.DONE for each in found]
        for at, settlement in enumerate(settlements):
            if settlement.token in taken:
                # A token can be used once only.
                is_own = taken[settlement.token] is self.transaction
                outcomes[at] = Outcome.MESSAGE_LOCK_LOST if is_own else Outcome.IN_TRANSACTION
        self._check_outcomes(outcomes)
        changes.settlements += [(entity.id, settlement, session) for settlement in settlements]
        return outcomes

    async def cancel_scheduled(self, path: str, sequences: Sequence[int]) -> list[Outcome]:
        """Cancel scheduled messages.

        Return an outcome for each; it can still fail if a message falls due before the commit.
        """
        changes = self.transaction.collected().changes
        entity = addresses.sendable(self._committer.entities.catalogue, path)
        self.transaction.join(entity, self._via, sends=False)
        if entity.enable_partitioning:
            self.transaction.keep_to(entity, map(partition_in, sequences))
        self._check_count(len(changes.cancelled) + len(sequences))
        self.transaction.hold(_CHANGE_BYTES * len(sequences))
        await self._committer.entities.see_sends(entity)
        outcomes = await self._committer.store.run(lambda store: store.scheduled.check(entity.id, sequences))
        changes = self.transaction.collected().changes
        self._check_outcomes(outcomes)
        changes.cancelled += [(entity.id, sequence) for sequence in sequences]
        return outcomes

    async def set_session_state(self, lock: SessionLock, state: bytes | None) -> None:
        """Replace the state of a locked session. Raises `SessionLockLost`."""
        changes = self.transaction.collected().changes
        entity = self._committer.entities.catalogue.entity(lock.entity)
        if entity is not None:
            self.transaction.join(entity, self._via, sends=False)
            if self._committer.entities.catalogues.policies[entity.id].partitioned:
                self.transaction.keep_to(entity, [decided_partition(lock.session, None, None, detects=False)])
        self._check_count(len(changes.states) + 1)
        self.transaction.hold(_CHANGE_BYTES + len(state or b""))
        now = self._committer.clock.steady()
        await self._committer.store.run(lambda store: store.sessions.check(lock, now))
        self.transaction.collected().changes.states.append((lock, state))

    def _check_count(self, count: int) -> None:
        if count > MOST_CHANGED:
            raise QuotaExceeded(f"Cannot change more than {MOST_CHANGED} messages in a single transaction.")

    def _check_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            if outcome is not Outcome.DONE:
                self.transaction.fail(ChangesRefused(outcome))
                return


class Transactions:
    """The transactions of one client, by their ids. Clients with the same `key` share their part of the memory."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._declared: dict[bytes, Transaction] = {}
        self.key: Hashable = None

    def __len__(self) -> int:
        return len(self._declared)

    def declare(self, most: int, owner: object = None) -> Transaction:
        """Begin a transaction for `owner`. Raises `QuotaExceeded` if the client already has `most` transactions."""
        if len(self._declared) >= most:
            raise QuotaExceeded(f"The connection already has {most} transactions.")
        transaction = Transaction(self._committer, owner)
        self._declared[transaction.id] = transaction
        return transaction

    def work(self, id_: bytes, via: Via | None = None) -> Work:
        """Begin a request in a transaction. `via` belongs to the link's AMQP session. Raises `UnknownTransaction`."""
        transaction = self._declared.get(id_)
        if transaction is None:
            raise UnknownTransaction
        return Work(transaction, self._committer, None if via is None else via.entity, self.key)

    def take(self, id_: bytes) -> Transaction:
        """Remove a transaction, to commit it or to roll it back. Raises `UnknownTransaction`."""
        transaction = self._declared.pop(id_, None)
        if transaction is None:
            raise UnknownTransaction
        return transaction

    def roll_back_of(self, owner: object) -> None:
        """Roll back all transactions of an owner that is gone."""
        for transaction in [each for each in self._declared.values() if each.owner is owner]:
            self.take(transaction.id).roll_back()


def _partition_of(entity: Queue | Topic, message: Incoming) -> int | None:
    return decided_partition(
        message.session, message.partition_key, message.message_id, detects=entity.requires_duplicate_detection
    )


def _size_of(settlement: Settlement) -> int:
    texts = len(settlement.reason or "") + len(settlement.description or "")
    return _CHANGE_BYTES + texts + (len(repr(settlement.properties)) if settlement.properties else 0)
