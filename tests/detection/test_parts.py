"""The part of a key is Murmur3 of its digest. `test_keys` compares it with Spark itself."""

from __future__ import annotations

from random import Random

import numpy as np

from oncebus.detection import part_of

MASK = 2**32 - 1


def in_plain_integers(high: int, low: int, parts: int) -> int:
    def rotate(value: int, bits: int) -> int:
        return (value << bits | value >> (32 - bits)) & MASK

    data, hashed = high.to_bytes(8, "big") + low.to_bytes(8, "big"), 42
    for at in range(0, 16, 4):
        word = int.from_bytes(data[at : at + 4], "little") * 0xCC9E2D51 & MASK
        hashed = (rotate(hashed ^ (rotate(word, 15) * 0x1B873593 & MASK), 13) * 5 + 0xE6546B64) & MASK
    hashed ^= 16
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & MASK
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & MASK
    hashed ^= hashed >> 16
    # The remainder of a negative number counts from below, as in Spark's pmod.
    return (hashed - 2**32 if hashed >= 2**31 else hashed) % parts


def test_parts_are_the_same_as_in_plain_integers() -> None:
    chance = Random(1)
    pairs = [(chance.getrandbits(64), chance.getrandbits(64)) for _ in range(200)] + [(0, 0), (2**64 - 1, 2**64 - 1)]
    high, low = (np.array(column, np.uint64) for column in zip(*pairs, strict=True))
    for parts in (1, 2, 7, 2**31 - 1):
        assert part_of(high, low, parts).tolist() == [in_plain_integers(*pair, parts) for pair in pairs]
