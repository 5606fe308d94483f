"""Committing a transaction: all its changes, and the messages that it sends, in one store transaction.

The store transaction is the moment at which a transaction is committed. Locks are checked in it, so nothing can happen
in between. The messages that the transaction sends must still go through the inbox, which alone gives places in the
order. So the store keeps them as *pending* until the caller has appended them, all in one commit, and has called
`end`. After a crash in between they are appended again with the same origins, which `ingest` ingests only
once.

After a restart, the caller waits until the store has ingested everything that the inbox held at the start, as for
requeue. Then `next` knows which messages have arrived.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oncebus.engine.store.errors import ChangesRefused, SessionLockLost
from oncebus.engine.store.locks import find_settled, settle
from oncebus.engine.store.records import Highest
from oncebus.engine.store.sessions import check_held
from oncebus.engine.store.sql.tables import Tables
from oncebus.engine.store.unsettled import complete, discard, policy_of
from oncebus.engine.store.values import (
    Action,
    Changes,
    Copy,
    Outcome,
    Pending,
    Policy,
    SessionLock,
    Settlement,
    Stage,
    SubQueue,
)
from oncebus.model.messages import TRANSACTION, partition_in


class PendingMessages:
    """Commits transactions, and keeps the messages that they sent until the inbox has them."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def commit(
        self, changes: Changes, sent: Sequence[Pending], policies: Mapping[int, Policy], now: int
    ) -> list[Pending]:
        """Make all changes and keep the messages, or raise `ChangesRefused` and change nothing.

        Return the messages with their numbers.
        """
        tables = self._tables.for_change()
        settled, cancelled = _check(tables, changes, now)
        complete(tables, [copy for copy, settlement in settled if settlement.action is Action.COMPLETE])
        for copy, settlement in settled:
            if settlement.action is not Action.COMPLETE:
                settle(tables, copy, settlement, policy_of(policies, copy.entity))
        for copy in cancelled:
            discard(tables, copy)
        for lock, state in changes.states:
            tables.sessions.set_state(lock.entity, lock.key, state, now)
        return _keep(tables, sent)

    def last(self) -> int:
        """Return the number of the last pending message; 0 if there is none."""
        return self._tables.pending.last()

    def next(self, after: int, left: int, appended: int) -> list[Pending]:
        """Return the messages of the next transaction that an earlier broker committed but did not append to the inbox.

        Messages that the inbox already has are forgotten: the store has ingested everything that an earlier broker
        appended. `after` is the number of the last message that the caller has appended, 0 at first, `left` what
        `last` returned at the start, and `appended` the inbox's newest commit.
        """
        tables = self._tables.for_change()
        while pending := tables.pending.following(after, left):
            if not any(tables.origins.is_taken(TRANSACTION, each.number) for each in pending):
                break
            self.end(pending, appended)
        return pending

    def end(self, pending: Sequence[Pending], commit: int) -> None:
        """Forget messages of a transaction that are durable in the inbox.

        `commit` is the last commit that has one of them.
        """
        tables = self._tables.for_change()
        for number, body_file in tables.pending.remove(pending[0].committed):
            # Rows in the pipeline need the body file: the origin refers to it until they are ingested.
            tables.origins.end(TRANSACTION, number, commit, body_file)
        tables.origins.forget_through(tables.progress.position())


def _keep(tables: Tables, sent: Sequence[Pending]) -> list[Pending]:
    if not sent:
        return []
    first = tables.pending.take_numbers(len(sent))
    pending = [each._replace(number=first + at, committed=first) for at, each in enumerate(sent)]
    tables.pending.add(pending)
    tables.body_files.refer((each.body_file, 1) for each in pending if each.body_file is not None)
    # Nobody else may get these numbers after a restart, and no row of the inbox has them yet.
    tables.progress.raise_highest(
        Highest(each.entity, partition_in(each.sequence), each.sequence, 0)
        for each in pending
        if each.sequence is not None
    )
    return pending


def _check(tables: Tables, changes: Changes, now: int) -> tuple[list[tuple[Copy, Settlement]], list[Copy]]:
    """Check all changes, and return the messages to settle and to cancel. Raises `ChangesRefused`."""
    known = tables.locks.with_tokens([settlement.token for _, settlement, _ in changes.settlements])
    settled = []
    for entity, settlement, session in changes.settlements:
        # A token can be used once only.
        copy = known.pop(settlement.token, None)
        found = find_settled(tables, entity, settlement, copy, now, session)
        if isinstance(found, Outcome):
            raise ChangesRefused(found)
        settled.append((found, settlement))
    cancelled: dict[tuple[int, int], Copy] = {}
    for entity, sequence in changes.cancelled:
        copy = tables.messages.at(entity, SubQueue.MAIN, sequence)
        if copy is None or copy.stage != Stage.SCHEDULED or (entity, sequence) in cancelled:
            raise ChangesRefused(Outcome.MESSAGE_NOT_FOUND)
        cancelled[entity, sequence] = copy
    for lock, _ in changes.states:
        _check_session(tables, lock, now)
    return settled, list(cancelled.values())


def _check_session(tables: Tables, lock: SessionLock, now: int) -> None:
    try:
        check_held(tables, lock, now)
    except SessionLockLost:
        raise ChangesRefused(Outcome.SESSION_LOCK_LOST) from None
