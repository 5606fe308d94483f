"""The totals of deliveries, of the namespace, and the messages that wait."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from oncebus.engine.store import (
    NAMESPACE,
    Action,
    Changes,
    Counts,
    Kind,
    Message,
    Mode,
    Policy,
    Settlement,
    Store,
    SubQueue,
)
from tests.engine.store.store_rows import QUEUE, SECOND, START, take

TOPIC, COPIES = 8, 9
POLICY = Policy(lock_duration=SECOND)
POLICIES = {QUEUE: POLICY, TOPIC: Policy(Kind.TOPIC), COPIES: Policy(Kind.SUBSCRIPTION)}


def fill(store: Store, count: int, **fields: Any) -> None:
    first = 1 + 100 * store.progress.position()
    take(store, [{"entity": QUEUE, "sequence": first + number, **fields} for number in range(count)], POLICIES)


def receive(store: Store, count: int = 9, now: int = START, **more: Any) -> list[Message]:
    with store.transaction():
        return store.messages.receive(QUEUE, count, more.pop("mode", Mode.PEEK_LOCK), POLICY, now, **more)


def settle(store: Store, messages: list[Message], action: Action, now: int = START) -> None:
    with store.transaction():
        store.locks.settle(QUEUE, [Settlement(action, message.token or b"") for message in messages], POLICY, now)


def totals(store: Store, entity: int = QUEUE) -> dict[str, int]:
    counts = store.entities.counts(entity)
    names = ("outgoing", "completed", "abandoned", "dead_lettered", "expired")
    return {name: getattr(counts, name) for name in names if getattr(counts, name)}


def test_each_delivery_counts_and_so_does_its_outcome(store: Store) -> None:
    fill(store, 5)
    one, two, three, four, _ = receive(store)
    settle(store, [one], Action.COMPLETE)
    settle(store, [two], Action.ABANDON)
    settle(store, [three], Action.DEAD_LETTER)
    settle(store, [four], Action.RELEASE)
    assert totals(store) == {"outgoing": 5, "completed": 1, "abandoned": 1, "dead_lettered": 1}
    # The fifth one's lock has expired.
    assert len(receive(store, now=START + SECOND)) == 3
    assert totals(store) == {"outgoing": 8, "completed": 1, "abandoned": 2, "dead_lettered": 1}
    assert totals(store, NAMESPACE) == totals(store)


def test_receive_and_delete_completes_what_it_delivers(store: Store) -> None:
    fill(store, 3)
    receive(store, 2, mode=Mode.RECEIVE_AND_DELETE)
    fill(store, 1, body_file="file")
    with_file = receive(store, mode=Mode.RECEIVE_AND_DELETE)[-1]
    assert totals(store) == {"outgoing": 4, "completed": 3}
    settle(store, [with_file], Action.COMPLETE)
    assert totals(store) == {"outgoing": 4, "completed": 4}


def test_deliveries_of_dead_letters_do_not_count(store: Store) -> None:
    fill(store, 2)
    settle(store, receive(store), Action.DEAD_LETTER)
    one, two = receive(store, sub_queue=SubQueue.DEAD_LETTER)
    settle(store, [one], Action.COMPLETE)
    settle(store, [two], Action.ABANDON)
    assert totals(store) == {"outgoing": 2, "dead_lettered": 2}


def test_a_message_that_expires_is_counted_whether_it_is_deleted_or_dead_lettered(store: Store) -> None:
    fill(store, 2, expires=START + 1)
    assert receive(store, now=START + 1) == []
    with store.transaction():
        store.messages.expire(POLICIES, START + 1)
    assert totals(store) == {"expired": 2}


def test_a_transaction_counts_as_a_settlement_does(store: Store) -> None:
    fill(store, 2)
    one, two = receive(store)
    changes = Changes()
    for message, action in ((one, Action.COMPLETE), (two, Action.ABANDON)):
        changes.settlements.append((QUEUE, Settlement(action, message.token or b""), None))
    with store.transaction():
        store.pending.commit(changes, [], POLICIES, START)
    assert totals(store) == {"outgoing": 2, "completed": 1, "abandoned": 1}


def test_a_failed_transaction_counts_nothing(store: Store) -> None:
    fill(store, 2)
    with suppress(ZeroDivisionError), store.transaction():
        store.messages.receive(QUEUE, 1, Mode.RECEIVE_AND_DELETE, POLICY, START)
        raise ZeroDivisionError
    assert totals(store) == {}
    assert totals(store, NAMESPACE) == {}


def test_the_namespace_keeps_the_totals_of_deleted_entities_but_not_their_messages(store: Store) -> None:
    take(store, [{"entity": TOPIC, "destination": COPIES}], POLICIES)
    fill(store, 3)
    settle(store, receive(store, 1), Action.COMPLETE)
    held = store.entities.counts(NAMESPACE)
    assert (held.incoming, held.new, held.active, held.size) == (4, 4, 3, 300)
    with store.transaction():
        store.entities.delete([QUEUE], store.progress.position())
    kept = store.entities.counts(NAMESPACE)
    assert (kept.incoming, kept.outgoing, kept.completed, kept.active, kept.size) == (4, 1, 1, 1, 100)
    assert store.entities.counts(QUEUE) == Counts()


def test_the_oldest_message_that_waits_is_the_first_one_without_a_lock(store: Store) -> None:
    assert store.entities.oldest_waiting(QUEUE) is None
    for age in (30, 20, 10):
        fill(store, 1, time=START - age * SECOND)
    assert store.entities.oldest_waiting(QUEUE) == START - 30 * SECOND
    (first,) = receive(store, 1)
    assert store.entities.oldest_waiting(QUEUE) == START - 20 * SECOND
    settle(store, [first], Action.DEAD_LETTER)
    receive(store)
    assert store.entities.oldest_waiting(QUEUE) is None


def test_messages_of_a_locked_session_do_not_wait(store: Store) -> None:
    policy = Policy(requires_session=True)
    rows = [
        {"entity": QUEUE, "sequence": number, "session": session, "time": START - age}
        for number, (session, age) in enumerate([("a", 30), ("b", 20), ("a", 10)], 1)
    ]
    take(store, rows, {QUEUE: policy})
    assert store.entities.oldest_waiting(QUEUE) == START - 30
    with store.transaction():
        store.sessions.accept(QUEUE, "a", policy, START)
    assert store.entities.oldest_waiting(QUEUE) == START - 20
