"""Packed rows and results come back as they were, and damage is never taken for a row."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.model.messages import PARTITION_SHIFT, Fate, LogRow, Result
from oncebus.model.packed import BadRows, Bases, pack_results, pack_row, unpack_results, unpack_rows
from tests.properties import examples

NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ROWS = st.builds(
    lambda origin, *values: LogRow(*values[:13], *(origin or (None, None)), *values[13:]),
    st.none() | st.tuples(NUMBERS, NUMBERS),
    *(NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS),
    st.none() | st.binary(min_size=16, max_size=16),
    *(NUMBERS, st.none() | NUMBERS, st.none() | NUMBERS),
    *(TEXTS, st.none() | TEXTS, st.none() | TEXTS),
    *(st.integers(0, 65535), NUMBERS, st.binary(max_size=40), st.none() | st.binary(max_size=40), st.none() | TEXTS),
)
RESULTS = st.builds(
    Result,
    ROWS,
    st.sampled_from(Fate),
    st.none() | NUMBERS,
    *(st.none() | TEXTS, st.none() | TEXTS),
    *(st.none() | NUMBERS, st.none() | NUMBERS),
)


def packed(rows: list[LogRow]) -> bytes:
    return b"".join(pack_row(at, *row[3:]) for at, row in enumerate(rows))


@examples(100)
@given(st.lists(ROWS, max_size=4))
def test_rows_come_back_with_the_numbers_of_their_frame(rows: list[LogRow]) -> None:
    wanted = [row._replace(position=100 + at, commit=7, catalogue=3) for at, row in enumerate(rows)]
    assert list(unpack_rows(packed(rows), 100, 7, 3)) == wanted


@examples(100)
@given(st.lists(st.tuples(RESULTS, st.booleans()), max_size=4))
def test_results_come_back_and_share_a_row(drawn: list[tuple[Result, bool]]) -> None:
    results: list[Result] = []
    for result, is_copy in drawn:
        results.append(result._replace(row=results[-1].row) if is_copy and results else result)
    data = pack_results(results)
    assert unpack_results(data) == results
    with_own_rows = pack_results([result._replace(row=LogRow(*result.row)) for result in results])
    assert unpack_results(with_own_rows) == results
    shared = sum(is_copy for _, is_copy in drawn[1:])
    assert len(data) <= len(with_own_rows) - 68 * shared


@examples(200)
@given(st.lists(RESULTS, min_size=1, max_size=3), st.data())
def test_damage_raises_an_error_or_gives_other_values_but_never_reads_beyond_the_end(
    results: list[Result], data: st.DataObject
) -> None:
    whole = pack_results(results)
    with pytest.raises(BadRows):
        unpack_results(whole[: data.draw(st.integers(1, len(whole) - 2))] + b"\0")
    at = data.draw(st.integers(0, len(whole) - 1))
    try:
        unpack_results(whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :])
    except BadRows as error:
        assert "at offset" in str(error)


@pytest.mark.parametrize("data", [b"\0", bytes(67), bytes(68), bytes(200), b"\x44\0\0\0" + bytes(80)])
def test_zeros_are_never_a_row(data: bytes) -> None:
    with pytest.raises(BadRows):
        list(unpack_rows(data, 1, 1, 1))
    with pytest.raises(BadRows):
        unpack_results(data)


def test_numbers_and_times_that_were_not_known_are_added_to_whole_frames() -> None:
    partition = 3 << PARTITION_SHIFT
    row = LogRow(1, 1, 1, 7, 1, 5, None, 0, None, None, "m", None, None, None, None, 0, 1, b"", b"", None)
    rows = [row, row._replace(position=2, sequence=partition + 1), row._replace(position=3, entity=8)]
    bases = Bases(1000, {(7, 0): 40, (7, 3): 50})
    found = list(unpack_rows(packed(rows), 10, 1, 1, bases))
    assert [(each.position, each.sequence, each.time) for each in found] == [
        (10, 41, 1005),
        (11, partition + 51, 1005),
        (12, 1, 1005),
    ]
