from __future__ import annotations

import random

from histories import SECOND, START, rows_of, verdicts_of
from oncebus.detection import NO_HORIZON, judge, recall_nothing
from reference import Message, Reference


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
