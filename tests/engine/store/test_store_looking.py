"""Searches for messages and the newest duplicates."""

from __future__ import annotations

from collections.abc import Sequence

from oncebus.engine.store import Mode, Outcome, Policy, Store, SubQueue
from oncebus.model.messages import Fate

from .store_rows import QUEUE, START, take

OTHER = 8
POLICIES = {QUEUE: Policy(), OTHER: Policy()}
NEWEST = 2**63 - 1


def arrive(store: Store, entity: int, ids: Sequence[str], first: int = 1, **more: object) -> None:
    rows = [
        {"entity": entity, "sequence": first + at, "message_id": each, "time": START + first + at, **more}
        for at, each in enumerate(ids)
    ]
    take(store, rows, POLICIES)


def drop(store: Store, entity: int, sequences: Sequence[int]) -> None:
    rows = [
        {
            "entity": entity,
            "sequence": each,
            "message_id": f"d{each}",
            "time": START + each,
            "fate": Fate.DUPLICATE,
            "original_sequence": 1,
            "original_time": START,
        }
        for each in sequences
    ]
    take(store, rows, POLICIES)


def test_a_search_reads_so_many_messages_and_says_where_to_go_on(store: Store) -> None:
    arrive(store, QUEUE, ["a", "b", "a", "c", "a"])
    arrive(store, OTHER, ["a"])
    assert store.messages.search(QUEUE, SubQueue.MAIN, 0, 2, "a") == ([1], 3)
    assert store.messages.search(QUEUE, SubQueue.MAIN, 3, 3, "a") == ([3, 5], None)
    assert store.messages.search(QUEUE, SubQueue.MAIN, 0, 100, "nothing") == ([], None)
    assert store.messages.search(QUEUE, SubQueue.DEAD_LETTER, 0, 100, "a") == ([], None)


def test_a_search_by_session(store: Store) -> None:
    arrive(store, QUEUE, ["a", "b"], session="one")
    arrive(store, QUEUE, ["a"], 3, session="two")
    assert store.messages.search(QUEUE, SubQueue.MAIN, 0, 100, session="one") == ([1, 2], None)
    assert store.messages.search(QUEUE, SubQueue.MAIN, 0, 100, "a", "two") == ([3], None)


def test_a_search_of_all_entities_begins_with_the_newest(store: Store) -> None:
    arrive(store, QUEUE, ["a", "b", "a"])
    arrive(store, OTHER, ["a", "x"])
    first, following = store.messages.search_everywhere("a", NEWEST, 3)
    assert [(each.entity, each.sequence) for each in first] == [(OTHER, 1), (QUEUE, 3)]
    assert following is not None
    second, end = store.messages.search_everywhere("a", following, 3)
    assert [(each.entity, each.sequence) for each in second] == [(QUEUE, 1)]
    assert end is None


def test_a_search_of_the_quarantine(store: Store) -> None:
    rows = [{"entity": QUEUE, "sequence": each, "message_id": f"q{each}", "fate": Fate.QUARANTINED} for each in (1, 2)]
    take(store, rows, POLICIES)
    assert store.quarantine.search("q1", 10) == [QUEUE]
    assert store.quarantine.search("q1", 1) == []
    assert store.quarantine.search("other", 10) == []


def test_present_finds_messages_and_dead_letters_but_not_consumed_ones(store: Store) -> None:
    arrive(store, QUEUE, ["a", "b"])
    take(store, [{"entity": QUEUE, "sequence": 3, "fate": Fate.DEAD_LETTERED}], POLICIES)
    with store.transaction():
        store.messages.receive(QUEUE, 1, Mode.RECEIVE_AND_DELETE, Policy(), START + 5)
    found = {each.sequence: each.sub_queue for each in store.messages.at(QUEUE, [1, 2, 3, 4])}
    assert found == {2: SubQueue.MAIN, 3: SubQueue.DEAD_LETTER}


def test_the_newest_duplicates_come_first_by_page_and_since_a_time(store: Store) -> None:
    drop(store, QUEUE, range(1, 8))
    assert [each.number for each in store.duplicates.newest(QUEUE, limit=3)] == [7, 6, 5]
    assert [each.number for each in store.duplicates.newest(QUEUE, limit=3, before=5)] == [4, 3, 2]
    assert [each.sequence for each in store.duplicates.newest(QUEUE, since=START + 6)] == [7, 6]
    for since in range(10):
        assert store.duplicates.count_since(QUEUE, START + since) == len(
            [each for each in range(1, 8) if each >= since]
        )
    assert store.duplicates.count_since(OTHER, 0) == 0


def test_the_newest_duplicates_of_several_entities_are_merged_by_time(store: Store) -> None:
    drop(store, QUEUE, range(1, 400, 2))
    drop(store, OTHER, range(200, 300, 2))
    newest = store.duplicates.newest_of([QUEUE, OTHER, 9], limit=180)
    times = [each.time - START for each in newest]
    assert times == sorted([*range(1, 400, 2), *range(200, 300, 2)], reverse=True)[:180]
    assert [each.time - START for each in store.duplicates.newest_of([QUEUE, OTHER], START + 396)] == [399, 397]


def test_dead_letters_are_discarded_unless_somebody_holds_them(store: Store) -> None:
    dead = [{"entity": QUEUE, "sequence": each, "fate": Fate.DEAD_LETTERED} for each in (1, 2)]
    take(store, dead, POLICIES)
    arrive(store, QUEUE, ["a"], 3)
    with store.transaction():
        [held] = store.messages.receive(QUEUE, 1, Mode.PEEK_LOCK, Policy(), START, sub_queue=SubQueue.DEAD_LETTER)
        outcomes = store.dead_letters.discard(QUEUE, [1, 2, 3], SubQueue.DEAD_LETTER)
    assert held.sequence == 1
    assert outcomes == [Outcome.MESSAGE_NOT_FOUND, Outcome.DONE, Outcome.MESSAGE_NOT_FOUND]
    counts = store.entities.counts(QUEUE)
    assert (counts.dead_letter, counts.active) == (1, 1)
    with store.transaction():
        assert store.dead_letters.discard(QUEUE, [3], SubQueue.MAIN) == [Outcome.MESSAGE_NOT_FOUND]


def test_originals_are_found_by_id_within_a_range_of_records(store: Store) -> None:
    rows = [
        {"entity": entity, "sequence": each, "message_id": f"d{each % 2}", "fate": Fate.DUPLICATE}
        | ({} if each == 9 else {"original_sequence": each % 2 + 1, "original_time": START})
        for entity in (QUEUE, OTHER)
        for each in range(3, 10)
    ]
    take(store, rows, POLICIES)
    assert store.duplicates.originals(QUEUE, ["d0", "d1"], 0, 100) == {3: 2, 4: 1, 5: 2, 6: 1, 7: 2, 8: 1}
    assert store.duplicates.originals(QUEUE, ["d1", "none"], 1, 5) == {5: 2, 7: 2}, "records 2 to 5 are those of 4 to 7"
    assert store.duplicates.originals(QUEUE, [], 0, 100) == {}


def test_the_newest_duplicates_with_an_id(store: Store) -> None:
    original = {"original_sequence": 1, "original_time": START}
    rows = [
        {"entity": entity, "sequence": at, "message_id": name, "time": START + at, "fate": Fate.DUPLICATE} | original
        for entity, at, name in [(QUEUE, 2, "a"), (OTHER, 3, "a"), (QUEUE, 4, "b"), (QUEUE, 5, "a"), (QUEUE, 6, "a")]
    ]
    take(store, rows, POLICIES)
    found = store.duplicates.newest_with_id([QUEUE, OTHER], "a", 3)
    assert [each.sequence for each in found] == [6, 5, 3]
    assert [each.sequence for each in store.duplicates.newest_with_id([QUEUE], "a", 2)] == [6, 5]
    assert store.duplicates.newest_with_id([QUEUE], "c") == []


def test_a_step_of_a_purge_reads_so_many_messages(store: Store) -> None:
    arrive(store, QUEUE, ["later"] * 4, scheduled=START + 1000)
    arrive(store, QUEUE, ["a", "b", "c", "d"], 5)

    def purge(after: int, before: int, count: int, most_read: int) -> tuple[int, int | None]:
        with store.transaction():
            return store.messages.purge(QUEUE, START + before, count, SubQueue.MAIN, after, most_read)

    assert purge(-1, 7, 9, 3) == (0, 3), "three scheduled messages stay, and no other was read"
    assert purge(3, 7, 9, 3) == (2, 6)
    assert purge(6, 7, 9, 3) == (0, None), "these were enqueued too late"
    assert purge(-1, 100, 1, 100) == (1, 7), "no more than asked for"
    assert purge(7, 100, 9, 100) == (1, None)
