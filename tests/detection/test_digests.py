from __future__ import annotations

from hashlib import blake2b, shake_256

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.detection import digests as module
from oncebus.detection.digests import Texts, Words, digests

SECRET, OTHER = b"s" * 32, b"t" * 32


def texts(values: list[bytes], gap: int = 0) -> Texts:
    """The values in one buffer, with some foreign bytes before each."""
    lengths = np.array([len(value) for value in values], np.int64)
    starts = np.cumsum(lengths + gap) - lengths
    return Texts(starts, lengths, np.frombuffer(b"".join(b"?" * gap + value for value in values), np.uint8))


def words(values: list[list[int]]) -> Words:
    return np.array(values, np.uint32)


def in_plain_integers(values: list[bytes | list[int]], secret: bytes) -> tuple[int, int]:
    """The digest of one row, computed one word at a time."""
    sums = [0] * 4
    for column, value in enumerate(values):
        if isinstance(value, bytes):
            shown = value if len(value) <= 256 else blake2b(value, digest_size=64, key=secret).digest()
            padded = shown + bytes(-len(shown) % 4)
            chosen = [len(value), *(int.from_bytes(padded[at : at + 4], "little") for at in range(0, len(padded), 4))]
        else:
            chosen = value
        stream = shake_256(column.to_bytes(4, "big") + secret).digest(32 * len(chosen))
        for at, word in enumerate(chosen):
            for lane in range(4):
                begin = 32 * at + 8 * lane
                sums[lane] += word * int.from_bytes(stream[begin : begin + 8], "little")
    a, b, c, d = (each % 2**64 >> 32 for each in sums)
    return a << 32 | b, c << 32 | d


def halves(columns: list[Words | Texts], secret: bytes = SECRET) -> list[tuple[int, int]]:
    high, low = digests(columns, secret)
    return list(zip(high.tolist(), low.tolist(), strict=True))


some_texts = st.binary(max_size=40) | st.binary(min_size=250, max_size=300)


@given(
    st.lists(st.tuples(some_texts, st.tuples(*[st.integers(0, 2**32 - 1)] * 2)), min_size=1, max_size=20),
    st.integers(0, 5),
)
def test_digests_are_the_same_as_in_plain_integers(rows: list[tuple[bytes, tuple[int, int]]], gap: int) -> None:
    found = halves([texts([text for text, _ in rows], gap), words([list(pair) for _, pair in rows])])
    assert found == [in_plain_integers([text, list(pair)], SECRET) for text, pair in rows]


def test_a_digest_does_not_depend_on_the_rows_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [b"x" * length for length in range(300)]
    alone = [halves([texts([value])])[0] for value in values]
    assert halves([texts(values)]) == alone
    monkeypatch.setattr(module, "_ROWS_AT_ONCE", 7)
    assert halves([texts(values)]) == alone
    assert len(set(alone)) == len(values)


def test_zeros_at_the_end_of_a_text_count() -> None:
    assert len(set(halves([texts([b"", b"\0", b"\0" * 4, b"a", b"a\0", b"a" + bytes(7)])]))) == 6


def test_columns_do_not_run_into_each_other() -> None:
    first, second = [b"a", b"ab", b"", b"abc"], [b"bc", b"c", b"abc", b""]
    assert len(set(halves([texts(first), texts(second)]))) == 4
    assert halves([texts([b"a"]), texts([b"b"])]) != halves([texts([b"b"]), texts([b"a"])])


def test_another_secret_gives_other_digests() -> None:
    for values in ([b"order-1"], [b"x" * 1000]):
        assert halves([texts(values)], SECRET) != halves([texts(values)], OTHER)


def test_single_bits_spread_over_the_digest() -> None:
    """Keys that differ in one bit, the worst case for sums, have different digests in each of the four lanes."""
    rows = [[1 << at, 0] for at in range(32)] + [[0, 1 << at] for at in range(32)]
    high, low = digests([words(rows)], SECRET)
    for lane in (high >> np.uint64(32), high & np.uint64(2**32 - 1), low >> np.uint64(32), low & np.uint64(2**32 - 1)):
        assert len(set(lane.tolist())) == 64
