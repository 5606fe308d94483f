"""What becomes of a message that was not settled: back to its place, to the dead letters, or gone."""

from __future__ import annotations

from collections.abc import Mapping

from oncebus.store.sql.tables import Tables
from oncebus.store.values import Copy, Kind, Message, Place, Policy, Stage, SubQueue

TOO_MANY_DELIVERIES = "MaxDeliveryCountExceeded"
EXPIRED = "TTLExpiredException"
TOO_MANY_HOPS = "MaxTransferHopCountExceeded"
NO_TARGET = "ForwardTargetNotFound"

_GONE = Policy()


def policy_of(policies: Mapping[int, Policy], entity: int) -> Policy:
    """The policy of an entity, or the defaults for one that is being deleted."""
    return policies.get(entity, _GONE)


def is_expired(copy: Copy | Message, now: int) -> bool:
    """Whether a message is past its time. Dead letters have no end, and a lock holds the end off."""
    return (
        copy.expires is not None
        and copy.expires <= now
        and copy.sub_queue == SubQueue.MAIN
        and copy.stage in (Stage.READY, Stage.DEFERRED, Stage.SCHEDULED)
    )


def expire(tables: Tables, copy: Copy, policy: Policy) -> Place | None:
    """End a message that is past its time. Answers where it can be received now, if anywhere."""
    if policy.dead_letter_on_expiry and policy.kind is not Kind.TOPIC:
        place = bury(tables, copy, policy, EXPIRED, "The message expired and was dead lettered.")
        _tidy_session(tables, copy)
        return place
    discard(tables, copy)
    return None


def discard(tables: Tables, copy: Copy) -> None:
    """Delete a message that no receiver settled."""
    tables.messages.remove([copy])
    _tidy_session(tables, copy)


def _tidy_session(tables: Tables, copy: Copy) -> None:
    # Nobody may ever ask for a session again that has lost its last message in this way.
    if copy.lane:
        tables.sessions.delete_idle(copy.entity, copy.lane)


def bury(tables: Tables, copy: Copy, policy: Policy, reason: str | None, description: str | None) -> Place | None:
    """Move a message to the dead letters of its entity, or on its way to where those are forwarded."""
    sub_queue = (
        SubQueue.TRANSFER_DEAD_LETTER if copy.sub_queue == SubQueue.TRANSFER_DEAD_LETTER else SubQueue.DEAD_LETTER
    )
    leaves = policy.forward_dead_letters_to is not None and sub_queue is SubQueue.DEAD_LETTER
    tables.messages.bury(copy, sub_queue, Stage.FORWARD if leaves else Stage.READY, reason, description)
    return None if leaves else Place(copy.entity, sub_queue)


def put_back(tables: Tables, copy: Copy, policy: Policy, *, counted: bool = True) -> Place | None:
    """Undo the lock of a message. One that has been delivered as often as it may goes to the dead letters.

    `counted` tells whether the attempt counts. Answers where it can be received now: a deferred one nowhere.
    """
    if counted and copy.sub_queue == SubQueue.MAIN and copy.deliveries >= policy.max_delivery_count:
        description = f"Message could not be consumed after {policy.max_delivery_count} delivery attempts."
        return bury(tables, copy, policy, TOO_MANY_DELIVERIES, description)
    deferred = copy.stage == Stage.DEFERRED_LOCKED
    deliveries = copy.deliveries if counted else copy.deliveries - 1
    tables.messages.unlock(copy, Stage.DEFERRED if deferred else Stage.READY, deliveries)
    return None if deferred else Place(copy.entity, copy.sub_queue)
