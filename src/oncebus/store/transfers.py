"""The requeue pump: messages that are appended to the inbox again, because they are forwarded or fell due.

A message that leaves is first set on its way, durably; then the caller appends it with its origin; then it is removed.
Whatever dies between leaves it on its way, and it is appended again with the same origin, which `ingest` takes once.

An origin is remembered from the first row that was taken until no other can come. No row with it is appended after
`pumped`, which names the inbox commit that the last one stands in: once the store has taken that commit, the origin is
forgotten. So no more origins are remembered than messages are under way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oncebus.store.rules import NO_TARGET, TOO_MANY_HOPS
from oncebus.store.sql.tables import Tables
from oncebus.store.values import MAX_HOPS, Copy, Errand, Kind, Policy, Stage, SubQueue, Transfer


def pump_batch(tables: Tables, policies: Mapping[int, Policy], appended: int, limit: int) -> list[Transfer]:
    """See `Store.pump_batch`."""
    for entity, policy in policies.items():
        if policy.forward_to is not None:
            tables.messages.claim(entity, SubQueue.MAIN, limit)
        if policy.forward_dead_letters_to is not None:
            tables.messages.claim(entity, SubQueue.DEAD_LETTER, limit)
    batch: list[Transfer] = []
    last = 0
    while len(batch) < limit and (copies := tables.messages.transfers(last, limit)):
        for copy in copies:
            last = copy.id
            if tables.records.is_taken(copy.entity, copy.sequence):
                _leave(tables, copy, appended)
                continue
            found = _errand(tables, copy, policies)
            if found is not None and len(batch) < limit:
                errand, target = found
                hops = copy.hops if errand is Errand.DUE else copy.hops + 1
                batch.append(Transfer(errand, target, hops, tables.messages.full(copy.id)))
    tables.records.forget_origins(tables.records.position())
    return batch


def pumped(tables: Tables, transfers: Sequence[Transfer], commit: int) -> None:
    """See `Store.pumped`."""
    for transfer in transfers:
        message = transfer.message
        copy = tables.messages.at(message.entity, message.sub_queue, message.sequence)
        if copy is not None and copy.stage == Stage.TRANSFER:
            _leave(tables, copy, commit)
        else:
            # Its entity was deleted meanwhile; its rows come all the same.
            tables.records.settle_origin(message.entity, message.sequence, commit, None)
    tables.records.forget_origins(tables.records.position())


def refuse(tables: Tables, transfers: Sequence[Transfer], reason: str, description: str) -> None:
    """See `Store.pump_refused`."""
    for transfer in transfers:
        message = transfer.message
        copy = tables.messages.at(message.entity, message.sub_queue, message.sequence)
        if copy is not None and copy.stage == Stage.TRANSFER:
            _strand(tables, copy, reason, description)


def _errand(tables: Tables, copy: Copy, policies: Mapping[int, Policy]) -> tuple[Errand, int] | None:
    policy = policies.get(copy.entity)
    if policy is None:
        return None
    if policy.kind is Kind.TOPIC:
        return Errand.DUE, copy.entity
    dead = copy.sub_queue == SubQueue.DEAD_LETTER
    target = policy.forward_dead_letters_to if dead else policy.forward_to
    if target is None:
        tables.messages.set_stage(copy, Stage.READY)
        if policy.requires_session and not dead:
            tables.sessions.arrive([(copy.entity, copy.lane, copy.sequence)])
        return None
    if target not in policies:
        _strand(tables, copy, NO_TARGET, f"The entity {target} that messages are forwarded to is gone.")
        return None
    if copy.hops >= MAX_HOPS:
        _strand(tables, copy, TOO_MANY_HOPS, f"The message was forwarded {copy.hops} times; {MAX_HOPS} is the limit.")
        return None
    return (Errand.FORWARD_DEAD_LETTER if dead else Errand.FORWARD), target


def _leave(tables: Tables, copy: Copy, commit: int) -> None:
    # Rows that are still on their way may need the blob: the origin refers to it until the last of them is in.
    tables.messages.remove([copy], keep_blob=True)
    tables.records.settle_origin(copy.entity, copy.sequence, commit, copy.blob)


def _strand(tables: Tables, copy: Copy, reason: str, description: str) -> None:
    tables.messages.bury(copy, SubQueue.TRANSFER_DEAD_LETTER, Stage.READY, reason, description)
