"""Computes the 128-bit digest of a key, for many keys at once and under a secret.

A value becomes words of 32 bits. A value of fixed width is already a number of words; a text becomes its length, then
its bytes, padded with zeros. Each word is multiplied by a 64-bit number that depends on the secret and on the word's
position, and the products are added up modulo 2**64. Four such sums, with different multipliers, give 32 bits of the
digest each: their upper halves.

This is multilinear hashing. For any two different keys, the upper halves of one sum are equal with a chance of 2**-32
over the choice of the secret, and all four with 2**-128. So a sender who does not know the secret cannot construct two
ids with the same digest. See docs/decisions/0019-operator-speed.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b, shake_256
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oncebus.detection.values import Keys, Numbers

Words = npt.NDArray[np.uint32]
"""Values of fixed width, one row for each value."""

_LANES = 4
_LONGEST = 256
"""A longer text is replaced by its keyed BLAKE2 hash. Otherwise one long text would make every row expensive."""
_ROWS_AT_ONCE = 8192
"""The number of rows whose sums fit into a core's cache."""
_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF, 0xFFFFFFFF], np.uint64)


class Texts(NamedTuple):
    """Values of variable length. Value i is `data[starts[i] : starts[i] + lengths[i]]`."""

    starts: Numbers
    lengths: Numbers
    data: npt.NDArray[np.uint8]


def digests(columns: Sequence[Words | Texts], secret: bytes) -> tuple[Keys, Keys]:
    """Return the two halves of each row's digest.

    Rows with equal values have equal digests if the column types are the same.
    """
    prepared = [_shorten(column, secret) if isinstance(column, Texts) else column for column in columns]
    size = len(prepared[0].starts) if isinstance(prepared[0], Texts) else len(prepared[0])
    high, low = np.empty(size, np.uint64), np.empty(size, np.uint64)
    for begin in range(0, size, _ROWS_AT_ONCE):
        rows = slice(begin, min(begin + _ROWS_AT_ONCE, size))
        sums = np.zeros((_LANES, rows.stop - rows.start), np.uint64)
        for at, column in enumerate(prepared):
            if isinstance(column, Texts):
                _add_texts(sums, column, rows, secret, at)
            else:
                _add_words(sums, column[rows], secret, at)
        sums >>= np.uint64(32)
        high[rows] = (sums[0] << np.uint64(32)) | sums[1]
        low[rows] = (sums[2] << np.uint64(32)) | sums[3]
    return high, low


def _add_words(sums: Keys, words: Words, secret: bytes, column: int) -> None:
    multipliers = _multipliers(secret, column, words.shape[1])
    for at in range(words.shape[1]):
        sums += words[:, at].astype(np.uint64) * multipliers[at]


def _add_texts(sums: Keys, texts: Texts, rows: slice, secret: bytes, column: int) -> None:
    starts, lengths = texts.starts[rows], texts.lengths[rows]
    longest = int(lengths.max())
    words = (min(longest, _LONGEST) + 3) // 4
    multipliers = _multipliers(secret, column, 1 + words)
    sums += lengths.astype(np.uint64) * multipliers[0]
    if words == 0:
        return
    # The four bytes that begin at any place. `_shortened` added bytes behind the last text, so all of them exist.
    from_any_byte = np.ndarray((len(texts.data) - 3,), "<u4", texts.data, strides=(1,))
    shortest = int(lengths.min())
    for at in range(words):
        done = 4 * at
        if done + 4 <= shortest:
            word = from_any_byte[starts + done].astype(np.uint64)
        else:
            left = np.clip(lengths - done, 0, 4)
            word = from_any_byte[np.where(left > 0, starts + done, 0)] & _MASKS[left]
        sums += word * multipliers[1 + at]


def _shorten(texts: Texts, secret: bytes) -> Texts:
    """Return the texts with long ones replaced by hashes, and with padding after the last text.

    `lengths` is unchanged.
    """
    long = np.flatnonzero(texts.lengths > _LONGEST)
    if len(long) == 0:
        return texts._replace(data=np.append(texts.data, np.zeros(4, np.uint8)))
    hashed = b"".join(
        blake2b(texts.data[start : start + length].tobytes(), digest_size=64, key=secret).digest()
        + bytes(_LONGEST - 64)
        for start, length in zip(texts.starts[long].tolist(), texts.lengths[long].tolist(), strict=True)
    )
    starts = texts.starts.copy()
    starts[long] = len(texts.data) + np.arange(len(long)) * _LONGEST
    return Texts(
        starts, texts.lengths, np.concatenate([texts.data, np.frombuffer(hashed, np.uint8), np.zeros(4, np.uint8)])
    )


@lru_cache(maxsize=256)
def _multipliers(secret: bytes, column: int, words: int) -> npt.NDArray[np.uint64]:
    """Return a multiplier for each word and sum. More words only append multipliers; the first ones stay the same."""
    stream = shake_256(column.to_bytes(4, "big") + secret).digest(words * _LANES * 8)
    return np.frombuffer(stream, "<u8").reshape(words, _LANES, 1)
