from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from oncebus.engine.store import MAX_HOPS, NAMESPACE, Kind, Mode, Outcome, Policy, Requeue, RequeueKind, Store, SubQueue
from oncebus.model.messages import Fate
from tests.engine.store.store_rows import START, again, take

SOURCE, TARGET, TOPIC, FIRST, SECOND = 1, 2, 3, 4, 5
POLICIES = {
    SOURCE: Policy(forward_to=TARGET, dead_letter_on_expiry=True),
    TARGET: Policy(),
    TOPIC: Policy(Kind.TOPIC),
    FIRST: Policy(Kind.SUBSCRIPTION),
    SECOND: Policy(Kind.SUBSCRIPTION),
}


def next_batch(store: Store, policies: Mapping[int, Policy] = POLICIES) -> list[Requeue]:
    with store.transaction():
        return store.requeues.next_batch(policies, appended=store.progress.position())


def with_limit(store: Store, limit: int) -> list[Requeue]:
    with store.transaction():
        return store.requeues.next_batch(POLICIES, appended=store.progress.position(), limit=limit)


def held(store: Store, entity: int, sub_queue: SubQueue = SubQueue.MAIN) -> Sequence[int]:
    return [message.sequence for message in store.messages.peek(entity, 0, 99, START, sub_queue=sub_queue)]


def requeued(store: Store, requeues: list[Requeue], commit: int) -> None:
    with store.transaction():
        store.requeues.end(requeues, commit)


def remembered(store: Store) -> int:
    return store._tables.origins.count()


def test_a_forwarded_message_arrives_once(store: Store) -> None:
    assert take(store, [{"entity": SOURCE, "sequence": 9}], POLICIES).to_requeue
    assert store.entities.counts(SOURCE).transfer == 1
    (requeue,) = next_batch(store)
    assert (requeue.kind, requeue.target, requeue.hops) == (RequeueKind.FORWARD, TARGET, 1)
    assert (requeue.message.sequence, requeue.message.body) == (9, b"body")
    requeued(store, [requeue], 2)
    assert next_batch(store) == []
    assert remembered(store) == 1
    report = take(store, [again(requeue, 1)], POLICIES)
    assert (report.repeated, held(store, TARGET), held(store, SOURCE)) == (0, [1], [])
    assert remembered(store) == 0
    assert store.entities.counts(SOURCE).size == 0


def test_a_message_that_was_appended_twice_is_ingested_once(store: Store) -> None:
    take(store, [{"entity": SOURCE}], POLICIES)
    (requeue,) = next_batch(store)
    # Commit 2 was appended before a crash, and commit 3 after it.
    assert next_batch(store) == [requeue]
    requeued(store, [requeue], 3)
    assert take(store, [again(requeue, 1)], POLICIES).repeated == 0
    report = take(store, [again(requeue, 2, fate=Fate.DUPLICATE)], POLICIES)
    assert (report.repeated, held(store, TARGET), store.entities.counts(TARGET).duplicates) == (1, [1], 0)
    assert remembered(store) == 0


def test_a_message_that_has_arrived_is_not_appended_again(store: Store) -> None:
    take(store, [{"entity": SOURCE}], POLICIES)
    (requeue,) = next_batch(store)
    take(store, [again(requeue, 1)], POLICIES)
    with store.transaction():
        assert store.requeues.next_batch(POLICIES, appended=3) == []
    assert (store.entities.counts(SOURCE).transfer, remembered(store)) == (0, 1)
    assert take(store, [again(requeue, 2)], POLICIES).repeated == 1
    assert (held(store, TARGET), remembered(store)) == ([1], 0)


def test_repetitions_within_one_entry_are_distinguished_from_copies(store: Store) -> None:
    take(store, [{"entity": TOPIC, "scheduled": START + 1}], POLICIES)
    assert held(store, TOPIC) == [1]
    with store.transaction():
        assert store.scheduled.send_due(POLICIES, START + 1).handled == 1
        assert store.scheduled.cancel(TOPIC, [1]) == [Outcome.MESSAGE_NOT_FOUND]
        assert store.messages.expire(POLICIES, 2**62).handled == 0
    (requeue,) = next_batch(store)
    assert (requeue.kind, requeue.target, requeue.hops) == (RequeueKind.DUE, TOPIC, 0)
    rows = [
        again(requeue, sequence, destination=destination, position=sequence, scheduled=None)
        for sequence in (2, 3)
        for destination in (FIRST, SECOND)
    ]
    assert take(store, rows, POLICIES).repeated == 2
    assert (held(store, FIRST), held(store, SECOND)) == ([1], [1])
    requeued(store, [requeue], 2)
    assert remembered(store) == 0
    # It came once, and has two copies; it has none while it waits under its topic.
    assert [store.entities.counts(each).new for each in (TOPIC, FIRST, SECOND, NAMESPACE)] == [1, 1, 1, 1]


@pytest.mark.parametrize("hops", [MAX_HOPS - 1, MAX_HOPS])
def test_after_the_last_hop_a_message_is_a_transfer_dead_letter(store: Store, hops: int) -> None:
    take(store, [{"entity": SOURCE, "hops": hops}], POLICIES)
    assert len(next_batch(store)) == (hops < MAX_HOPS)
    stranded = store.messages.peek(SOURCE, 0, 9, START, sub_queue=SubQueue.TRANSFER_DEAD_LETTER)
    assert [each.reason for each in stranded] == ["MaxTransferHopCountExceeded"] * (hops == MAX_HOPS)
    assert store.entities.counts(SOURCE).transfer_dead_letter == len(stranded)


def test_a_message_that_cannot_be_forwarded_is_a_transfer_dead_letter(store: Store) -> None:
    take(store, [{"entity": SOURCE, "sequence": 1}, {"entity": SOURCE, "sequence": 2}], POLICIES)
    first, _ = next_batch(store)
    with store.transaction():
        store.requeues.refuse([first], "QuotaExceeded", "full")
    assert next_batch(store, {SOURCE: POLICIES[SOURCE]}) == []
    stranded = store.messages.peek(SOURCE, 0, 9, START, sub_queue=SubQueue.TRANSFER_DEAD_LETTER)
    assert [each.reason for each in stranded] == ["QuotaExceeded", "ForwardTargetNotFound"]


def test_a_queue_that_stops_forwarding_keeps_messages_that_had_not_left(store: Store) -> None:
    take(store, [{"entity": SOURCE}], POLICIES)
    assert next_batch(store, {SOURCE: Policy()}) == []
    with store.transaction():
        assert len(store.messages.receive(SOURCE, 1, Mode.PEEK_LOCK, Policy(), START)) == 1
    assert (store.entities.counts(SOURCE).active, store.entities.counts(SOURCE).transfer) == (1, 0)


def test_a_queue_that_begins_to_forward_sends_the_messages_it_holds(store: Store) -> None:
    take(store, [{"entity": SOURCE, "expires": START + 1}, {"entity": SOURCE}], {SOURCE: Policy()})
    with store.transaction():
        store.messages.receive(SOURCE, 1, Mode.PEEK_LOCK, Policy(), START)
    (requeue,) = next_batch(store)
    assert requeue.message.sequence == 2


@pytest.mark.parametrize("begins_later", [True, False])
def test_messages_leave_by_number_whatever_their_order_in_the_file(store: Store, begins_later: bool) -> None:
    before = {**POLICIES, SOURCE: Policy()} if begins_later else POLICIES
    numbers = [5, 2, 9, 1, 7]
    take(store, [{"entity": SOURCE, "sequence": number} for number in numbers], before)
    left = []
    while requeues := with_limit(store, 2):
        left += [each.message.sequence for each in requeues]
        requeued(store, requeues, 2)
    assert left == sorted(numbers)


def test_an_entity_with_many_messages_does_not_hold_up_the_others(store: Store) -> None:
    policies = {SOURCE: Policy(forward_to=TARGET), FIRST: Policy(forward_to=TARGET), TARGET: Policy()}
    take(store, [{"entity": SOURCE, "sequence": number} for number in range(1, 9)], policies)
    take(store, [{"entity": FIRST, "sequence": 1}], policies)
    with store.transaction():
        requeues = store.requeues.next_batch(policies, 1, limit=4)
    assert [(each.message.entity, each.message.sequence) for each in requeues] == [
        (SOURCE, 1),
        (SOURCE, 2),
        (FIRST, 1),
    ]


def test_dead_letters_are_forwarded_with_their_reason(store: Store) -> None:
    policies = {SOURCE: Policy(dead_letter_on_expiry=True, forward_dead_letters_to=TARGET), TARGET: Policy()}
    rows: list[dict[str, Any]] = [
        {"entity": SOURCE, "sequence": 1, "expires": START},
        {"entity": SOURCE, "sequence": 2, "fate": Fate.DEAD_LETTERED, "reason": "filter"},
    ]
    take(store, rows, policies)
    with store.transaction():
        store.messages.expire(policies, START)
    assert store.take_arrivals() == set()
    requeues = next_batch(store, policies)
    assert [(each.kind, each.message.reason) for each in requeues] == [
        (RequeueKind.FORWARD_DEAD_LETTER, "TTLExpiredException"),
        (RequeueKind.FORWARD_DEAD_LETTER, "filter"),
    ]
    assert (store.entities.counts(SOURCE).transfer, store.entities.counts(SOURCE).dead_letter) == (2, 0)


def test_a_body_file_is_needed_while_its_message_is_under_way(store: Store) -> None:
    take(store, [{"entity": SOURCE, "body_file": "file"}], POLICIES)
    requeues = next_batch(store)
    requeued(store, requeues, 2)
    assert store.body_files.list_unused() == []
    take(store, [again(requeues[0], 1)], POLICIES)
    assert store.body_files.list_unused() == []
    with store.transaction():
        assert store.messages.delete_oldest(TARGET, 2**62, 1) == 1
    assert store.body_files.list_unused() == ["file"]


def test_a_body_file_of_a_forwarded_duplicate_is_unused(store: Store) -> None:
    take(store, [{"entity": SOURCE, "body_file": "file"}], POLICIES)
    requeues = next_batch(store)
    take(store, [again(requeues[0], 1, fate=Fate.DUPLICATE)], POLICIES)
    assert store.body_files.list_unused() == []
    requeued(store, requeues, 2)
    assert store.body_files.list_unused() == ["file"]


def test_a_deleted_source_leaves_nothing_behind(store: Store) -> None:
    rows: list[dict[str, Any]] = [
        {"entity": SOURCE, "sequence": 1, "body_file": "file"},
        {"entity": SOURCE, "sequence": 2, "fate": Fate.DUPLICATE},
    ]
    take(store, rows, POLICIES)
    requeues = next_batch(store)
    take(store, [again(requeues[0], 1, body_file=None)], POLICIES)
    with store.transaction():
        store.entities.delete([SOURCE], appended=3)
    assert (store.entities.counts(SOURCE).size, store.duplicates.page(SOURCE), store.body_files.list_unused()) == (
        0,
        [],
        [],
    )
    assert remembered(store) == 1
    assert take(store, [again(requeues[0], 2)], POLICIES).repeated == 1
    assert (remembered(store), held(store, TARGET), store.body_files.list_unused()) == (0, [1], ["file"])
    requeued(store, requeues, 3)
    assert remembered(store) == 0


@pytest.mark.parametrize("order", ["delete, requeued, take", "delete, take, requeued", "take, delete, requeued"])
def test_a_body_outlives_its_source_while_a_row_that_names_it_is_in_the_pipeline(store: Store, order: str) -> None:
    """The source is deleted when the row is in the inbox and not yet reported to the store."""
    take(
        store,
        [{"entity": SOURCE, "body_file": "file"}, {"entity": SOURCE, "sequence": 2, "body_file": "left"}],
        POLICIES,
    )
    requeue = next_batch(store)[0]
    remaining = {each: policy for each, policy in POLICIES.items() if each != SOURCE}
    for step in order.split(", "):
        if step == "delete":
            with store.transaction():
                store.entities.delete([SOURCE], appended=2)
        elif step == "requeued":
            requeued(store, [requeue], 2)
        else:
            take(store, [again(requeue, 1)], remaining)
        assert "file" not in store.body_files.list_unused()
    # A message that had not left is deleted with its source.
    take(store, [], remaining)
    assert (store.body_files.list_unused(), remembered(store)) == (["left"], 0)
    with store.transaction():
        assert store.messages.delete_oldest(TARGET, 2**62, 1) == 1
    assert store.body_files.list_unused() == ["file", "left"]
