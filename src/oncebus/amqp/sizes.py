"""Computes how many bytes a value takes, without decoding it.

The upper half of a format code determines how many bytes of data follow, or how wide the size field before them is.
"""

from __future__ import annotations

import struct

from oncebus.amqp.types import DecodeError

Buffer = bytes | bytearray | memoryview

CODES = frozenset(
    bytes.fromhex(
        "40 41 42 43 44 45  50 51 52 53 54 55 56  60 61  70 71 72 73 74  80 81 82 83 84  94 98"
        "a0 a1 a3  b0 b1 b3  c0 c1  d0 d1  e0  f0"
    )
)
"""The format codes of AMQP 1.0, without 00, which precedes a descriptor."""

SIZE_8, SIZE_32, DESCRIBED, UNKNOWN = -1, -2, -3, -4
_BY_CATEGORY = dict(enumerate([0, 1, 2, 4, 8, 16, *[SIZE_8, SIZE_32] * 3], start=4))
WIDTHS = [_BY_CATEGORY[code >> 4] if code in CODES else UNKNOWN for code in range(256)]
"""By format code: how many bytes of data follow, or one of the constants above."""
WIDTHS[0] = DESCRIBED

_ONE = struct.Struct(">I").unpack_from
TRUNCATED = "it runs past the end of the bytes that enclose it"


def skip(data: Buffer, offset: int, end: int) -> int:
    """Return the offset after the value at `offset`. Only its outer size is checked, not its content."""
    at, values = offset, 1
    while True:
        if at >= end:
            raise DecodeError("value", at, TRUNCATED)
        width = WIDTHS[data[at]]
        if width >= 0:
            at += 1 + width
        elif width == SIZE_8:
            at = at + 2 + data[at + 1] if at + 2 <= end else end + 1
        elif width == SIZE_32:
            at = at + 5 + _ONE(data, at + 1)[0] if at + 5 <= end else end + 1
        elif width == DESCRIBED:
            # Two values follow: the descriptor and the described value.
            at += 1
            values += 1
            continue
        else:
            raise DecodeError("value", at, f"format code 0x{data[at]:02x} is unknown")
        if at > end:
            raise DecodeError("value", offset, TRUNCATED)
        if values == 1:
            return at
        values -= 1
