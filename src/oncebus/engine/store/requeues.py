"""Requeue: messages that are appended to the inbox again.

They are forwarded, or return to their own entity because they fell due, were released from quarantine or resubmitted.
Only the inbox can put them after everything that was accepted before. So nothing here gives a queue's message a new
number by itself.

A message that leaves is first marked as leaving, durably. Then the caller appends it with its origin, and then it is
removed. After a crash in between, it is still marked and is appended again with the same origin, which `ingest` ingests
only once.

The store remembers an origin from its first row until no other row with it can come. No row with it is appended after
`end`, which names the inbox commit of the last one. Once the store has ingested that commit, it forgets the
origin. So it remembers at most as many origins as there are messages under way.

A message that returns to its own entity stays visible there until it is removed. If its row arrives before `end`
is called, the arrival removes it, so that it never counts twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oncebus.engine.store.sql.tables import Tables
from oncebus.engine.store.unsettled import NO_TARGET, TOO_MANY_HOPS
from oncebus.engine.store.values import LEAVING, MAX_HOPS, Copy, Policy, Requeue, RequeueKind, Stage, SubQueue


class Requeues:
    """Messages that leave through the inbox."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def begin(self, appended: int) -> None:
        """Continue the requeues that an earlier broker began. Call it once, before the first `next_batch`.

        The store must have ingested everything that the inbox held at the start. `appended` is the newest commit.
        """
        self._tables.for_change().origins.end_taken(appended)

    def next_batch(self, policies: Mapping[int, Policy], appended: int, limit: int = 1000) -> list[Requeue]:
        """Return messages to append to the inbox when the transaction has ended.

        Then call `end` or `refuse`. `appended` is the inbox's newest commit. Messages that were appended
        before a crash and have arrived are not in the batch.
        """
        tables = self._tables.for_change()
        for entity, policy in policies.items():
            if policy.forward_to is not None:
                tables.leaving.claim(entity, SubQueue.MAIN, limit)
            if policy.forward_dead_letters_to is not None:
                tables.leaving.claim(entity, SubQueue.DEAD_LETTER, limit)
        batch: list[Requeue] = []
        sources = tables.leaving.entities()
        # The same limit for each entity, so that one with very many messages does not hold up the others.
        limit_each = max(limit // max(len(sources), 1), 1)
        for source in sources[:limit]:
            batch += _from(tables, source, policies, appended, limit_each)
        tables.origins.forget_through(tables.progress.position())
        return batch

    def end(self, batch: Sequence[Requeue], commit: int) -> None:
        """Remove messages that are durable in the inbox. `commit` is the last commit that has one of them."""
        tables = self._tables.for_change()
        for requeue in batch:
            message = requeue.message
            copy = tables.messages.at(message.entity, message.sub_queue, message.sequence)
            if copy is not None and copy.stage in LEAVING:
                _leave(tables, copy, commit)
            else:
                # It has arrived already, or its entity was deleted meanwhile and its rows will still arrive.
                tables.origins.end(message.entity, message.sequence, commit, None)
        tables.origins.forget_through(tables.progress.position())

    def refuse(self, batch: Sequence[Requeue], reason: str, description: str) -> None:
        """Move messages that can never be appended to the transfer dead letters of their source."""
        tables = self._tables.for_change()
        for requeue in batch:
            message = requeue.message
            copy = tables.messages.at(message.entity, message.sub_queue, message.sequence)
            if copy is not None and copy.stage in LEAVING:
                _strand(tables, copy, reason, description)


def _from(tables: Tables, source: int, policies: Mapping[int, Policy], appended: int, limit: int) -> list[Requeue]:
    """Return the next messages to append of one entity. Messages that must stay after all are put back."""
    batch: list[Requeue] = []
    if source not in policies:
        # It is being deleted, with all that it holds.
        return batch
    while not batch and (copies := tables.leaving.of_entity(source, limit)):
        for copy in copies:
            if tables.origins.is_taken(copy.entity, copy.sequence):
                _leave(tables, copy, appended)
            elif (found := _kind_and_target(tables, copy, policies)) is not None:
                kind, target = found
                hops = copy.hops if kind is RequeueKind.DUE else copy.hops + 1
                batch.append(Requeue(kind, target, hops, tables.messages.full(copy.id)))
    return batch


def remove_returned(tables: Tables, origins: Sequence[tuple[int, int]]) -> None:
    """Remove messages whose row arrived in their entity before `end` was called for them."""
    for entity, sequence in origins:
        copy = tables.leaving.returning(entity, sequence)
        if copy is not None:
            tables.messages.remove([copy])


def _kind_and_target(tables: Tables, copy: Copy, policies: Mapping[int, Policy]) -> tuple[RequeueKind, int] | None:
    policy = policies[copy.entity]
    if copy.stage == Stage.RETURN:
        return RequeueKind.DUE, copy.entity
    dead = copy.sub_queue == SubQueue.DEAD_LETTER
    target = policy.forward_dead_letters_to if dead else policy.forward_to
    if target is None:
        tables.messages.set_stage(copy, Stage.READY)
        if policy.requires_session and not dead:
            session = tables.messages.full(copy.id).session or ""
            tables.sessions.arrive([(copy.entity, session, copy.sequence)])
        return None
    if target not in policies:
        _strand(tables, copy, NO_TARGET, f"The entity {target} that messages are forwarded to was deleted.")
        return None
    if copy.hops >= MAX_HOPS:
        _strand(tables, copy, TOO_MANY_HOPS, f"The message was forwarded {copy.hops} times; {MAX_HOPS} is the limit.")
        return None
    return (RequeueKind.FORWARD_DEAD_LETTER if dead else RequeueKind.FORWARD), target


def _leave(tables: Tables, copy: Copy, commit: int) -> None:
    # Rows in the pipeline may still need the body file: the origin refers to it until the last of them is ingested.
    tables.messages.remove([copy], keep_body_file=True)
    if copy.session_key:
        tables.sessions.delete_idle(copy.entity, copy.session_key)
    tables.origins.end(copy.entity, copy.sequence, commit, copy.body_file)


def _strand(tables: Tables, copy: Copy, reason: str, description: str) -> None:
    tables.messages.dead_letter(copy, SubQueue.TRANSFER_DEAD_LETTER, Stage.READY, reason, description, copy.deliveries)
