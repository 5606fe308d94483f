"""Quarantine: rows are kept until somebody discards or releases them."""

from __future__ import annotations

from typing import Any

from oncebus.engine.store import Kind, Mode, Outcome, Policy, RequeueKind, State, Store
from oncebus.model.messages import Fate
from tests.engine.store.store_rows import QUEUE, START, come_back, take

TOPIC, SUBSCRIPTION = 20, 21
POLICIES = {QUEUE: Policy(), TOPIC: Policy(Kind.TOPIC), SUBSCRIPTION: Policy(Kind.SUBSCRIPTION)}
ROW: dict[str, Any] = {
    "entity": TOPIC,
    "fate": Fate.QUARANTINED,
    "reason": "broken",
    "body_file": "file",
    "session": "s",
}


def numbers(store: Store) -> list[int]:
    return [each.number for each in store.quarantine.page()]


def discard(store: Store, numbers: list[int]) -> list[Outcome]:
    with store.transaction():
        return store.quarantine.discard(numbers)


def release(store: Store, numbers: list[int]) -> list[Outcome]:
    with store.transaction():
        return store.quarantine.release(numbers, POLICIES, START + 5)


def test_rows_are_kept_until_they_are_discarded(store: Store) -> None:
    take(store, [ROW, {**ROW, "entity": QUEUE, "sequence": 9}], POLICIES)
    (found,) = store.quarantine.page(TOPIC)
    assert (found.reason, found.message_id, found.head, found.body_file) == ("broken", "m1", b"head", "file")
    assert [each.sequence for each in store.quarantine.page(after=found.number)] == [9]
    assert (store.entities.size(TOPIC), store.entities.counts(QUEUE).size) == (100, 100)
    first, second = numbers(store)
    assert discard(store, [first, first, 77]) == [
        Outcome.DONE,
        Outcome.MESSAGE_NOT_FOUND,
        Outcome.MESSAGE_NOT_FOUND,
    ]
    assert (numbers(store), store.body_files.list_unused()) == ([second], [])
    assert discard(store, [second]) == [Outcome.DONE]
    assert (numbers(store), store.body_files.list_unused()) == ([], ["file"])
    assert (store.entities.size(TOPIC), store.entities.size(QUEUE)) == (0, 0)


def test_a_released_row_of_a_topic_is_routed_again_and_was_accepted_once(store: Store) -> None:
    take(store, [ROW], POLICIES)
    assert release(store, [*numbers(store), 77]) == [Outcome.DONE, Outcome.MESSAGE_NOT_FOUND]
    assert (numbers(store), store.entities.counts(TOPIC).scheduled, store.entities.counts(TOPIC).size) == ([], 1, 100)
    assert release(store, [1]) == [Outcome.MESSAGE_NOT_FOUND]
    with store.transaction():
        assert store.scheduled.send_due(POLICIES, START + 5).handled == 1
        (requeue,) = store.requeues.next_batch(POLICIES, appended=1)
    assert (requeue.kind, requeue.target, requeue.message.session) == (RequeueKind.DUE, TOPIC, "s")
    assert (requeue.message.head, requeue.message.body_file, requeue.message.sequence) == (b"head", "file", 1)
    with store.transaction():
        store.requeues.end([requeue], 2)
    row = {"entity": TOPIC, "sequence": 2, "origin_entity": TOPIC, "origin_sequence": 1, "body_file": "file"}
    take(store, [{**row, "destination": SUBSCRIPTION}], POLICIES)
    counts = store.entities.counts(TOPIC)
    assert (counts.new, counts.quarantined, counts.transfer, counts.size) == (1, 1, 0, 0)
    assert [message.session for message in store.messages.peek(SUBSCRIPTION, 0, 9, START)] == [None]
    assert store.body_files.list_unused() == []


def test_a_released_row_of_a_queue_is_a_new_message_of_it(store: Store) -> None:
    policies = {QUEUE: Policy(requires_session=True)}
    take(store, [{**ROW, "entity": QUEUE}], policies)
    with store.transaction():
        store.quarantine.release(numbers(store), policies, START + 5)
        assert [each.state for each in store.messages.peek(QUEUE, 0, 9, START)] == [State.SCHEDULED]
        assert store.sessions.names(QUEUE, 9) == ["s"]
        store.scheduled.send_due(policies, START + 5)
    come_back(store, policies, 7, START + 5)
    with store.transaction():
        lock = store.sessions.accept(QUEUE, None, policies[QUEUE], START + 5)
        (message,) = store.messages.receive(QUEUE, 9, Mode.PEEK_LOCK, policies[QUEUE], START + 5, lock)
    assert (message.sequence, message.session, message.body_file) == (7, "s", "file")


def test_quarantined_rows_of_a_deleted_entity_are_deleted(store: Store) -> None:
    take(store, [ROW], POLICIES)
    with store.transaction():
        store.entities.delete([TOPIC], appended=1)
    assert (store.quarantine.page(), store.body_files.list_unused(), release(store, [1])) == (
        [],
        ["file"],
        [Outcome.MESSAGE_NOT_FOUND],
    )
