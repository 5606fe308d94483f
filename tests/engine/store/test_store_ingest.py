from __future__ import annotations

from typing import Any

import pytest

from oncebus.engine.store import (
    NAMESPACE,
    Action,
    Counts,
    Duplicate,
    EntryRefused,
    Kind,
    Mode,
    Outcome,
    Place,
    Policy,
    Scheduled,
    Settlement,
    State,
    Store,
    StoreError,
    SubQueue,
)
from oncebus.model.messages import NOBODY, PARTITION_SHIFT, Fate
from tests.engine.store.conftest import Stores
from tests.engine.store.store_rows import QUEUE, SECOND, START, entry, take

TOPIC, FIRST, SECOND_SUBSCRIPTION, GONE = 20, 21, 22, 99
POLICIES = {
    QUEUE: Policy(),
    TOPIC: Policy(Kind.TOPIC),
    FIRST: Policy(Kind.SUBSCRIPTION),
    SECOND_SUBSCRIPTION: Policy(Kind.SUBSCRIPTION, partitioned=True),
}


def numbers(store: Store, entity: int, sub_queue: SubQueue = SubQueue.MAIN) -> list[int]:
    return [message.sequence for message in store.messages.peek(entity, 0, 1000, START, sub_queue=sub_queue)]


@pytest.mark.parametrize(("first", "last"), [(0, 1), (1, 1), (3, 3), (2, 1), (0, 0)])
def test_an_entry_that_does_not_continue_is_refused(store: Store, first: int, last: int) -> None:
    take(store, [{"entity": QUEUE}], POLICIES)
    with pytest.raises(EntryRefused, match="does not continue at commit 2"), store.transaction():
        store.entries.ingest(entry([{"entity": QUEUE, "sequence": 2}]), first, last, POLICIES, START)
    assert store.progress.position() == 1
    assert numbers(store, QUEUE) == [1]


def test_an_entry_of_many_commits_moves_the_position_to_its_last(store: Store) -> None:
    with store.transaction():
        store.entries.ingest(entry([]), 1, 5, POLICIES, START)
    assert store.progress.position() == 5


def test_a_message_keeps_all_it_came_with(store: Store) -> None:
    row: dict[str, Any] = {
        "entity": QUEUE,
        "sequence": 2**40,
        "expires": START + 9,
        "message_id": "ödeme\0x",
        "session": "s",
        "partition_key": "p",
        "hops": 2,
        "size": 12,
        "head": b"\0h",
        "body": b"b\xff",
        "origin_entity": 5,
        "origin_sequence": 6,
    }
    report = take(store, [row], POLICIES)
    assert report.arrived == {Place(QUEUE, SubQueue.MAIN)}
    (message,) = store.messages.peek(QUEUE, 0, 9, START)
    assert {name: getattr(message, name) for name in row if not name.startswith("origin_")} == {
        name: value for name, value in row.items() if not name.startswith("origin_")
    }
    assert (message.origin, message.enqueued, message.enqueued_sequence, message.body_file) == (5, START, 2**40, None)
    assert message.state is State.ACTIVE


def test_a_subscription_numbers_its_own_copies(store: Store) -> None:
    def fan_out(*sequences: int) -> list[dict[str, Any]]:
        return [
            {"entity": TOPIC, "sequence": sequence, "destination": destination, "position": sequence}
            for sequence in sequences
            for destination in (FIRST, SECOND_SUBSCRIPTION)
        ]

    third = 3 << PARTITION_SHIFT
    take(store, fan_out(5, third + 1, 8), POLICIES)
    take(store, fan_out(third + 9, 11), POLICIES)
    assert numbers(store, FIRST) == [1, 2, 3, 4, 5]
    assert [message.enqueued_sequence for message in store.messages.peek(FIRST, 0, 9, START)] == [
        5,
        third + 1,
        8,
        third + 9,
        11,
    ]
    assert numbers(store, SECOND_SUBSCRIPTION) == [1, 2, 3, third + 1, third + 2]
    assert store.entities.counts(TOPIC).new == 5
    assert store.entities.counts(FIRST).new == 5
    highest = {(each.entity, each.partition): each.sequence for each in store.progress.highest()}
    assert highest[TOPIC, 3] == third + 9
    assert highest[TOPIC, 0] == 11


def test_numbers_go_on_after_all_messages_are_gone(store: Store) -> None:
    row = {"entity": TOPIC, "destination": FIRST}
    take(store, [row], POLICIES)
    with store.transaction():
        store.messages.receive(FIRST, 1, Mode.RECEIVE_AND_DELETE, POLICIES[FIRST], START)
    take(store, [row], POLICIES)
    assert numbers(store, FIRST) == [2]


def test_every_fate_is_counted_where_it_belongs(store: Store) -> None:
    rows: list[dict[str, Any]] = [
        {"entity": QUEUE},
        {"entity": QUEUE, "fate": Fate.DUPLICATE, "original_sequence": 1, "original_time": START - 1},
        {"entity": QUEUE, "fate": Fate.QUARANTINED, "reason": "broken", "description": "why"},
        {"entity": TOPIC, "fate": Fate.UNROUTED},
        {"entity": TOPIC, "fate": Fate.DEAD_LETTERED, "destination": FIRST, "reason": "filter", "description": "bad"},
        {"entity": TOPIC, "destination": GONE},
        {"entity": GONE},
        {"entity": GONE + 1, "fate": Fate.DISCARDED},
    ]
    report = take(store, rows, POLICIES)
    queue, topic = store.entities.counts(QUEUE), store.entities.counts(TOPIC)
    assert (queue.incoming, queue.new, queue.duplicates, queue.quarantined) == (3, 2, 1, 1)
    assert (topic.new, topic.unrouted, topic.discarded) == (3, 1, 1)
    assert (
        store.entities.counts(FIRST).new,
        store.entities.counts(FIRST).dead_lettered,
        store.entities.counts(FIRST).dead_letter,
    ) == (1, 1, 1)
    namespace = store.entities.counts(NAMESPACE)
    assert (namespace.incoming, namespace.new, namespace.duplicates, namespace.discarded) == (6, 5, 1, 3)
    assert (namespace.active, namespace.dead_letter, namespace.dead_lettered) == (1, 1, 1)
    assert report.counted[QUEUE] == {"new": 2, "duplicates": 1, "quarantined": 1}
    assert report.arrived == {Place(QUEUE, SubQueue.MAIN), Place(FIRST, SubQueue.DEAD_LETTER)}
    (dead,) = store.messages.peek(FIRST, 0, 9, START, sub_queue=SubQueue.DEAD_LETTER)
    assert (dead.reason, dead.description, dead.source) == ("filter", "bad", FIRST)


def test_of_a_deleted_entity_only_the_number_of_its_rows_and_the_time_are_kept(store: Store) -> None:
    rows: list[dict[str, Any]] = [
        {"entity": GONE, "fate": Fate.DELIVERED, "time": START + 7},
        {"entity": GONE, "fate": Fate.DEAD_LETTERED},
        {"entity": GONE, "fate": Fate.DUPLICATE, "body_file": "file"},
        {"entity": GONE, "fate": Fate.UNROUTED},
        {"entity": GONE, "fate": Fate.QUARANTINED, "body_file": "file"},
        {"entity": GONE, "fate": Fate.DISCARDED},
    ]
    take(store, rows, POLICIES)
    assert (
        store.entities.counts(GONE),
        store.progress.highest(),
        store.duplicates.page(GONE),
        store.quarantine.page(),
    ) == (Counts(), [], [], [])
    assert store.entities.counts(NOBODY) == Counts(discarded=4)
    assert (store.progress.newest_time(), store.body_files.list_unused()) == (START + 7, ["file"])


def test_every_message_is_counted_as_new_or_as_a_duplicate(store: Store) -> None:
    def rows(fate: Fate) -> list[dict[str, Any]]:
        queue = {"entity": QUEUE, "fate": fate, "sequence": 10 + fate, "position": 10 + fate}
        topic = {"entity": TOPIC, "fate": fate, "sequence": 20 + fate, "position": 20 + fate}
        is_copied = fate in (Fate.DELIVERED, Fate.DEAD_LETTERED)
        return [queue, *({**topic, "destination": each} for each in ([FIRST, GONE, FIRST] if is_copied else [None]))]

    scheduled = {"entity": TOPIC, "sequence": 40, "position": 40, "scheduled": START + 1}
    take(store, [*(row for fate in Fate for row in rows(fate)), scheduled], POLICIES)
    for entity, sent in ((QUEUE, len(Fate)), (TOPIC, len(Fate) + 1)):
        # A forget is not a message.
        assert (store.entities.counts(entity).new, store.entities.counts(entity).duplicates) == (sent - 2, 1)
        assert [forget.sequence % 10 for forget in store.forgets.page(entity)] == [Fate.FORGET]
    assert store.entities.counts(FIRST).new == 4


def test_a_message_is_dead_lettered_once_whatever_the_reason(store: Store) -> None:
    policy = Policy(max_delivery_count=1, dead_letter_on_expiry=True, lock_duration=SECOND)
    rows: list[dict[str, Any]] = [{"entity": QUEUE, "sequence": number} for number in (1, 2)]
    rows += [{"entity": QUEUE, "sequence": 3, "expires": START}]
    rows += [{"entity": QUEUE, "sequence": 4, "fate": Fate.DEAD_LETTERED, "reason": "filter"}]
    take(store, rows, {QUEUE: policy})
    with store.transaction():
        first, _ = store.messages.receive(QUEUE, 9, Mode.PEEK_LOCK, policy, START)
        store.locks.settle(QUEUE, [Settlement(Action.DEAD_LETTER, first.token or b"")], policy, START)
        store.locks.expire({QUEUE: policy}, START + SECOND)
    counts = store.entities.counts(QUEUE)
    assert (counts.dead_letter, counts.dead_lettered, counts.outgoing, counts.expired) == (4, 4, 2, 1)
    with store.transaction():
        again = store.messages.receive(QUEUE, 1, Mode.PEEK_LOCK, policy, START, sub_queue=SubQueue.DEAD_LETTER)
        store.locks.settle(QUEUE, [Settlement(Action.DEAD_LETTER, again[0].token or b"")], policy, START)
    assert store.entities.counts(QUEUE).dead_lettered == 4


def test_time_does_not_go_back_with_the_entity_that_had_the_newest(store: Store) -> None:
    take(
        store, [{"entity": QUEUE, "time": START + 5}, {"entity": TOPIC, "time": START, "destination": FIRST}], POLICIES
    )
    assert store.progress.newest_time() == START + 5
    with store.transaction():
        store.entities.delete([QUEUE], appended=1)
    assert [each.entity for each in store.progress.highest() if each.time] == [TOPIC]
    assert store.progress.newest_time() == START + 5
    with store.transaction():
        store.entities.delete([TOPIC], appended=1)
    assert store.progress.newest_time() == START + 5


def test_a_body_is_known_from_the_row_that_named_it_until_it_is_forgotten(store: Store) -> None:
    assert store.progress.newest_time() == 0
    take(
        store,
        [{"entity": QUEUE, "body_file": "a"}, {"entity": QUEUE, "fate": Fate.DUPLICATE, "body_file": "b"}],
        POLICIES,
    )
    assert store.body_files.list_unknown(["a", "b", "c"]) == ["c"]
    with store.transaction():
        store.body_files.forget(["a", "b"])
    assert store.body_files.list_unknown(["a", "b", "c"]) == ["b", "c"]


def test_the_highest_number_counts_dropped_rows_too(store: Store) -> None:
    take(
        store,
        [
            {"entity": QUEUE, "sequence": 3, "time": START + 9},
            {"entity": QUEUE, "sequence": 8, "fate": Fate.DUPLICATE, "time": START + 5},
        ],
        POLICIES,
    )
    assert store.progress.highest() == [(QUEUE, 0, 8, START + 9)]


@pytest.mark.parametrize(
    ("destination", "extra", "waits"),
    [
        (QUEUE, {}, True),
        (TOPIC, {}, True),
        (FIRST, {}, False),
        (QUEUE, {"origin_entity": 1, "origin_sequence": 1}, False),
    ],
)
def test_scheduled_rows_wait_but_not_twice(store: Store, destination: int, extra: dict[str, int], waits: bool) -> None:
    when = START + SECOND
    report = take(store, [{"entity": destination, "scheduled": when, **extra}], POLICIES)
    assert report.scheduled == ([Scheduled(destination, 1, when)] if waits else [])
    assert bool(report.arrived) != waits
    assert store.entities.counts(destination).scheduled == waits


def test_duplicates_can_be_found_by_id_time_and_page(store: Store) -> None:
    rows = [
        {
            "entity": QUEUE,
            "fate": Fate.DUPLICATE,
            "sequence": number,
            "message_id": f"id{number % 2}",
            "time": START + number,
            "original_sequence": 1,
            "original_time": START,
        }
        for number in range(2, 8)
    ]
    take(store, rows[:3], POLICIES)
    take(store, rows[3:], POLICIES)
    assert [each.sequence for each in store.duplicates.page(QUEUE)] == [2, 3, 4, 5, 6, 7]
    assert store.duplicates.page(QUEUE)[0] == Duplicate(QUEUE, 1, "id0", START + 2, 2, 1, START)
    assert [each.sequence for each in store.duplicates.page(QUEUE, "id1")] == [3, 5, 7]
    assert [each.sequence for each in store.duplicates.page(QUEUE, since=START + 6)] == [6, 7]
    first = store.duplicates.page(QUEUE, limit=4)
    assert [each.sequence for each in store.duplicates.page(QUEUE, after=first[-1].number)] == [6, 7]
    assert store.duplicates.page(QUEUE + 1) == []


def test_duplicates_are_bounded_by_number_and_age(open_store: Stores) -> None:
    store = open_store("few", duplicates_kept=3, duplicates_age=10 * SECOND)

    def duplicate(sequence: int, seconds: int) -> None:
        now = START + seconds * SECOND
        row = {"entity": QUEUE, "fate": Fate.DUPLICATE, "sequence": sequence, "time": now}
        take(store, [row], POLICIES, now)

    for sequence in range(1, 6):
        duplicate(sequence, sequence)
    assert [each.sequence for each in store.duplicates.page(QUEUE)] == [3, 4, 5]
    duplicate(6, 15)
    assert [each.sequence for each in store.duplicates.page(QUEUE)] == [5, 6]
    with store.transaction():
        assert store.duplicates.prune(START + 26 * SECOND) == 2
    assert store.duplicates.page(QUEUE) == []
    duplicate(7, 27)
    assert [each.number for each in store.duplicates.page(QUEUE)] == [7]
    store.close()


def test_a_body_file_is_unused_when_its_last_copy_is_gone(store: Store) -> None:
    copies = [{"entity": TOPIC, "destination": each, "body_file": "shared", "position": 1} for each in (FIRST, QUEUE)]
    take(
        store,
        [*copies, {"entity": QUEUE, "sequence": 5, "fate": Fate.DUPLICATE, "body_file": "of a duplicate"}],
        POLICIES,
    )
    assert store.body_files.list_unused() == ["of a duplicate"]
    with store.transaction():
        store.body_files.forget(["of a duplicate", "shared"])
        assert store.messages.delete_oldest(QUEUE, 2**62, 1) == 1
    assert store.body_files.list_unused() == []
    with store.transaction():
        (message,) = store.messages.receive(FIRST, 1, Mode.PEEK_LOCK, POLICIES[FIRST], START)
        assert (message.body_file, message.body) == ("shared", None)
        assert store.body_files.list_unused() == []
        done = Settlement(Action.COMPLETE, message.token or b"")
        assert store.locks.settle(FIRST, [done], POLICIES[FIRST], START) == [Outcome.DONE]
    assert store.body_files.list_unused() == ["shared"]
    with store.transaction():
        store.body_files.forget(["shared"])
    assert store.body_files.list_unused() == []


def test_a_number_that_is_in_use_is_refused_and_nothing_is_kept(store: Store) -> None:
    take(store, [{"entity": QUEUE}], POLICIES)
    with pytest.raises(EntryRefused, match="sequence number"):
        take(store, [{"entity": QUEUE, "sequence": 2}, {"entity": QUEUE, "sequence": 1}], POLICIES)
    assert numbers(store, QUEUE) == [1]
    assert store.entities.counts(QUEUE).active == 1


def test_changes_outside_of_a_transaction_are_refused(store: Store) -> None:
    with pytest.raises(StoreError, match="outside of a transaction"):
        store.messages.receive(QUEUE, 1, Mode.PEEK_LOCK, Policy(), START)
    with pytest.raises(StoreError, match="already in a transaction"), store.transaction(), store.transaction():
        pass
