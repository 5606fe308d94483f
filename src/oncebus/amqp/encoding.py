"""Encodes values to AMQP bytes, each in the shortest form of its type. `oncebus.amqp.types` lists the types."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from oncebus.amqp.types import (
    DEEPEST,
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    EncodeError,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

Writer = Callable[[Any, int], bytes]
"""Maps (value, depth) to bytes."""

_LENGTH = struct.Struct(">I").pack
_FRAME = struct.Struct(">II").pack
_LONG = struct.Struct(">BI").pack


def encode(value: object) -> bytes:
    """Return the encoding of a value. Raises `EncodeError` if AMQP cannot express it."""
    return _WRITERS[type(value)](value, 0)


def list_of(encoded: Sequence[bytes]) -> bytes:
    """Return the encoding of a list of values that are already encoded."""
    return _frame(0xC0, len(encoded), b"".join(encoded)) if encoded else b"\x45"


def map_of(encoded: Sequence[bytes]) -> bytes:
    """Return the encoding of a map, given its encoded keys and values, alternating."""
    return _frame(0xC1, len(encoded), b"".join(encoded))


class _Writers(dict[type, Writer]):
    """The writers by type. A type without a writer of its own uses the writer of its nearest base class."""

    def __missing__(self, kind: type) -> Writer:
        for base in kind.__mro__[1:]:
            if base in self:
                self[kind] = self[base]
                return self[base]
        raise EncodeError(f"AMQP has no type for a Python {kind.__qualname__}.")


def _fixed_writer(name: str, code: int, layout: str) -> Writer:
    pack = struct.Struct(">B" + layout).pack

    def write(value: Any, depth: int) -> bytes:  # noqa: ARG001
        try:
            return pack(code, value)
        except (struct.error, OverflowError):
            raise _out_of_range(name, value) from None

    return write


def _small(name: str, code: int, layout: str, small_code: int, zero: bytes | None = None) -> Writer:
    """Return a writer for a number that has a one-byte form and, for some types, a special form for zero."""
    pack = struct.Struct(">B" + layout).pack
    low, high = (-128, 127) if layout.islower() else (0, 255)
    # A negative number indexes from the end of the list, which is its two's complement.
    forms: list[bytes] = [bytes([small_code, n]) for n in range(256)]
    if zero is not None:
        forms[0] = zero

    def write(value: int, depth: int) -> bytes:  # noqa: ARG001
        if low <= value <= high:
            return forms[value]
        try:
            return pack(code, value)
        except struct.error:
            raise _out_of_range(name, value) from None

    return write


def _out_of_range(name: str, value: object) -> EncodeError:
    return EncodeError(f"AMQP {name} cannot hold {value!r}.")


def _utf8(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise _out_of_range("string", value) from None


def _ascii(value: str) -> bytes:
    try:
        return value.encode("ascii")
    except UnicodeEncodeError:
        raise _out_of_range("symbol", value) from None


def _variable(code: int, content: Callable[[Any], bytes]) -> Writer:
    heads = [bytes([code, n]) for n in range(256)]

    def write(value: Any, depth: int) -> bytes:  # noqa: ARG001
        data = content(value)
        size = len(data)
        return heads[size] + data if size < 256 else _LONG(code + 0x10, size) + data

    return write


def _character(value: str) -> bytes:
    if len(value) != 1 or "\ud800" <= value <= "\udfff":
        raise _out_of_range("char", value)
    return _LENGTH(ord(value))


def _decimal(value: Decimal32 | Decimal64 | Decimal128) -> bytes:
    if len(value) != value.width:
        raise _out_of_range(type(value).__name__.lower(), bytes(value))
    return bytes(value)


def _char(value: Any, depth: int) -> bytes:  # noqa: ARG001
    return b"\x73" + _character(value)


def _coded_writer(code: int, content: Callable[[Any], bytes]) -> Writer:
    start = bytes([code])

    def write(value: Any, depth: int) -> bytes:  # noqa: ARG001
        return start + content(value)

    return write


def _check_depth(depth: int) -> None:
    if depth >= DEEPEST:
        raise EncodeError(f"AMQP values may not be nested more than {DEEPEST} deep.")


def _encode_items(values: Iterable[Any], depth: int) -> bytes:
    _check_depth(depth)
    depth += 1
    return b"".join([_WRITERS[type(value)](value, depth) for value in values])


def _frame(code: int, count: int, content: bytes) -> bytes:
    size = len(content)
    if size < 255 and count < 256:
        return bytes((code, size + 1, count)) + content
    return bytes((code + 0x10,)) + _FRAME(size + 4, count) + content


def _list(value: Any, depth: int) -> bytes:
    return _frame(0xC0, len(value), _encode_items(value, depth)) if value else b"\x45"


def _flat(value: dict[Any, Any]) -> list[Any]:
    return [item for pair in value.items() for item in pair]


def _map(value: Any, depth: int) -> bytes:
    return _frame(0xC1, 2 * len(value), _encode_items(_flat(value), depth))


def _write_described(value: Any, depth: int) -> bytes:
    return b"\x00" + _encode_items(value, depth)


def _array(value: Any, depth: int) -> bytes:
    return _frame(0xE0, len(value), _array_content(value, depth))


def _array_content(value: Array, depth: int) -> bytes:
    """Return the constructor that all elements share, followed by the data of each element."""
    _check_depth(depth + len(value.descriptors))
    depth += 1
    descriptors = b"".join([b"\x00" + _WRITERS[type(item)](item, depth) for item in value.descriptors])
    code, data = _elements(value, depth)
    return descriptors + bytes([code]) + data


def _elements(value: Array, depth: int) -> tuple[int, bytes]:
    of = Long if value.of is int else value.of
    if of not in _ELEMENTS:
        raise EncodeError(f"AMQP has no array type for Python's {of.__qualname__}.")
    code, base, content = _ELEMENTS[of]
    for item in value:
        if not isinstance(item, base):
            raise EncodeError(f"AMQP array of {of.__qualname__} cannot hold {item!r}.")
    if code == 0x40 and value:
        raise EncodeError("AMQP array of null cannot hold elements: nothing would be written for them.")
    data = [content(item, depth) for item in value]
    if code < 0xA0:
        return code, b"".join(data)
    if code < 0xC0 and all(len(item) < 256 for item in data):
        return code, b"".join([bytes([len(item)]) + item for item in data])
    return code + 0x10, b"".join([_LENGTH(len(item)) + item for item in data])


def _bare(write: Writer) -> Writer:
    """Return a writer of a value's data without its one-byte code."""
    return lambda value, depth: write(value, depth)[1:]


def _depthless(content: Callable[[Any], bytes]) -> Writer:
    return lambda value, depth: content(value)  # noqa: ARG005


def _with_count(content: Callable[[Any, int], bytes], each: int) -> Writer:
    return lambda value, depth: _LENGTH(each * len(value)) + content(value, depth)


_FIXED: dict[type, tuple[str, int, str]] = {
    UByte: ("ubyte", 0x50, "B"),
    UShort: ("ushort", 0x60, "H"),
    UInt: ("uint", 0x70, "I"),
    ULong: ("ulong", 0x80, "Q"),
    Byte: ("byte", 0x51, "b"),
    Short: ("short", 0x61, "h"),
    Int: ("int", 0x71, "i"),
    Long: ("long", 0x81, "q"),
    Timestamp: ("timestamp", 0x83, "q"),
    Float: ("float", 0x72, "f"),
    float: ("double", 0x82, "d"),
}
_fixed_writers = {kind: _fixed_writer(*form) for kind, form in _FIXED.items()}
_long = _small("long", 0x81, "q", 0x55)
_coded_writers: dict[type, tuple[int, Writer]] = {
    Char: (0x73, _char),
    Decimal32: (0x74, _coded_writer(0x74, _decimal)),
    Decimal64: (0x84, _coded_writer(0x84, _decimal)),
    Decimal128: (0x94, _coded_writer(0x94, _decimal)),
    uuid.UUID: (0x98, _coded_writer(0x98, lambda value: value.bytes)),
}
_contents: dict[type, tuple[int, Callable[[Any], bytes]]] = {
    bytes: (0xA0, bytes),
    str: (0xA1, _utf8),
    Symbol: (0xA3, _ascii),
}

_WRITERS = _Writers(
    {
        **_fixed_writers,
        **{kind: write for kind, (_, write) in _coded_writers.items()},
        **{kind: _variable(code, content) for kind, (code, content) in _contents.items()},
        type(None): lambda value, depth: b"\x40",  # noqa: ARG005
        bool: lambda value, depth: b"\x41" if value else b"\x42",  # noqa: ARG005
        UInt: _small("uint", 0x70, "I", 0x52, b"\x43"),
        ULong: _small("ulong", 0x80, "Q", 0x53, b"\x44"),
        Int: _small("int", 0x71, "i", 0x54),
        int: _long,
        Long: _long,
        bytearray: _variable(0xA0, bytes),
        memoryview: _variable(0xA0, bytes),
        list: _list,
        tuple: _list,
        dict: _map,
        Described: _write_described,
        Array: _array,
    }
)

_ELEMENTS: dict[type, tuple[int, type, Writer]] = {
    # By the type of an array's elements: their code (the shorter, if there are two), the Python type they must have,
    # and a writer of one element's data, without its length.
    **{
        kind: (code, float if layout in "fd" else int, _bare(_fixed_writers[kind]))
        for kind, (_, code, layout) in _FIXED.items()
    },
    **{kind: (code, kind, _bare(write)) for kind, (code, write) in _coded_writers.items()},
    **{
        kind: (code, bytes if kind is bytes else str, _depthless(content))
        for kind, (code, content) in _contents.items()
    },
    type(None): (0x40, object, lambda value, depth: b""),  # noqa: ARG005
    bool: (0x56, bool, lambda value, depth: b"\x01" if value else b"\x00"),  # noqa: ARG005
    list: (0xC0, list, _with_count(_encode_items, 1)),
    dict: (0xC1, dict, _with_count(lambda value, depth: _encode_items(_flat(value), depth), 2)),
    Array: (0xE0, Array, _with_count(_array_content, 1)),
}
