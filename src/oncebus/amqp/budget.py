"""Limits the number of elements in a value, before any of them is decoded.

One byte on the wire can become 64 bytes in memory: an empty list is the single byte 0x45. So a value that is long
enough to exceed the limit is counted first. Counting creates no objects and stops as soon as the limit is exceeded.
"""

from __future__ import annotations

import struct

from oncebus.amqp.sizes import DESCRIBED, SIZE_32, UNKNOWN, WIDTHS, Buffer, skip
from oncebus.amqp.types import DecodeError

_ONE = struct.Struct(">I").unpack_from
_LISTS, _ARRAYS = 0xC0, 0xE0
"""The lowest format codes of lists and maps, and of arrays."""


def check_elements(data: Buffer, offset: int, end: int, most: int) -> int:
    """Return how many elements the value at `offset` has, including itself.

    Raises `DecodeError` if there are more than `most`.

    Malformed bytes end the count without an error: the decoder reports what is wrong with them.
    """
    used = 0
    # Ranges of elements still to count: start, end of the enclosing value, number; for an array, the shared code.
    spans: list[tuple[int, int, int, int | None]] = [(offset, end, 1, None)]
    while spans:
        at, stop, left, shared = spans.pop()
        used += left
        while left and used <= most:
            if shared is not None:
                code = shared
            elif at < stop:
                code = data[at]
                at += 1
            else:
                return used
            width = WIDTHS[code]
            if width == DESCRIBED:
                # A described value counts as three: itself, its descriptor and its value.
                left += 1
                used += 2
                continue
            if width == UNKNOWN:
                return used
            left -= 1
            if width >= 0:
                at += width
                continue
            wide = 4 if width == SIZE_32 else 1
            begin = at + wide
            if begin > stop:
                return used
            at = begin + _number(data, at, wide)
            if at > stop:
                return used
            if code >= _LISTS:
                elements = begin + wide
                if elements > at:
                    return used
                count, constructor = _number(data, begin, wide), None
                while code >= _ARRAYS and constructor is None:
                    if elements >= at:
                        return used
                    if data[elements] == 0:
                        try:
                            after = skip(data, elements + 1, at)
                        except DecodeError:
                            return used
                        spans.append((elements + 1, after, 1, None))
                        elements = after
                    else:
                        constructor = data[elements]
                        elements += 1
                spans.append((elements, at, count, constructor))
        if used > most:
            raise DecodeError("value", offset, f"it holds more than {most} elements")
    return used


def _number(data: Buffer, at: int, width: int) -> int:
    return data[at] if width == 1 else int(_ONE(data, at)[0])
