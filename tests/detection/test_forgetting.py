"""Forgets and tombstones, on plain arrays."""

from __future__ import annotations

import numpy as np

from oncebus.detection import NO_HORIZON, Memories, Question, Recall, find_uncancelled, judge, recall_nothing
from tests.histories import SECOND, START, digest, rows_of, verdicts_of
from tests.reference import Forget, Message

WINDOW = 20 * SECOND


def recalling(*entries: tuple[str, int, int, int]) -> Recall:
    """Return a function that recalls entries (key, time, window, sequence), if they are in the range of a question."""

    def recall(question: Question) -> Memories:
        asked = {pair: at for at, pair in enumerate(zip(question.high.tolist(), question.low.tolist(), strict=True))}
        found = [
            (at, time, window, sequence)
            for key, time, window, sequence in entries
            if (at := asked.get(digest(key))) is not None and question.earliest[at] <= time <= question.latest[at]
        ]
        key, time, window, sequence = np.array(found, np.int64).reshape(-1, 4).T
        return Memories(key.astype(np.intp), time, window, np.abs(window), sequence, np.ones(len(key), np.bool_))

    return recall


def test_a_forget_separates_the_rows_before_it_from_those_after_it() -> None:
    messages = [
        Message("k", START, 1, WINDOW),
        Message("k", START, 2, WINDOW),
        Forget("k", START, 3, WINDOW),
        Message("k", START, 4, WINDOW),
        Message("k", START + WINDOW - 1, 5, WINDOW),
        Message("other", START, 6, WINDOW),
    ]
    verdicts = judge(rows_of(messages), recall_nothing, NO_HORIZON)
    assert verdicts.is_duplicate.tolist() == [False, True, True, False, True, False]
    assert verdicts_of(messages, verdicts)[messages[4]].original_sequence == 4
    assert set(verdicts.accepted.tolist()) == {3, 5}
    assert verdicts.tombstones is None, "earlier batches have accepted nothing"


def test_a_forget_leaves_a_tombstone_for_all_that_is_remembered_about_its_key() -> None:
    forget = Forget("k", START, 9, WINDOW)
    far = START - 3600 * SECOND
    recall = recalling(("k", START - 1, WINDOW, 1), ("k", far, WINDOW, 2), ("other", START, WINDOW, 3))
    verdicts = judge(rows_of([forget]), recall, NO_HORIZON)
    assert verdicts_of([forget], verdicts)[forget].original_sequence == 1
    assert len(verdicts.accepted) == 0
    left = verdicts.tombstones
    assert left is not None
    assert [
        *zip(left.time.tolist(), left.window.tolist(), left.keep.tolist(), left.sequence.tolist(), strict=True)
    ] == [
        (START - 1, -WINDOW, WINDOW, 1),
        (far, -WINDOW, WINDOW, 2),
    ]
    # The horizon has passed the older one, so nothing is left to cancel.
    left = judge(rows_of([forget]), recall, far + WINDOW).tombstones
    assert left is not None
    assert len(left) == 1


def test_a_forget_of_an_unknown_key_leaves_nothing() -> None:
    verdicts = judge(rows_of([Forget("k", START, 9, WINDOW)]), recall_nothing, NO_HORIZON)
    assert (verdicts.is_duplicate.tolist(), len(verdicts.accepted), verdicts.tombstones) == ([False], 0, None)


def test_a_tombstone_cancels_one_row_and_not_the_equal_one_that_came_later() -> None:
    """After a forget, the very same row may be sent again. It is remembered like any other."""
    message = Message("k", START, 1, WINDOW)
    once, tombstone = ("k", START, WINDOW, 1), ("k", START, -WINDOW, 1)
    for entries, is_duplicate in (
        ([once], True),
        ([once, tombstone], False),
        ([tombstone, once, once], True),
        ([once, tombstone, once, tombstone], False),
        ([("k", START, 2 * WINDOW, 1), tombstone], True),
        ([("k", START + 1, WINDOW, 1), tombstone], True),
        ([("k", START, WINDOW, 2), tombstone], True),
    ):
        verdicts = judge(rows_of([message]), recalling(*entries), NO_HORIZON)
        assert verdicts.is_duplicate.tolist() == [is_duplicate], entries


def test_a_tombstone_without_its_row_stays() -> None:
    key = np.array([1, 1, 2, 1, 1], np.uint64)
    window = np.array([5, -5, -5, 5, 7], np.int64)
    left = find_uncancelled(window, [key], [np.zeros(5, np.int64)])
    assert sorted(zip(key[left].tolist(), window[left].tolist(), strict=True)) == [(1, 5), (1, 7), (2, -5)]
