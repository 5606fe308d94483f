"""Committing the changes of a transaction in the store, and keeping the messages that it sends."""

from __future__ import annotations

from typing import Any

import pytest

from oncebus.engine.store import (
    Action,
    Changes,
    ChangesRefused,
    Message,
    Mode,
    Outcome,
    Pending,
    Policy,
    Settlement,
    Store,
)
from oncebus.model.messages import TRANSACTION
from tests.engine.store.store_rows import QUEUE, START, take

POLICIES = {QUEUE: Policy()}

MINUTE = 60_000_000


def received(store: Store, count: int) -> list[Message]:
    take(store, [{"entity": QUEUE, "sequence": number} for number in range(1, count + 1)], POLICIES)
    with store.transaction():
        return store.messages.receive(QUEUE, count, Mode.PEEK_LOCK, Policy(), START)


def settled(message: Message, action: Action, **more: Any) -> tuple[int, Settlement, None]:
    assert message.token is not None
    return QUEUE, Settlement(action, message.token, **more), None


def pending(message_id: str, **fields: Any) -> Pending:
    made = Pending(0, 0, QUEUE, None, 1, message_id, None, None, None, None, 3, b"h", b"b", None)
    return made._replace(**fields)


def commit(store: Store, changes: Changes, *sent: Pending, now: int = START) -> list[Pending]:
    with store.transaction():
        return store.pending.commit(changes, sent, POLICIES, now)


def test_all_changes_are_made_together(store: Store) -> None:
    first, second, third, fourth = received(store, 4)
    kept = commit(
        store,
        Changes(
            [
                settled(first, Action.COMPLETE),
                settled(second, Action.ABANDON, properties={"seen": 1}),
                settled(third, Action.DEFER),
                settled(fourth, Action.DEAD_LETTER, reason="r"),
            ]
        ),
        pending("a"),
    )
    counts = store.entities.counts(QUEUE)
    assert (counts.active, counts.deferred, counts.dead_letter) == (1, 1, 1)
    assert [each.message_id for each in kept] == ["a"]


def test_one_lost_lock_refuses_everything(store: Store) -> None:
    first, second = received(store, 2)
    for last in (settled(second._replace(token=b"?" * 16), Action.COMPLETE), settled(first, Action.ABANDON)):
        with pytest.raises(ChangesRefused) as refused:
            commit(store, Changes([settled(first, Action.COMPLETE), last]), pending("a"))
        assert refused.value.outcome is Outcome.MESSAGE_LOCK_LOST
    assert store.entities.counts(QUEUE).active == 2
    assert store.pending.last() == 0
    with pytest.raises(ChangesRefused):
        commit(store, Changes([settled(first, Action.COMPLETE)]), now=START + MINUTE)
    # The same lock can still be used.
    commit(store, Changes([settled(first, Action.COMPLETE)]))
    assert store.entities.counts(QUEUE).active == 1


def test_scheduled_messages_are_cancelled_once(store: Store) -> None:
    take(store, [{"entity": QUEUE, "sequence": 1, "scheduled": START + MINUTE}], POLICIES)
    with pytest.raises(ChangesRefused) as refused:
        commit(store, Changes(cancelled=[(QUEUE, 1), (QUEUE, 1)]))
    assert refused.value.outcome is Outcome.MESSAGE_NOT_FOUND
    commit(store, Changes(cancelled=[(QUEUE, 1)]))
    assert store.entities.counts(QUEUE).scheduled == 0


def test_pending_messages_wait_until_they_are_appended(store: Store) -> None:
    message, other = received(store, 2)
    kept = commit(store, Changes([settled(message, Action.COMPLETE)]), pending("a"), pending("b", body_file="file"))
    more = commit(store, Changes([settled(other, Action.COMPLETE)]), pending("c"))
    assert [(each.number, each.committed) for each in (*kept, *more)] == [(1, 1), (2, 1), (3, 3)]
    assert (store.pending.last(), store.body_files.list_needed()) == (3, ["file"])
    with store.transaction():
        assert store.pending.next(0, 3, 1) == kept
        assert store.pending.next(2, 3, 1) == more
        # Those of a transaction that was committed later are not left over.
        assert store.pending.next(2, 2, 1) == []
        store.pending.end(kept, 2)
    assert store.pending.last() == 3
    # Rows in the pipeline need the file until they are ingested.
    assert store.body_files.list_needed() == ["file"]
    row = {"entity": QUEUE, "origin_entity": TRANSACTION}
    take(
        store,
        [
            {**row, "sequence": 3, "origin_sequence": 1},
            {**row, "sequence": 4, "origin_sequence": 2, "body_file": "file"},
        ],
        POLICIES,
    )
    assert store.entities.counts(QUEUE).active == 2
    assert store._tables.origins.count() == 0
    assert store.body_files.list_needed() == ["file"]


def test_numbers_are_never_used_again(store: Store) -> None:
    for expected, message in enumerate(received(store, 3), 1):
        (kept,) = commit(store, Changes([settled(message, Action.COMPLETE)]), pending("a"))
        assert kept.number == expected
        with store.transaction():
            store.pending.end([kept], 1)


def test_messages_that_arrived_before_they_were_reported_are_not_appended_again(store: Store) -> None:
    (message,) = received(store, 1)
    kept = commit(store, Changes([settled(message, Action.COMPLETE)]), pending("a"), pending("b"))
    row = {"entity": QUEUE, "origin_entity": TRANSACTION}
    rows = [{**row, "sequence": 2, "origin_sequence": 1}, {**row, "sequence": 3, "origin_sequence": 2}]
    take(store, rows, POLICIES)
    with store.transaction():
        # The start of requeue does not forget these origins.
        store.requeues.begin(2)
        store._tables.origins.forget_through(9)
        assert store.pending.next(0, store.pending.last(), 2) == []
    assert store.pending.last() == 0
    assert store._tables.origins.count() == 0
    assert kept[0].number == 1
    assert store.entities.counts(QUEUE).active == 2


def test_a_row_that_comes_twice_is_ingested_once(store: Store) -> None:
    (message,) = received(store, 1)
    commit(store, Changes([settled(message, Action.COMPLETE)]), pending("a"))
    row = {"entity": QUEUE, "origin_entity": TRANSACTION, "origin_sequence": 1}
    take(store, [{**row, "sequence": 2}], POLICIES)
    take(store, [{**row, "sequence": 3}], POLICIES)
    assert store.entities.counts(QUEUE).active == 1


def test_a_scheduled_message_of_a_transaction_waits_for_its_time(store: Store) -> None:
    (message,) = received(store, 1)
    commit(store, Changes([settled(message, Action.COMPLETE)]), pending("a", sequence=9))
    # Its number was given in advance: nobody else gets it after a restart.
    assert [mark.sequence for mark in store.progress.highest() if mark.entity == QUEUE] == [9]
    row = {"entity": QUEUE, "origin_entity": TRANSACTION, "origin_sequence": 1}
    take(store, [{**row, "sequence": 9, "scheduled": START + MINUTE}], POLICIES)
    assert (store.entities.counts(QUEUE).scheduled, store.entities.counts(QUEUE).active) == (1, 0)


def test_states_of_sessions_need_their_lock(store: Store) -> None:
    policies = {**POLICIES, QUEUE: Policy(requires_session=True)}
    take(store, [{"entity": QUEUE, "sequence": 1, "session": "s"}], policies)
    with store.transaction():
        lock = store.sessions.accept(QUEUE, "s", policies[QUEUE], START)
    assert lock is not None
    with pytest.raises(ChangesRefused) as refused:
        commit(store, Changes(states=[(lock, b"late")]), now=START + MINUTE)
    assert refused.value.outcome is Outcome.SESSION_LOCK_LOST
    commit(store, Changes(states=[(lock, b"one"), (lock, b"two")]))
    assert store.sessions.state(QUEUE, "s") == b"two"
