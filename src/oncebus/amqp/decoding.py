"""Decodes AMQP bytes to values.

A value is a constructor (a format code, or 0x00, a descriptor and another constructor) followed by its data:

    code        data
    0x4.        none
    0x5. … 0x9. 1, 2, 4, 8, 16 bytes
    0xA. 0xB.   size (1 or 4 bytes), then that many bytes
    0xC. 0xD.   size and number of elements (1 or 4 bytes each; the size does not include itself), then the elements:
                list and map
    0xE. 0xF.   size and number likewise, one constructor, then each element's data: array

A reader starts at the position after its format code. Each reader checks its data against the end of the enclosing
value, so no declared size or count is trusted alone. The only error is `DecodeError`.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any

from oncebus.amqp.budget import check_elements
from oncebus.amqp.limits import MOST_ELEMENTS
from oncebus.amqp.sizes import TRUNCATED, Buffer
from oncebus.amqp.types import (
    DEEPEST,
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    DecodeError,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

Reader = Callable[[Buffer, int, int, int], tuple[Any, int]]
"""Maps (bytes, position after the code, end, depth) to (value, position after the value)."""

_SEEDED = frozenset((str, Symbol, Char, bytes))
_MOST_GUESSABLE = 64
"""The maximum number of keys in one map that are neither text nor binary.

Python does not randomize their hashes, so a peer could send many keys that collide, and building the map would take
quadratic time.
"""

_ONE = struct.Struct(">I").unpack_from
_TWO = struct.Struct(">II").unpack_from


def decode(
    data: Buffer, offset: int = 0, end: int | None = None, *, most_elements: int = MOST_ELEMENTS
) -> tuple[Any, int]:
    """Return the value at `offset` and the offset after it.

    Raises `DecodeError` if the value is malformed, runs past `end` or holds more than `most_elements` elements.
    """
    if end is None:
        end = len(data)
    if not 0 <= offset < end:
        raise DecodeError("value", offset, "no bytes are left")
    # Every element takes at least one byte, so a shorter value cannot exceed the limit.
    if end - offset > most_elements:
        check_elements(data, offset, end, most_elements)
    return _READERS[data[offset]](data, offset + 1, end, 0)


def decode_all(data: Buffer, *, most_elements: int = MOST_ELEMENTS) -> Any:
    """Return the value that the bytes hold. Raises `DecodeError` if bytes are left over."""
    value, stop = decode(data, most_elements=most_elements)
    if stop != len(data):
        raise DecodeError("value", stop, f"{len(data) - stop} bytes are left over")
    return value


def open_list(data: Buffer, offset: int, end: int, name: str = "list") -> tuple[int, int, int]:
    """Return, for the list at `offset`, the position of its first element, its end, and its declared length."""
    return _open(data, offset, end, name, 0xC0)


def open_map(data: Buffer, offset: int, end: int, name: str = "map") -> tuple[int, int, int]:
    """Do the same as `open_list` for a map. Its elements are alternating keys and values."""
    return _open(data, offset, end, name, 0xC1)


def _open(data: Buffer, offset: int, end: int, name: str, short: int) -> tuple[int, int, int]:
    if offset >= end:
        raise _truncation_error(name, offset)
    code = data[offset]
    if code == short:
        return _short_frame(data, offset + 1, end, name)
    if code == short + 0x10:
        return _long_frame(data, offset + 1, end, name)
    if code == 0x45 and short == 0xC0:
        return offset + 1, offset + 1, 0
    raise DecodeError(name, offset, f"format code 0x{code:02x} does not encode a {'list' if short == 0xC0 else 'map'}")


def _truncation_error(name: str, offset: int) -> DecodeError:
    return DecodeError(name, offset, TRUNCATED)


def _fixed_reader(name: str, layout: str, make: Callable[[Any], object] | None = None) -> Reader:
    unpack_from = struct.Struct(layout).unpack_from
    width = struct.calcsize(layout)

    def read(data: Buffer, at: int, end: int, depth: int) -> tuple[Any, int]:  # noqa: ARG001
        stop = at + width
        if stop > end:
            raise _truncation_error(name, at)
        return unpack_from(data, at)[0], stop

    def read_and_make(data: Buffer, at: int, end: int, depth: int) -> tuple[Any, int]:  # noqa: ARG001
        stop = at + width
        if stop > end:
            raise _truncation_error(name, at)
        return make(unpack_from(data, at)[0]), stop  # type: ignore[misc]

    return read if make is None else read_and_make


def _table(name: str, values: list[Any]) -> Reader:
    """Return a reader that reads one byte and returns the value at that index."""
    made = tuple(values)

    def read(data: Buffer, at: int, end: int, depth: int) -> tuple[Any, int]:  # noqa: ARG001
        if at >= end:
            raise _truncation_error(name, at)
        try:
            return made[data[at]], at + 1
        except IndexError:
            raise DecodeError(name, at, f"0x{data[at]:02x} is not a {name}") from None

    return read


def _constant(value: object) -> Reader:
    def read(data: Buffer, at: int, end: int, depth: int) -> tuple[Any, int]:  # noqa: ARG001
        return value, at

    return read


def _char(data: Buffer, at: int, end: int, depth: int) -> tuple[Any, int]:  # noqa: ARG001
    if at + 4 > end:
        raise _truncation_error("char", at)
    (code_point,) = _ONE(data, at)
    if code_point > 0x10FFFF or 0xD800 <= code_point <= 0xDFFF:
        raise DecodeError("char", at, f"0x{code_point:x} is not a Unicode character")
    return Char(chr(code_point)), at + 4


def _variable(name: str, wide: bool, make: Callable[[Buffer], object]) -> Reader:
    def read_short(data: Buffer, at: int, end: int, depth: int) -> tuple[Any, int]:  # noqa: ARG001
        if at >= end:
            raise _truncation_error(name, at)
        begin = at + 1
        stop = begin + data[at]
        if stop > end:
            raise _truncation_error(name, at)
        try:
            return make(data[begin:stop]), stop
        except UnicodeDecodeError as error:
            raise _not_text(name, begin, error) from None

    def read_long(data: Buffer, at: int, end: int, depth: int) -> tuple[Any, int]:  # noqa: ARG001
        begin = at + 4
        if begin > end:
            raise _truncation_error(name, at)
        stop: int = begin + _ONE(data, at)[0]
        if stop > end:
            raise _truncation_error(name, at)
        try:
            return make(data[begin:stop]), stop
        except UnicodeDecodeError as error:
            raise _not_text(name, begin, error) from None

    return read_long if wide else read_short


def _not_text(name: str, begin: int, error: UnicodeDecodeError) -> DecodeError:
    return DecodeError(name, begin + error.start, f"it is not {error.encoding.upper()}")


def _text(data: Buffer) -> str:
    return str(data, "utf-8")


def _symbol(data: Buffer) -> Symbol:
    return Symbol(data, "ascii")


def _short_frame(data: Buffer, at: int, end: int, name: str) -> tuple[int, int, int]:
    """Return where the elements begin, where they end, and their number.

    Raises `DecodeError` if that many elements cannot fit, as each takes at least one byte.
    """
    if at + 2 > end:
        raise _truncation_error(name, at)
    stop = at + 1 + data[at]
    count = data[at + 1]
    if stop > end:
        raise _truncation_error(name, at)
    if count > stop - at - 2:
        raise DecodeError(name, at, f"{count} elements do not fit in {data[at]} bytes")
    return at + 2, stop, count


def _long_frame(data: Buffer, at: int, end: int, name: str) -> tuple[int, int, int]:
    if at + 8 > end:
        raise _truncation_error(name, at)
    size, count = _TWO(data, at)
    stop = at + 4 + size
    if stop > end:
        raise _truncation_error(name, at)
    if count > size - 4:
        raise DecodeError(name, at, f"{count} elements do not fit in {size} bytes")
    return at + 8, stop, count


Frame = Callable[[Buffer, int, int, str], tuple[int, int, int]]


def _items(data: Buffer, at: int, stop: int, count: int, depth: int, name: str) -> list[Any]:
    if depth >= DEEPEST:
        raise _too_deep(name, at)
    readers = _READERS
    depth += 1
    items = []
    for _ in range(count):
        if at >= stop:
            raise _truncation_error(name, at)
        value, at = readers[data[at]](data, at + 1, stop, depth)
        items.append(value)
    if at != stop:
        raise DecodeError(name, at, f"{stop - at} bytes are left over after its {count} elements")
    return items


def _list(name: str, frame: Frame) -> Reader:
    def read(data: Buffer, at: int, end: int, depth: int) -> tuple[Any, int]:
        at, stop, count = frame(data, at, end, name)
        return _items(data, at, stop, count, depth, name), stop

    return read


def _map(name: str, frame: Frame) -> Reader:
    def read(data: Buffer, at: int, end: int, depth: int) -> tuple[Any, int]:
        at, stop, count = frame(data, at, end, name)
        if count % 2:
            raise DecodeError(name, at, f"{count} elements are not pairs of keys and values")
        items = _items(data, at, stop, count, depth, name)
        if count > 2 * _MOST_GUESSABLE:
            guessable = sum(type(key) not in _SEEDED for key in items[::2])
            if guessable > _MOST_GUESSABLE:
                raise DecodeError(name, at, f"{guessable} of its keys are neither text nor binary")
        try:
            pairs = dict(zip(items[::2], items[1::2], strict=True))
        except TypeError:
            raise DecodeError(name, at, "one of its keys is a list, map or array") from None
        if 2 * len(pairs) != count:
            raise DecodeError(name, at, "two of its keys are equal")
        return pairs, stop

    return read


def _read_described(data: Buffer, at: int, end: int, depth: int) -> tuple[Any, int]:
    if depth >= DEEPEST:
        raise _too_deep("described type", at)
    depth += 1
    if at >= end:
        raise _truncation_error("descriptor", at)
    descriptor, at = _READERS[data[at]](data, at + 1, end, depth)
    if at >= end:
        raise _truncation_error("described value", at)
    value, at = _READERS[data[at]](data, at + 1, end, depth)
    return Described(descriptor, value), at


def _array(name: str, wide: bool) -> Reader:
    def read(data: Buffer, at: int, end: int, depth: int) -> tuple[Any, int]:
        if depth >= DEEPEST:
            raise _too_deep(name, at)
        depth += 1
        head = 8 if wide else 2
        if at + head > end:
            raise _truncation_error(name, at)
        size, count = _TWO(data, at) if wide else (data[at], data[at + 1])
        start, at, stop = at, at + head, at + head // 2 + size
        if stop > end:
            raise _truncation_error(name, start)
        descriptors: list[object] = []
        while at < stop and data[at] == 0:
            if at + 1 >= stop or len(descriptors) + depth >= DEEPEST:
                raise _truncation_error(name, at) if at + 1 >= stop else _too_deep(name, at)
            descriptor, at = _READERS[data[at + 1]](data, at + 2, stop, depth)
            descriptors.append(descriptor)
        if at >= stop:
            raise _truncation_error(name, start)
        code = data[at]
        of = _TYPES.get(code)
        if of is None:
            raise DecodeError(name, at, f"format code 0x{code:02x} is unknown")
        at += 1
        # Some elements take no bytes: without this check, nine bytes could declare four billion values.
        room = (stop - at) // _LEAST[code >> 4] if code >> 4 != 4 else 0 if code == 0x40 else size
        if count > room:
            raise DecodeError(name, start, f"{count} elements do not fit in {size} bytes")
        read_one = _READERS[code]
        items = []
        for _ in range(count):
            value, at = read_one(data, at, stop, depth)
            items.append(value)
        if at != stop:
            raise DecodeError(name, at, f"{stop - at} bytes are left over after its {count} elements")
        return Array(of, items, tuple(descriptors)), stop

    return read


def _too_deep(name: str, offset: int) -> DecodeError:
    return DecodeError(name, offset, f"it is nested more than {DEEPEST} deep")


def _unknown(data: Buffer, at: int, end: int, depth: int) -> tuple[Any, int]:  # noqa: ARG001
    raise DecodeError("value", at - 1, f"format code 0x{data[at - 1]:02x} is unknown")


def _uuid(data: bytes) -> uuid.UUID:
    return uuid.UUID(bytes=data)


_CODES: dict[int, tuple[type, Reader]] = {
    0x40: (type(None), _constant(None)),
    0x41: (bool, _constant(True)),
    0x42: (bool, _constant(False)),
    0x43: (UInt, _constant(UInt(0))),
    0x44: (ULong, _constant(ULong(0))),
    0x45: (list, lambda data, at, end, depth: ([], at)),  # noqa: ARG005
    0x50: (UByte, _table("ubyte", [UByte(n) for n in range(256)])),
    0x51: (Byte, _table("byte", [Byte(n - 256 if n > 127 else n) for n in range(256)])),
    0x52: (UInt, _table("uint", [UInt(n) for n in range(256)])),
    0x53: (ULong, _table("ulong", [ULong(n) for n in range(256)])),
    0x54: (Int, _table("int", [Int(n - 256 if n > 127 else n) for n in range(256)])),
    0x55: (int, _table("long", [n - 256 if n > 127 else n for n in range(256)])),
    0x56: (bool, _table("boolean", [False, True])),
    0x60: (UShort, _fixed_reader("ushort", ">H", UShort)),
    0x61: (Short, _fixed_reader("short", ">h", Short)),
    0x70: (UInt, _fixed_reader("uint", ">I", UInt)),
    0x71: (Int, _fixed_reader("int", ">i", Int)),
    0x72: (Float, _fixed_reader("float", ">f", Float)),
    0x73: (Char, _char),
    0x74: (Decimal32, _fixed_reader("decimal32", ">4s", Decimal32)),
    0x80: (ULong, _fixed_reader("ulong", ">Q", ULong)),
    0x81: (int, _fixed_reader("long", ">q")),
    0x82: (float, _fixed_reader("double", ">d")),
    0x83: (Timestamp, _fixed_reader("timestamp", ">q", Timestamp)),
    0x84: (Decimal64, _fixed_reader("decimal64", ">8s", Decimal64)),
    0x94: (Decimal128, _fixed_reader("decimal128", ">16s", Decimal128)),
    0x98: (uuid.UUID, _fixed_reader("uuid", ">16s", _uuid)),
    0xA0: (bytes, _variable("binary", False, bytes)),
    0xA1: (str, _variable("string", False, _text)),
    0xA3: (Symbol, _variable("symbol", False, _symbol)),
    0xB0: (bytes, _variable("binary", True, bytes)),
    0xB1: (str, _variable("string", True, _text)),
    0xB3: (Symbol, _variable("symbol", True, _symbol)),
    0xC0: (list, _list("list", _short_frame)),
    0xC1: (dict, _map("map", _short_frame)),
    0xD0: (list, _list("list", _long_frame)),
    0xD1: (dict, _map("map", _long_frame)),
    0xE0: (Array, _array("array", False)),
    0xF0: (Array, _array("array", True)),
}
_TYPES = {code: of for code, (of, _) in _CODES.items()}
_READERS: list[Reader] = [_CODES[code][1] if code in _CODES else _unknown for code in range(256)]
_READERS[0] = _read_described

_LEAST = dict(enumerate([1, 2, 4, 8, 16, 1, 4, 2, 8, 3, 9], start=5))
"""The fewest bytes that an element's data takes in an array, by the upper half of its format code."""
