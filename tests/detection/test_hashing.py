from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from oncebus.detection.hashing import digests_of_keys, digests_of_rows

SECRET = b"s" * 32

KEYS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.string(), ["a", "ödeme", "", "a" * 400]),
    (pa.large_string(), ["a", "ödeme", ""]),
    (pa.binary(), [b"a", b"\0", b""]),
    (pa.bool_(), [True, False]),
    (pa.int8(), [1, -1, 0]),
    (pa.int16(), [1, -1, 0]),
    (pa.int32(), [1, -1, 0]),
    (pa.int64(), [1, -1, 0, 2**40]),
    (pa.decimal128(20, 2), [Decimal("1.50"), Decimal("-1.50"), Decimal(0)]),
    (pa.date32(), [date(2024, 1, 1), date(1, 1, 1)]),
    (pa.timestamp("us", "UTC"), [datetime(2024, 1, 1), datetime(2024, 1, 2)]),
]


def digests(column: pa.Array) -> list[tuple[int, int]]:
    high, low, _ = digests_of_keys([column], SECRET)
    return list(zip(high.tolist(), low.tolist(), strict=True))


@pytest.mark.parametrize(("kind", "values"), KEYS, ids=[str(kind) for kind, _ in KEYS])
def test_keys_of_every_type_have_digests_of_their_own_wherever_they_lie(kind: pa.DataType, values: list[Any]) -> None:
    column = pa.array([*values, *values], kind)
    found = digests(column)
    assert len(set(found)) == len(values)
    assert found[: len(values)] == found[len(values) :]
    for begin in range(len(column)):
        assert digests(column.slice(begin)) == found[begin:]


def test_a_key_with_a_null_in_any_column_is_none() -> None:
    columns = [pa.array(["a", None, "c"]), pa.array([1, 2, None])]
    assert digests_of_keys(columns, SECRET)[2].tolist() == [True, False, False]


def told_apart(kind: pa.DataType, values: list[Any]) -> bool:
    """Whether the digests of rows are different, and the same when rows come in another order and in other chunks."""
    table = pa.table({"one": pa.array(values, kind)})
    found = digests_of_rows(table).tolist()
    order = np.arange(len(values))[::-1]
    again = digests_of_rows(pa.concat_tables([table.take(order[:1]), table.take(order[1:])])).tolist()
    assert again == found[::-1]
    return len(set(found)) == len(values)


def test_rows_that_differ_in_a_column_of_any_type_are_told_apart() -> None:
    for kind, values in KEYS:
        assert told_apart(kind, [None, *values]), kind
    assert told_apart(pa.float64(), [0.0, -0.0, 1.5, None])
    assert told_apart(pa.float32(), [0.0, -0.0, 1.5, None])
    assert told_apart(pa.duration("us"), [timedelta(1), timedelta(2), None])
    assert told_apart(pa.list_(pa.int32()), [[], [0], [0, 0], [None], [1, None], [None, 1], None])
    assert told_apart(pa.list_(pa.list_(pa.int32())), [[[1, 2], []], [[1], [2]], [[]], [], None])
    assert told_apart(pa.map_(pa.string(), pa.int32()), [[("a", None), ("b", 1)], [("a", 1), ("b", None)], [], None])
    fields = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])
    assert told_apart(fields, [{"x": 1, "y": None}, {"x": None, "y": []}, {"x": None, "y": None}, None])
    assert told_apart(pa.list_(fields), [[{"x": 1, "y": ["a"]}], [{"x": 1, "y": ["b"]}], [None], []])


def test_what_lies_under_a_null_does_not_count() -> None:
    garbage = pa.array([7, 8], pa.int64())
    left, right = (
        pa.Array.from_buffers(pa.int64(), 2, [pa.py_buffer(b"\0"), values.buffers()[1]])
        for values in (garbage, garbage.take(pa.array([1, 0])))
    )
    assert digests_of_rows(pa.table({"one": left})).tolist() == digests_of_rows(pa.table({"one": right})).tolist()
