"""Wrappers for the AMQP types that Python's own types do not distinguish, and the errors of the codec.

    AMQP                            Python
    null, boolean                   None, bool
    ubyte, ushort, uint, ulong      UByte, UShort, UInt, ULong
    byte, short, int, long          Byte, Short, Int, int (or Long)
    float, double                   Float, float
    decimal32, decimal64, decimal128  Decimal32, Decimal64, Decimal128: the bytes as they came
    char, timestamp, uuid           Char, Timestamp (milliseconds since 1970), uuid.UUID
    binary, string, symbol          bytes, str, Symbol
    list, map, array                list, dict, Array
    a described type                Described

Decoding returns these types, so encoding the result keeps every AMQP type. A wrapper equals the plain value it holds:
`Symbol("a") == "a"`, `UInt(1) == 1`. Ranges are checked when a value is encoded, not when a wrapper is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, NamedTuple, Self

from oncebus.values.errors import ErrorKind, OncebusError

DEEPEST = 64
"""How deep lists, maps, arrays and described types may be nested."""


class DecodeError(OncebusError, ValueError):
    """Malformed AMQP bytes. `name` is the type being read, `offset` the position of the error."""

    kind = ErrorKind.UNREADABLE

    def __init__(self, name: str, offset: int, reason: str) -> None:
        super().__init__(f"AMQP {name} at byte {offset}: {reason}.")
        self.name = name
        self.offset = offset
        self.reason = reason

    def __reduce__(self) -> tuple[type[Self], tuple[str, int, str]]:
        return type(self), (self.name, self.offset, self.reason)


class EncodeError(OncebusError, ValueError):
    """A value that AMQP cannot express, at all or in the given type."""

    kind = ErrorKind.BAD_REQUEST


class _Whole(int):
    __slots__ = ()
    # str() must be the plain number, as ids are compared by it: only repr() shows the type.
    __str__ = int.__repr__

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"


class UByte(_Whole):
    """8 bits, unsigned."""

    __slots__ = ()


class UShort(_Whole):
    """16 bits, unsigned."""

    __slots__ = ()


class UInt(_Whole):
    """32 bits, unsigned."""

    __slots__ = ()


class ULong(_Whole):
    """64 bits, unsigned."""

    __slots__ = ()


class Byte(_Whole):
    """8 bits, signed."""

    __slots__ = ()


class Short(_Whole):
    """16 bits, signed."""

    __slots__ = ()


class Int(_Whole):
    """32 bits, signed."""

    __slots__ = ()


class Long(_Whole):
    """64 bits, signed. A plain int is encoded as a long too, and a long is decoded to a plain int."""

    __slots__ = ()


class Timestamp(_Whole):
    """Milliseconds since 1970 UTC, 64 bits, signed."""

    __slots__ = ()


class Float(float):
    """A binary32 number. Encoding rounds a value that it cannot hold exactly."""

    __slots__ = ()
    __str__ = float.__repr__

    def __repr__(self) -> str:
        return f"Float({float(self)})"


class Char(str):
    """One Unicode character."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Char({str(self)!r})"


class Symbol(str):
    """An ASCII name."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Symbol({str(self)!r})"


class _Decimal(bytes):
    width: ClassVar[int]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({bytes(self)!r})"


class Decimal32(_Decimal):
    """The 4 bytes of a decimal32."""

    width = 4


class Decimal64(_Decimal):
    """The 8 bytes of a decimal64."""

    width = 8


class Decimal128(_Decimal):
    """The 16 bytes of a decimal128."""

    width = 16


class Described(NamedTuple):
    """A value and the descriptor that gives it a meaning."""

    descriptor: object
    value: object


class Array(list[object]):
    """Values of one type, which is encoded once for all of them.

    `of` is the Python type from the table of this module. If the elements are described, `descriptors` holds their
    common descriptors, the outermost first, and the elements are the bare values.
    """

    __slots__ = ("descriptors", "of")

    def __init__(self, of: type, items: Iterable[object] = (), descriptors: tuple[object, ...] = ()) -> None:
        super().__init__(items)
        self.of = of
        self.descriptors = descriptors

    def __reduce__(self) -> tuple[type[Self], tuple[type, list[object], tuple[object, ...]]]:
        return type(self), (self.of, list(self), self.descriptors)

    def __repr__(self) -> str:
        descriptors = f", descriptors={self.descriptors!r}" if self.descriptors else ""
        return f"Array({self.of.__name__}, {list(self)!r}{descriptors})"
