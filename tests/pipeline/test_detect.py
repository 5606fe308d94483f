from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.engine.inbox.rows import shard_of
from oncebus.ledger import Generation, Ledger, Owner, Writer
from oncebus.model.messages import LogRow, key_of
from oncebus.pipeline.detect import KEY_SIGNATURE, Original, detect
from tests.pipeline.judged_rows import QUEUE, START, row
from tests.properties import examples

SECOND = 1_000_000
WINDOW = 60 * SECOND


def keyed(position: int, name: str | None, seconds: float, **more: Any) -> LogRow:
    key = None if name is None else key_of(QUEUE, name, None)
    time = START + round(seconds * SECOND)
    return row(position, entity=QUEUE, key=key, window=WINDOW if key else 0, time=time, **more)


def ledger(folder: Path) -> tuple[Ledger, Generation]:
    opened = Ledger.open(folder)
    opened.describe_or_check(KEY_SIGNATURE)
    return opened, opened.join(Writer("0" * 32, "query", Owner.this_process()), 0)


def judged_in(
    parts: int, rows: Sequence[LogRow], opened: Ledger, generation: Generation, number: int
) -> list[Original | None]:
    """Judge each part of the keys on its own, as tasks do. Return the originals in the order of the rows."""
    part = [0 if row.key is None else shard_of(row.key, parts) for row in rows]
    found: dict[int, Original | None] = {}
    made = []
    for each in range(parts):
        share = [row for row, at in zip(rows, part, strict=True) if at == each]
        if share:
            made.append(detect(share, opened, generation, number, each, parts))
            found |= zip([row.position for row in share], made[-1].originals, strict=True)
    for judged in made:
        judged.publish()
    return [found[row.position] for row in rows]


@pytest.mark.parametrize(("first_parts", "second_parts"), [(1, 1), (2, 2), (7, 7), (1, 2), (4, 1)])
def test_duplicates_are_marked_with_their_originals(tmp_path: Path, first_parts: int, second_parts: int) -> None:
    opened, generation = ledger(tmp_path)
    first = [keyed(1, "a", 0), keyed(2, None, 0), keyed(3, "a", 1), keyed(4, "b", 1), keyed(5, None, 1)]
    assert judged_in(first_parts, first, opened, generation, 0) == [None, None, (1, START), None, None]
    second = [keyed(6, "b", 60.999999), keyed(7, "a", 60), keyed(8, "c", 61)]
    assert judged_in(second_parts, second, opened, generation, 1) == [(4, START + SECOND), None, None]


def test_rows_without_keys_leave_nothing_in_the_ledger(tmp_path: Path) -> None:
    opened, generation = ledger(tmp_path)
    originals, publish = detect([keyed(1, None, 0)], opened, generation, 0, 0, 4)
    publish()
    assert originals == [None]
    assert opened.summary().runs == 0


@examples(25)
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0, 1, 30, 60])), min_size=1, max_size=6),
        min_size=1,
        max_size=4,
    ),
    st.lists(st.sampled_from([1, 2, 3, 4]), min_size=4, max_size=4),
)
def test_a_batch_that_is_run_again_gets_the_same_verdicts_and_all_agree_with_the_rule(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[str, int]]], parts: list[int]
) -> None:
    opened, generation = ledger(tmp_path_factory.mktemp("ledger"))
    position, seconds = 0, 0
    accepted: dict[str, tuple[int, int]] = {}
    for number, names in enumerate(batches):
        rows, expected = [], []
        for name, passed in names:
            position, seconds = position + 1, seconds + passed
            # A number that falls tells nothing about the order.
            rows.append(keyed(position, name, seconds, sequence=1000 - position))
            at, winner = accepted.get(name, (-(10**9), 0))
            expected.append(winner if seconds - at < 60 else None)
            if expected[-1] is None:
                accepted[name] = seconds, 1000 - position
        once = judged_in(parts[number], rows, opened, generation, number)
        again = judged_in(parts[number], rows, opened, generation, number)
        for part in range(parts[number]):
            opened.tidy(generation, number, part=part, parts=parts[number])
        assert once == again
        assert [each and each.sequence for each in once] == expected
