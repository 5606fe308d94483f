from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from oncebus.detection import NO_HORIZON, judge, recall_nothing
from tests.histories import SECOND, START, rows_of, verdicts_of
from tests.reference import Forget, Message, Reference


def test_the_window_ends_to_the_microsecond() -> None:
    window = 20 * SECOND
    messages = [
        Message("k", START, 1, window),
        Message("k", START + window - 1, 2, window),
        Message("k", START + window, 3, window),
    ]
    found = verdicts_of(messages, judge(rows_of(messages), recall_nothing, NO_HORIZON))
    assert [found[message].is_duplicate for message in messages] == [False, True, False]


def test_one_key_many_thousand_times() -> None:
    """Chains of one key, each link a window after the last, are judged like the reference; also with mixed windows."""
    chance = random.Random(3)
    for windows in ([SECOND], [SECOND, 2 * SECOND, 5 * SECOND]):
        messages = [Message("k", START + at * SECOND // 3, at, chance.choice(windows)) for at in range(1500)]
        chance.shuffle(messages)
        expected = Reference().batch(messages, 2**62)
        assert verdicts_of(messages, judge(rows_of(messages), recall_nothing, NO_HORIZON)) == expected


@given(st.data())
def test_the_place_decides_between_equal_times_whatever_the_sequence_numbers(data: st.DataObject) -> None:
    """A forget has a place like a message."""
    kinds = data.draw(st.lists(st.sampled_from([Message, Message, Message, Forget]), max_size=8))
    numbers = data.draw(st.permutations(range(len(kinds))))
    messages = [
        kind(
            data.draw(st.sampled_from("ab")),
            START + data.draw(st.sampled_from([0, 0, 0, 1, SECOND])),
            number,
            data.draw(st.sampled_from([1, SECOND])),
            place,
        )
        for place, (kind, number) in enumerate(zip(kinds, numbers, strict=True))
    ]
    shuffled = data.draw(st.permutations(messages))
    expected = Reference().batch(messages, 2**62)
    assert verdicts_of(shuffled, judge(rows_of(shuffled), recall_nothing, NO_HORIZON)) == expected
