"""What becomes of messages: they are completed, put back, dead-lettered or deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from oncebus.engine.store.sql.tables import Tables
from oncebus.engine.store.values import Copy, Kind, Message, Place, Policy, Stage, SubQueue

TOO_MANY_DELIVERIES = "MaxDeliveryCountExceeded"
EXPIRED = "TTLExpiredException"
TOO_MANY_HOPS = "MaxTransferHopCountExceeded"
NO_TARGET = "ForwardTargetNotFound"

_GONE = Policy()


def policy_of(policies: Mapping[int, Policy], entity: int) -> Policy:
    """Return the policy of an entity, or the defaults for one that is being deleted."""
    return policies.get(entity, _GONE)


def complete(tables: Tables, copies: Sequence[Copy | Message]) -> None:
    """Delete messages that receivers are done with."""
    for entity, number in Counter(copy.entity for copy in copies if copy.sub_queue == SubQueue.MAIN).items():
        tables.counters.count(entity, "completed", number)
    tables.messages.remove(copies)


def is_expired(copy: Copy | Message, now: int) -> bool:
    """Return whether a message has expired. Dead letters do not expire, and a lock delays expiry."""
    return (
        copy.expires is not None
        and copy.expires <= now
        and copy.sub_queue == SubQueue.MAIN
        and copy.stage in (Stage.READY, Stage.DEFERRED, Stage.SCHEDULED)
    )


def expire(tables: Tables, copy: Copy, policy: Policy) -> None:
    """Dead-letter or delete an expired message."""
    tables.counters.count(copy.entity, "expired", 1)
    if policy.dead_letter_on_expiry and policy.kind is not Kind.TOPIC:
        dead_letter(tables, copy, policy, EXPIRED, "The message expired and was dead lettered.")
        _tidy_session(tables, copy)
    else:
        discard(tables, copy)


def discard(tables: Tables, copy: Copy) -> None:
    """Delete a message that no receiver settled."""
    tables.messages.remove([copy])
    _tidy_session(tables, copy)


def discard_all(tables: Tables, copies: Sequence[Copy]) -> None:
    """Delete messages that no receiver settled."""
    tables.messages.remove(copies)
    for entity, key in {(copy.entity, copy.session_key) for copy in copies}:
        tables.sessions.delete_idle(entity, key)


def _tidy_session(tables: Tables, copy: Copy) -> None:
    # Perhaps nobody ever accepts this session again, so its row has to go with its last message.
    tables.sessions.delete_idle(copy.entity, copy.session_key)


def dead_letter(
    tables: Tables, copy: Copy, policy: Policy, reason: str | None, description: str | None, *, counted: bool = True
) -> None:
    """Move a message to the dead letters of its entity, or mark it as leaving if those are forwarded.

    `counted` says whether its last delivery counts.
    """
    leaves = policy.forward_dead_letters_to is not None
    stage = Stage.FORWARD if leaves else Stage.READY
    deliveries = copy.deliveries if counted else copy.deliveries - 1
    tables.messages.dead_letter(copy, SubQueue.DEAD_LETTER, stage, reason, description, deliveries)
    if not leaves:
        tables.arrivals.add(Place(copy.entity, SubQueue.DEAD_LETTER))


def put_back(tables: Tables, copy: Copy, policy: Policy, *, counted: bool = True) -> None:
    """Unlock a message. One that has reached its maximum number of deliveries goes to the dead letters.

    `counted` says whether this delivery counts; in a dead-letter queue none does.
    """
    is_dead = copy.sub_queue != SubQueue.MAIN
    if counted and not is_dead:
        tables.counters.count(copy.entity, "abandoned", 1)
    if counted and not is_dead and copy.deliveries >= policy.max_delivery_count:
        description = f"Message could not be consumed after {policy.max_delivery_count} delivery attempts."
        dead_letter(tables, copy, policy, TOO_MANY_DELIVERIES, description)
        return
    deferred = copy.stage == Stage.DEFERRED_LOCKED
    deliveries = copy.deliveries if counted or is_dead else copy.deliveries - 1
    tables.locks.unlock(copy, Stage.DEFERRED if deferred else Stage.READY, deliveries)
    if not deferred:
        tables.arrivals.add(Place(copy.entity, copy.sub_queue))
