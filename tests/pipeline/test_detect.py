from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.detection import part_of
from oncebus.ledger import Generation, Ledger, Owner, Writer
from oncebus.model.messages import INBOX_SCHEMA, key_of
from oncebus.pipeline.detect import KEY_SIGNATURE, detect, rows_of
from tests.pipeline.judged_rows import QUEUE, START, row
from tests.properties import examples

SECOND = 1_000_000
WINDOW = 60 * SECOND


def batch(rows: Sequence[dict[str, Any]], key_type: pa.DataType | None = None) -> pa.Table:
    made = pa.Table.from_pylist([{name: each[name] for name in INBOX_SCHEMA.names} for each in rows], INBOX_SCHEMA)
    index = made.column_names.index("key")
    return made.set_column(index, "key", made.column("key").cast(key_type)) if key_type else made


def keyed(position: int, name: str | None, seconds: float, **more: Any) -> dict[str, Any]:
    key = None if name is None else key_of(QUEUE, name, None)
    time = START + round(seconds * SECOND)
    return row(position, entity=QUEUE, key=key, window=WINDOW if key else 0, time=time, **more)


def ledger(folder: Path) -> tuple[Ledger, Generation]:
    opened = Ledger.open(folder)
    opened.describe_or_check(KEY_SIGNATURE)
    return opened, opened.join(Writer("0" * 32, "query", Owner.this_process()), 0)


def verdicts(table: pa.Table) -> list[int | None]:
    """Return the originals of the duplicates, by position."""
    return [
        original if is_duplicate else None
        for is_duplicate, original in zip(
            table["is_duplicate"].to_pylist(), table["original_sequence"].to_pylist(), strict=True
        )
    ]


@pytest.mark.parametrize("key_type", [pa.binary(16), pa.binary()])
@pytest.mark.parametrize("names", [["a", None, "b"], [None, None], ["a"], [None]])
def test_keys_of_the_inbox_and_of_spark_are_read_alike(names: list[str | None], key_type: pa.DataType) -> None:
    table = batch([keyed(number, name, 0) for number, name in enumerate(names, start=1)], key_type)
    for given_table in (table, table.slice(len(names) - 1), pa.concat_tables([table, table]).slice(1)):
        rows = rows_of(given_table)
        wanted = given_table["key"].to_pylist()
        assert rows.has_key.tolist() == [key is not None for key in wanted]
        found = [
            int(high).to_bytes(8, "big") + int(low).to_bytes(8, "big")
            for high, low in zip(rows.high, rows.low, strict=True)
        ]
        assert [each for each, key in zip(found, wanted, strict=True) if key] == [key for key in wanted if key]


def judged_in(parts: int, table: pa.Table, opened: Ledger, generation: Generation, number: int) -> pa.Table:
    """Judge each part of the keys on its own, as tasks do, and return all rows in their original order."""
    rows = rows_of(table)
    part = np.where(rows.has_key, part_of(rows.high, rows.low, parts), 0)
    shares = [table.filter(pa.array(part == each)) for each in range(parts)]
    made = [detect(share, opened, generation, number, at, parts) for at, share in enumerate(shares) if share.num_rows]
    for each in made:
        each.publish()
    return pa.concat_tables([each.rows for each in made]).sort_by("position")


@pytest.mark.parametrize(("first_parts", "second_parts"), [(1, 1), (2, 2), (7, 7), (1, 2), (4, 1)])
def test_duplicates_are_marked_with_their_originals(tmp_path: Path, first_parts: int, second_parts: int) -> None:
    opened, generation = ledger(tmp_path)
    first = batch([keyed(1, "a", 0), keyed(2, None, 0), keyed(3, "a", 1), keyed(4, "b", 1), keyed(5, None, 1)])
    table = judged_in(first_parts, first, opened, generation, 0)
    assert verdicts(table) == [None, None, 1, None, None]
    assert table.column_names == [*INBOX_SCHEMA.names, "is_duplicate", "original_sequence", "original_time"]
    second = batch([keyed(6, "b", 60.999999), keyed(7, "a", 60), keyed(8, "c", 61)])
    table = judged_in(second_parts, second, opened, generation, 1)
    assert verdicts(table) == [4, None, None]
    assert table["original_time"].to_pylist() == [START + SECOND, None, None]


def test_rows_without_keys_leave_nothing_in_the_ledger(tmp_path: Path) -> None:
    opened, generation = ledger(tmp_path)
    rows, publish = detect(batch([keyed(1, None, 0)]), opened, generation, 0, 0, 4)
    publish()
    assert verdicts(rows) == [None]
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
        once = judged_in(parts[number], batch(rows), opened, generation, number)
        again = judged_in(parts[number], batch(rows), opened, generation, number)
        for part in range(parts[number]):
            opened.tidy(generation, number, part=part, parts=parts[number])
        assert verdicts(once) == verdicts(again) == expected
