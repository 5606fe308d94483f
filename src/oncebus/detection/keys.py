"""Computes which part of a batch a key belongs to.

A batch is judged in parts, one task each, and all rows of a key must be in one part. Spark assigns a row by its own
`hash` of the key's digest. This module computes the same function (Murmur3, 32 bits, seed 42, over the 16 bytes of the
digest), so that the ledger can assign its files to parts without Spark.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from oncebus.detection.values import Keys

DIGEST_BYTES = 16

_SEED = np.uint32(42)


def part_of(high: Keys, low: Keys, parts: int) -> npt.NDArray[np.int64]:
    """Return the part, from 0 to parts - 1, of each key. `high` and `low` are the halves of the digest, big-endian."""
    digests = np.stack([high, low], axis=1).astype(">u8")
    words = digests.view("<u4").reshape(len(high), 4)
    with np.errstate(over="ignore"):
        hashed = np.full(len(high), _SEED, np.uint32)
        for at in range(4):
            word = words[:, at].astype(np.uint32) * np.uint32(0xCC9E2D51)
            word = _rotate(word, 15) * np.uint32(0x1B873593)
            hashed = _rotate(hashed ^ word, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        hashed ^= np.uint32(DIGEST_BYTES)
        hashed = (hashed ^ (hashed >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        hashed = (hashed ^ (hashed >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        hashed ^= hashed >> np.uint32(16)
    return hashed.view(np.int32).astype(np.int64) % parts


def _rotate(values: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    return (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))
