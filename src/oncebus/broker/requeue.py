"""Requeue: appends forwarded, due, released and resubmitted messages to the inbox again."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from oncebus import amqp
from oncebus.amqp.types import DecodeError, EncodeError
from oncebus.broker.accounting import Accounting
from oncebus.broker.bodies import Bodies
from oncebus.broker.catalogues import Catalogues
from oncebus.broker.entrance import Entrance
from oncebus.broker.idle import Accesses
from oncebus.broker.sending import (
    DEAD_LETTER_DESCRIPTION,
    DEAD_LETTER_REASON,
    Admitted,
    Incoming,
    Origin,
    check,
    check_quota,
)
from oncebus.broker.store_thread import StoreThread
from oncebus.broker.waiting import Progress
from oncebus.engine.store import Message, Requeue, RequeueKind, Store
from oncebus.model.entities import EntityError, NotFound, Queue, Topic
from oncebus.model.entities.detection_keys import CountedId
from oncebus.model.messages import partition_in


class Requeuer:
    """Appends messages that leave the store, in steps of bounded length. One step runs at a time."""

    def __init__(
        self,
        catalogues: Catalogues,
        store: StoreThread,
        accounting: Accounting,
        accesses: Accesses,
        entrance: Entrance,
        bodies: Bodies,
        progress: Progress,
    ) -> None:
        self._catalogues = catalogues
        self._store = store
        self._accounting = accounting
        self._accesses = accesses
        self._entrance = entrance
        self._bodies = bodies
        self._progress = progress
        self._stepping = asyncio.Lock()
        self._has_begun = False
        # (messages, commit) that are in the inbox and not yet reported to the store.
        self._appended: deque[tuple[list[Requeue], int]] = deque()

    async def step(self) -> bool:
        """Append some messages. Return whether there may be more."""
        async with self._stepping:
            return await self._step()

    async def _step(self) -> bool:
        if not self._progress.has_recovered:
            # An earlier run may have appended messages and crashed before it reported them to the store. Wait until
            # the store has ingested them, or they would be appended twice.
            return False
        await self._report()
        if not self._accounting.has_room:
            # The messages are just as safe in the store. Continue when the pipeline has processed some of its backlog.
            return False
        policies, appended = self._catalogues.policies, self._entrance.acceptor.last_commit
        if not self._has_begun:
            await self._store.run(lambda store: store.requeues.begin(appended))
            self._has_begun = True
        batch = await self._store.run(lambda store: store.requeues.next_batch(policies, appended))
        by_target: dict[int, list[Requeue]] = {}
        for requeue in batch:
            by_target.setdefault(requeue.target, []).append(requeue)
        for target, requeues in by_target.items():
            await self._append(target, requeues)
        return bool(batch)

    async def _append(self, target: int, requeues: list[Requeue]) -> None:
        accepted: list[Requeue] = []
        refused: list[tuple[Requeue, str, str]] = []
        admitted: list[Admitted] = []
        added = 0
        names = [each.message.body_file for each in requeues if each.message.body_file is not None]
        body_ids = await self._bodies.ids(names) if names and self._catalogues.counts_bodies(target) else {}
        for requeue in requeues:
            if requeue.message.entity not in self._catalogues.policies:
                # The entity was deleted meanwhile, with its messages. Nothing of it may be appended any more.
                continue
            try:
                one = self._admit(requeue, added, body_ids)
            except (EntityError, DecodeError, EncodeError) as error:
                # A retry would fail as well, and would hold up the other messages.
                refused.append((requeue, type(error).__name__, str(error)))
            else:
                accepted.append(requeue)
                admitted.append(one)
                added += one.message.size
        if admitted:
            _, appended = self._entrance.submit(admitted)
            for used in {target, *(requeue.message.entity for requeue in accepted)}:
                self._accesses.note(used)
            self._appended.append((accepted, await appended))
            await self._report()
        if refused:

            def refuse(store: Store) -> None:
                for requeue, reason, text in refused:
                    store.requeues.refuse([requeue], reason, text)

            await self._store.run(refuse)

    async def _report(self) -> None:
        """Tell the store which messages have been appended.

        They must not be appended again before the store knows that.
        """
        while self._appended:
            self._accounting.note_sizes(await self._store.run(partial(_note_requeued, *self._appended[0])))
            self._appended.popleft()

    def _admit(self, requeue: Requeue, added: int, body_ids: Mapping[str, CountedId]) -> Admitted:
        """Return the message to append, unless its target rejects it. `added` bytes go there before it."""
        message = requeue.message
        target = self._catalogues.current.entity(requeue.target)
        if not isinstance(target, Queue | Topic):
            raise NotFound(str(requeue.target))
        is_judged, is_dead = requeue.kind is RequeueKind.DUE, requeue.kind is RequeueKind.FORWARD_DEAD_LETTER
        head, identity = message.head, _identity(message, is_judged)
        if is_dead:
            why = {DEAD_LETTER_REASON: message.reason, DEAD_LETTER_DESCRIPTION: message.description}
            head = amqp.with_application_properties(head, {name: text for name, text in why.items() if text})
        incoming = Incoming(
            head,
            message.body or b"",
            identity,
            message.session,
            message.partition_key,
            body_in_file=message.size - len(message.head) if message.body_file is not None else 0,
            body_id=body_ids.get(message.body_file or ""),
        )
        if not is_judged:
            check(target, self._catalogues.current.namespace, [incoming])
            check_quota(target, self._accounting.held(target) + added, incoming.size)
        # Dead letters do not expire: the target gives a forwarded one a new time to live.
        expires = None if is_dead else message.expires
        origin = Origin(message.entity, message.sequence, requeue.hops, expires)
        if is_judged:
            partition = partition_in(message.sequence) if target.enable_partitioning else 0
            origin = replace(origin, partition=partition, scheduled=message.scheduled)
        least = message.scheduled or 0
        return Admitted(target, incoming, not is_judged, message.body_file, origin=origin, least=least)


def _note_requeued(requeues: Sequence[Requeue], commit: int, store: Store) -> dict[int, int]:
    """Tell the store which requeued messages are now in the inbox.

    Return the new size of each entity they came from.
    """
    store.requeues.end(requeues, commit)
    return {entity: store.entities.size(entity) for entity in {requeue.message.entity for requeue in requeues}}


def _identity(message: Message, is_judged: bool) -> str | bytes:
    """Return the id as its sender gave it. The store keeps only text, but a binary id differs from its text."""
    try:
        given = amqp.message_id(message.head)
    except DecodeError:
        # A message that has its verdict needs only the text. It must move on: nobody can receive it where it is.
        if not is_judged:
            raise
        given = None
    return message.message_id if given is None else amqp.id_text(given)
