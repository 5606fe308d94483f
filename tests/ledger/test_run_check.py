"""A run as it was written is intact. A change is found even if the checksums were made to fit."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.ledger import run as run_module
from oncebus.ledger.check import problems_of
from oncebus.ledger.names import Position, RunName
from oncebus.ledger.run import Run, encode_run
from oncebus.ledger.run_header import HEADER_BYTES, RunHeader
from tests.ledger.test_run import entries_of, near_rows, rows

HORIZON = 1000
NAME = RunName(Position(1, 0), Position(1, 0), 0, 1, 0, HORIZON, "aa")
SOME = entries_of([(2**60 * (at + 1), at, 100 + at, at, 5 + at % 2, 7 + at % 2) for at in range(9)])


def written(size: int = 9) -> tuple[RunName, bytearray]:
    return replace(NAME, size=size), bytearray(b"".join(encode_run(SOME.take(slice(0, size)), HORIZON)))


@given(rows=st.lists(st.one_of(rows, near_rows), max_size=20), block=st.sampled_from([1, 2, 3, 1000]))
def test_a_run_that_was_written_is_intact(rows: list[tuple[int, int, int, int, int, int]], block: int) -> None:
    data = memoryview(b"".join(encode_run(entries_of(rows), HORIZON)))
    with mock.patch.object(run_module, "BLOCK", block):
        assert problems_of(replace(NAME, size=len(rows)), data) == []


def test_every_flipped_byte_and_every_missing_byte_is_found() -> None:
    name, data = written()
    for at in range(len(data)):
        data[at] ^= 0x10
        assert len(problems_of(name, memoryview(data))) == 1, at
        data[at] ^= 0x10
        assert len(problems_of(name, memoryview(data)[:at])) == 1, at
    assert problems_of(name, memoryview(data)) == []
    assert problems_of(name, memoryview(data + b"\x00")) == [f"holds {len(data) + 1} bytes instead of {len(data)}."]


def sealed(data: bytearray, **changes: Any) -> memoryview:
    """Return the file with checksums that fit its content."""
    header = RunHeader.parse("run", memoryview(data), len(data))
    checksum = zlib.crc32(memoryview(data)[HEADER_BYTES:])
    return memoryview(replace(header, checksum=checksum, **changes).to_bytes() + bytes(data[HEADER_BYTES:]))


def swap_keys(data: bytearray, header: RunHeader) -> None:
    first, second = slice(header.high_at, header.high_at + 8), slice(header.high_at + 8, header.high_at + 16)
    data[first], data[second] = data[second], data[first]


def clear_filter(data: bytearray, header: RunHeader) -> None:
    data[header.filter_at] = 0


def misplace_span(data: bytearray, header: RunHeader) -> None:
    data[header.span_of_at + 3] = 2


def swap_spans(data: bytearray, header: RunHeader) -> None:
    first, second = slice(header.spans_at, header.spans_at + 16), slice(header.spans_at + 16, header.spans_at + 32)
    data[first], data[second] = data[second], data[first]


def move_time(data: bytearray, header: RunHeader) -> None:
    data[header.time_at + 7] = 1


@pytest.mark.parametrize("block", [4, 1000])
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (swap_keys, "is not sorted, so keys in it may not be found."),
        (clear_filter, "has a filter that does not belong to its keys, so keys in it may not be found."),
        (misplace_span, "has entries without a span."),
        (swap_spans, "has spans that are not ascending."),
        (move_time, "says wrongly when its entries are forgotten."),
    ],
)
def test_what_a_faulty_program_writes_is_found(
    change: Callable[[bytearray, RunHeader], None], problem: str, block: int
) -> None:
    name, data = written()
    change(data, RunHeader.parse("run", memoryview(data), len(data)))
    with mock.patch.object(run_module, "BLOCK", block):
        assert problem in problems_of(name, sealed(data))


@pytest.mark.parametrize("field", ["forgotten_from", "mostly_forgotten_from"])
@pytest.mark.parametrize("by", [-1, 1])
def test_a_wrong_horizon_in_the_header_is_found(field: str, by: int) -> None:
    name, data = written()
    right = getattr(RunHeader.parse("run", memoryview(data), len(data)), field)
    assert problems_of(name, sealed(data, **{field: right})) == []
    assert problems_of(name, sealed(data, **{field: right + by})) == ["says wrongly when its entries are forgotten."]


def test_a_name_that_does_not_fit_is_found() -> None:
    name, data = written()
    assert problems_of(replace(name, size=8), memoryview(data)) == ["has 9 entries, but 8 in its name."]
    assert problems_of(replace(name, horizon=7), memoryview(data)) == ["has the horizon 1000, but 7 in its name."]


def test_blocks_are_slices_of_all_entries() -> None:
    run = Run("run", memoryview(written()[1]))
    with mock.patch.object(run_module, "BLOCK", 4):
        blocks = list(run.entries().blocks())
    assert [len(some) for some in blocks] == [4, 4, 1]
    assert np.array_equal(np.concatenate([some.time for some in blocks]), SOME.time)
