"""The dead letters: resubmitting and discarding them."""

from __future__ import annotations

from collections.abc import Sequence

from oncebus.engine.store.records import Highest
from oncebus.engine.store.sql.tables import Tables
from oncebus.engine.store.unsettled import discard
from oncebus.engine.store.values import Copy, Kind, Outcome, Policy, Stage, SubQueue
from oncebus.model.entities.names import session_key
from oncebus.model.messages import PARTITION_SHIFT


class DeadLetters:
    """Dead letters that somebody decides about. Receivers get them with `Messages.receive`."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

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
        tables = self._tables.for_change()
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

    def discard(self, entity: int, sequences: Sequence[int], sub_queue: SubQueue) -> list[Outcome]:
        """Delete dead letters for good. Return an outcome for each; that for a locked one is "not found"."""
        tables = self._tables.for_change()
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
        tables.leaving.send_back(copy, expires)
        return
    # A subscription numbers its copies as they arrive, so those in the pipeline get higher numbers than this one.
    session = (tables.messages.full(copy.id).session or "") if policy.requires_session else ""
    partition = copy.sequence >> PARTITION_SHIFT if policy.partitioned else 0
    known = tables.progress.highest(copy.entity, partition)
    sequence = (known.sequence if known else partition << PARTITION_SHIFT) + 1
    tables.progress.raise_highest([Highest(copy.entity, partition, sequence, 0)])
    # No row of the inbox has this time, so remember it here: stamps must not go back before it.
    tables.progress.raise_time(now)
    leaves = policy.forward_to is not None
    stage = Stage.FORWARD if leaves else Stage.READY
    tables.messages.enqueue(copy, stage, session_key(session), sequence, now, expires)
    if policy.requires_session and not leaves:
        tables.sessions.arrive([(copy.entity, session, sequence)])
