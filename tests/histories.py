"""Generates random histories of batches, and converts them for the code under test."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from oncebus.detection import Rows, Verdicts, part_of
from tests.reference import Forget, Message, Verdict

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
YEAR = 365 * 86400 * SECOND
EVER = 2**61 + 1
WINDOWS = (20 * SECOND, 20 * SECOND, 60 * SECOND, 1)

# Hypothesis checks a strategy once, which takes longer than a draw: so each is made once.
_STEPS = st.sampled_from(
    [0, 1, SECOND, 5 * SECOND, 20 * SECOND - 1, 20 * SECOND, 20 * SECOND + 1, 40 * SECOND, 61 * SECOND]
)
_GAPS = st.one_of(_STEPS, st.just(86400 * SECOND))
_BACK = st.one_of(st.just(0), _STEPS)
_AHEAD = st.one_of(st.just(0), st.just(0), _STEPS, _STEPS, st.just(YEAR))
_KEYS = st.sampled_from(["a", "b", "c", "ödeme", None])
_FORGETS = st.sampled_from([False, False, False, True])
_CLOCKS = st.sampled_from([0, 0, 3600 * SECOND, -5 * SECOND])
_PARTS = st.sampled_from([1, 2, 2, 3])


@dataclass(frozen=True)
class Batch:
    messages: tuple[Message, ...]
    clock: int
    parts: int


@st.composite
def histories(
    draw: st.DrawFn,
    *,
    most_batches: int = 14,
    mixed: bool = True,
    sizes: int = 6,
    forgets: bool = True,
    endless: bool = False,
) -> list[Batch]:
    """Draw several batches over a few keys.

    They have equal times, rows out of order, idle gaps, and times exactly at the end of a window. Occasionally a row is
    dated a year ahead. With `forgets`, some rows are forgets. With `endless`, some windows are endless.
    """
    windows = st.sampled_from((*WINDOWS, *([EVER] if endless else [])) if mixed else WINDOWS[:1])
    batches = []
    now, sequence = START, 0
    for _ in range(draw(st.integers(1, most_batches))):
        now += draw(_GAPS)
        messages = []
        for _ in range(draw(st.integers(0, sizes))):
            sequence += 1
            back = draw(_BACK)
            ahead = draw(_AHEAD)
            key = draw(_KEYS)
            is_forget = forgets and key is not None and draw(_FORGETS)
            window = draw(windows)
            kind = Forget if is_forget else Message
            messages.append(kind(key, now - back + ahead, sequence, window))
        clock = now + draw(_CLOCKS)
        batches.append(Batch(tuple(draw(st.permutations(messages))), clock, draw(_PARTS)))
    return batches


def digest(key: str | None) -> tuple[int, int]:
    whole = hashlib.sha256((key or "").encode()).digest()
    return int.from_bytes(whole[:8]), int.from_bytes(whole[8:16])


def rows_of(messages: Sequence[Message], lateness: int = 0) -> Rows:
    digests = np.array([digest(message.key) for message in messages], np.uint64).reshape(-1, 2)
    window = np.array([message.window for message in messages], np.int64)
    is_forget = np.array([isinstance(message, Forget) for message in messages], np.bool_)
    sequence = np.array([message.sequence for message in messages], np.int64)
    places = [message.place for message in messages if message.place is not None]
    return Rows(
        np.ascontiguousarray(digests[:, 0]),
        np.ascontiguousarray(digests[:, 1]),
        np.array([message.key is not None for message in messages], np.bool_),
        np.array([message.time for message in messages], np.int64),
        np.where(is_forget, -window, window),
        window + lateness,
        sequence,
        sequence.__getitem__,
        np.array(places, np.int64) if places else None,
    )


def split(messages: Sequence[Message], parts: int) -> list[list[Message]]:
    """Return the messages by part, as Spark would distribute them."""
    result: list[list[Message]] = [[] for _ in range(parts)]
    for message in messages:
        if message.key is None:
            part = message.sequence % parts
        else:
            high, low = digest(message.key)
            part = int(part_of(np.array([high], np.uint64), np.array([low], np.uint64), parts)[0])
        result[part].append(message)
    return result


def verdicts_of(messages: Sequence[Message], verdicts: Verdicts) -> dict[Message, Verdict]:
    found = {}
    for at, message in enumerate(messages):
        found[message] = (
            Verdict(True, int(verdicts.original_time[at]), int(verdicts.original_sequence[at]))
            if verdicts.is_duplicate[at]
            else Verdict(False)
        )
    return found
