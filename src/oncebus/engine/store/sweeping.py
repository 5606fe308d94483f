"""Work that time triggers: locks and messages expire, scheduled messages fall due. In steps of bounded length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oncebus.engine.store.base import StoreBase
from oncebus.engine.store.sessions import give_back
from oncebus.engine.store.sql.tables import Tables
from oncebus.engine.store.unsettled import discard, expire, is_expired, policy_of, put_back
from oncebus.engine.store.values import Copy, Highest, Kind, Outcome, Place, Policy, Stage, SubQueue, Sweep
from oncebus.model.entities.session_ids import session_key
from oncebus.model.messages import PARTITION_SHIFT


class Sweeping(StoreBase):
    """Operations that time triggers; also cancelling scheduled messages and resubmitting dead letters."""

    def expire_locks(self, policies: Mapping[int, Policy], now: int, limit: int = 1000) -> Sweep:
        """Put back messages and sessions whose lock has expired. `receive` does the same for its entity."""
        tables = self._change()
        sweep = Sweep()
        copies = tables.messages.expired_locks(now, limit)
        for copy in copies:
            _note(sweep, put_back(tables, copy, policy_of(policies, copy.entity)))
        rows = tables.sessions.expired_locks(now, limit)
        for row in rows:
            sweep.arrived |= give_back(tables, row, policy_of(policies, row.entity))
        sweep.handled = len(copies) + len(rows)
        sweep.more = limit in (len(copies), len(rows))
        ends = [end for end in (tables.messages.first_end(), tables.sessions.first_end()) if end is not None]
        sweep.next = min(ends, default=None)
        return sweep

    def expire(self, policies: Mapping[int, Policy], now: int, limit: int = 1000) -> Sweep:
        """Delete or dead-letter expired messages. Receivers never get an expired message, even before this runs."""
        tables = self._change()
        sweep = Sweep()
        copies = tables.messages.expired(now, limit)
        for copy in copies:
            _note(sweep, expire(tables, copy, policy_of(policies, copy.entity)))
        sweep.handled, sweep.more = len(copies), len(copies) == limit
        return sweep

    def due(self, policies: Mapping[int, Policy], now: int, limit: int = 1000) -> Sweep:
        """Hand scheduled messages whose time has come to requeue, which enqueues them through the inbox.

        Until they have left, they are shown and counted as scheduled, but cannot be cancelled any more.
        """
        tables = self._change()
        sweep = Sweep()
        copies = tables.messages.due(now, limit)
        for copy in copies:
            policy = policy_of(policies, copy.entity)
            if is_expired(copy, now):
                _note(sweep, expire(tables, copy, policy))
            else:
                tables.messages.send_back(copy, copy.expires)
        sweep.handled, sweep.more = len(copies), len(copies) == limit
        sweep.next = tables.messages.next_due(now)
        return sweep

    def cancel_scheduled(self, entity: int, sequences: Sequence[int]) -> list[Outcome]:
        """Delete scheduled messages that have not fallen due. Return an outcome for each."""
        tables = self._change()
        outcomes = []
        for sequence in sequences:
            copy = tables.messages.at(entity, SubQueue.MAIN, sequence)
            if copy is None or copy.stage != Stage.SCHEDULED:
                outcomes.append(Outcome.MESSAGE_NOT_FOUND)
            else:
                discard(tables, copy)
                outcomes.append(Outcome.DONE)
        return outcomes

    def cancellable(self, entity: int, sequences: Sequence[int]) -> list[Outcome]:
        """Return the outcome that `cancel_scheduled` would return for each message, without cancelling anything."""
        found = [self._tables.messages.at(entity, SubQueue.MAIN, sequence) for sequence in sequences]
        return [
            Outcome.DONE if copy is not None and copy.stage == Stage.SCHEDULED else Outcome.MESSAGE_NOT_FOUND
            for copy in found
        ]

    def resubmit(
        self,
        entity: int,
        sequences: Sequence[int],
        policy: Policy,
        now: int,
        sub_queue: SubQueue = SubQueue.DEAD_LETTER,
        *,
        behind: int = 0,
    ) -> list[Outcome]:
        """Turn dead letters into new messages of their entity. Return an outcome for each.

        They get a new number and a delivery count of 0, and their time to live starts now. Dead letters of a queue go
        through requeue. The outcome for a locked dead letter is "not found". `behind` is how far `now` is behind the
        clock that expiry uses.
        """
        tables = self._change()
        outcomes = []
        for sequence in sequences:
            copy = tables.messages.at(entity, sub_queue, sequence)
            if copy is None or copy.stage not in (Stage.READY, Stage.DEFERRED) or sub_queue is SubQueue.MAIN:
                outcomes.append(Outcome.MESSAGE_NOT_FOUND)
                continue
            expires = None if copy.expires is None else now + behind + max(copy.expires - copy.enqueued, 0)
            _resubmit(tables, copy, policy, now, expires)
            outcomes.append(Outcome.DONE)
        return outcomes

    def discard_dead_letters(self, entity: int, sequences: Sequence[int], sub_queue: SubQueue) -> list[Outcome]:
        """Delete dead letters for good. Return an outcome for each; that for a locked one is "not found"."""
        tables = self._change()
        outcomes = []
        for sequence in sequences:
            copy = tables.messages.at(entity, sub_queue, sequence)
            if copy is None or copy.stage not in (Stage.READY, Stage.DEFERRED) or sub_queue is SubQueue.MAIN:
                outcomes.append(Outcome.MESSAGE_NOT_FOUND)
                continue
            discard(tables, copy)
            outcomes.append(Outcome.DONE)
        return outcomes


def _resubmit(tables: Tables, copy: Copy, policy: Policy, now: int, expires: int | None) -> None:
    if policy.kind is not Kind.SUBSCRIPTION:
        # Messages with lower numbers may still be in the pipeline: the inbox puts this one after them.
        tables.messages.send_back(copy, expires)
        return
    # A subscription numbers its copies as they arrive, so those in the pipeline get higher numbers than this one.
    session = (tables.messages.full(copy.id).session or "") if policy.requires_session else ""
    partition = copy.sequence >> PARTITION_SHIFT if policy.partitioned else 0
    known = tables.records.highest(copy.entity, partition)
    sequence = (known.sequence if known else partition << PARTITION_SHIFT) + 1
    tables.records.raise_highest([Highest(copy.entity, partition, sequence, 0)])
    # No row of the inbox has this time, so remember it here: stamps must not go back before it.
    tables.records.raise_time(now)
    leaves = policy.forward_to is not None
    stage = Stage.FORWARD if leaves else Stage.READY
    tables.messages.enqueue(copy, stage, session_key(session), sequence, now, expires)
    if policy.requires_session and not leaves:
        tables.sessions.arrive([(copy.entity, session, sequence)])


def _note(sweep: Sweep, place: Place | None) -> None:
    if place is not None:
        sweep.arrived.add(place)
