"""How many elements a value may hold, counted before anything is made of them.

A byte on the wire can become 64 in memory: an empty list is the one byte 0x45. So a value is counted first, where it is
long enough to hold too many; counting makes no objects of it, and stops as soon as the budget is spent.
"""

from __future__ import annotations

import struct

from oncebus.amqp.sizes import DESCRIBED, SIZE_32, UNKNOWN, WIDTHS, Buffer, skip
from oncebus.amqp.types import DecodeError

_ONE = struct.Struct(">I").unpack_from
_LISTS, _ARRAYS = 0xC0, 0xE0
"""The least codes of what holds elements."""


def check_elements(data: Buffer, offset: int, end: int, most: int) -> int:
    """How many elements the value at `offset` holds, itself included. Raises DecodeError beyond `most`.

    Bytes that are no AMQP end the count: the decoder says what is wrong with them.
    """
    used = 0
    # Where elements lie: their beginning, the end of what holds them, their number; in an array, the code they share.
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
                # A descriptor and a value follow, besides what holds them.
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
                            behind = skip(data, elements + 1, at)
                        except DecodeError:
                            return used
                        spans.append((elements + 1, behind, 1, None))
                        elements = behind
                    else:
                        constructor = data[elements]
                        elements += 1
                spans.append((elements, at, count, constructor))
        if used > most:
            raise DecodeError("value", offset, f"it holds more than {most} elements")
    return used


def _number(data: Buffer, at: int, width: int) -> int:
    return data[at] if width == 1 else int(_ONE(data, at)[0])
