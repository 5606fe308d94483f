"""`judge` agrees with the reference for all policies, mixed windows, forgets and lateness. No file is involved.

Times and windows are small numbers, so that rows meet at the ends of windows all the time.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oncebus.detection import NO_HORIZON, Memories, Policy, Question, Rows, Verdicts, judge, recall_nothing
from tests.histories import EVER, START, digest, rows_of, verdicts_of
from tests.properties import search
from tests.reference import Forget, Message, Reference

KEYS = ("a", "b", "c", None)
WINDOWS = (1, 2, 3, 5, 8, EVER)
SEEDS = st.integers(0, 2**63)


class Memory:
    """A ledger in memory. It recalls what it must and, if it is generous, everything else about a key too."""

    def __init__(self, *, is_generous: bool) -> None:
        self._is_generous = is_generous
        self._entries: list[tuple[tuple[int, int], int, int, int, int, bool]] = []

    def recall(self, question: Question) -> Memories:
        keys = list(zip(question.high.tolist(), question.low.tolist(), strict=True))
        assert keys == sorted(set(keys))
        asked = {key: at for at, key in enumerate(keys)}
        found = [
            (at, *entry[1:])
            for entry in self._entries
            if (at := asked.get(entry[0])) is not None
            and (self._is_generous or question.earliest[at] <= entry[1] <= question.latest[at])
        ]
        if not found:
            return Memories.none()
        key, time, window, keep, sequence, has_sequence = (np.array(column) for column in zip(*found, strict=True))
        return Memories(key.astype(np.intp), time, window, keep, sequence, has_sequence)

    def add(self, rows: Rows, verdicts: Verdicts) -> None:
        taken = rows.take(verdicts.accepted)
        order = list(zip(taken.high.tolist(), taken.low.tolist(), taken.time.tolist(), strict=True))
        assert order == sorted(order)
        self._add(taken, has_sequence=rows.has_sequence)
        if verdicts.tombstones is not None:
            assert (verdicts.tombstones.window < 0).all()
            self._add(verdicts.tombstones, has_sequence=verdicts.tombstones.is_numbered)

    def _add(self, some: Rows | object, *, has_sequence: bool) -> None:
        columns = (getattr(some, name).tolist() for name in ("high", "low", "time", "window", "keep", "sequence"))
        for high, low, *rest in zip(*columns, strict=True):
            self._entries.append(((high, low), *rest, has_sequence))


def draw_batch(chance: Random, now: int, number: int, *, forgets: bool) -> list[Message]:
    """Draw rows around a time. Their places are their numbers, which are all that memories have, or they have none."""
    has_places, is_uniform = chance.random() < 0.3, chance.random() < 0.3
    found: list[Message] = []
    for at in range(chance.choice((0, 1, 2, 4, 8, 14))):
        key = chance.choice(KEYS)
        kind = Forget if forgets and key is not None and chance.random() < 0.2 else Message
        window = WINDOWS[2] if is_uniform else chance.choice(WINDOWS)
        sequence = 100 * number + at
        found.append(kind(key, now + chance.randrange(12), sequence, window, sequence if has_places else None))
    chance.shuffle(found)
    return found


@given(seed=SEEDS)
@search(1000)
def test_a_history_is_judged_as_the_reference_does(seed: int) -> None:
    chance = Random(seed)
    lateness = chance.choice((0, 0, 1, 4))
    reference, memory = Reference(lateness), Memory(is_generous=chance.random() < 0.5)
    has_number: dict[int, bool] = {}
    now = START
    for number in range(chance.randrange(1, 5)):
        now += chance.randrange(7)
        policy = Policy(keeps_last=chance.random() < 0.4, extends=chance.random() < 0.4)
        messages = draw_batch(chance, now, number, forgets=policy == Policy())
        rows = replace(rows_of(messages, lateness), has_sequence=chance.random() < 0.7)
        has_number |= {each.sequence: rows.has_sequence for each in messages}
        horizon = NO_HORIZON if reference.horizon is None else reference.horizon
        reference.keeps_last, reference.extends = policy.keeps_last, policy.extends
        expected = reference.batch(messages, now + chance.randrange(14))

        verdicts = judge(rows, memory.recall, horizon, policy)
        memory.add(rows, verdicts)

        assert verdicts_of(messages, verdicts) == expected
        for at in np.flatnonzero(verdicts.is_duplicate):
            assert verdicts.has_original_sequence[at] == has_number[int(verdicts.original_sequence[at])]
        wanted = [each for each in messages if each in reference.remembered]
        assert sorted(verdicts.accepted.tolist()) == [at for at, each in enumerate(messages) if each in wanted]
        assert verdicts.horizon == horizon


@given(seed=SEEDS)
@search(300)
def test_ties_are_broken_alike_in_every_order(seed: int) -> None:
    """Rows of equal time and number are judged in the order that `tie` gives."""
    chance = Random(seed)
    policy = Policy(keeps_last=chance.random() < 0.5, extends=chance.random() < 0.5)
    messages = [
        Message(chance.choice(KEYS), START + chance.randrange(4), 0, chance.choice(WINDOWS), place)
        for place in range(chance.randrange(1, 16))
    ]
    chance.shuffle(messages)
    expected = Reference(keeps_last=policy.keeps_last, extends=policy.extends).batch(messages, 2**62)
    ties = np.array([each.place for each in messages], np.int64)
    rows = replace(rows_of(messages), place=None, tie=ties.__getitem__)
    assert verdicts_of(messages, judge(rows, recall_nothing, NO_HORIZON, policy)) == expected


def test_two_keys_may_share_half_a_digest() -> None:
    messages = [Message(key, START, at, 5) for at, key in enumerate("abab")]
    high = np.full(4, digest("a")[0], np.uint64)
    found = judge(replace(rows_of(messages), high=high), recall_nothing, NO_HORIZON)
    assert found.is_duplicate.tolist() == [False, False, True, True]
