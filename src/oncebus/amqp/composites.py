"""Composite types: described lists whose fields have a position, a name and a type.

    00 <descriptor> <list of the fields in order>

`@composite(code, name)` turns a dataclass into a composite type; each field is annotated with one of the kinds below. A
field without a default is mandatory. A null, or a list that ends early, stands for a field's default. All fields are
written, including trailing nulls, because some clients access them by index.

Reading is lenient where the meaning is clear: it accepts an integer of another width, a string for a symbol, and a
single value where several are allowed. Anything else raises `DecodeError`.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from oncebus.amqp.encoding import encode
from oncebus.amqp.types import Array, DecodeError, Described, EncodeError, Symbol, UByte, UInt, ULong, UShort

T = TypeVar("T")


class Kind(NamedTuple):
    """The type of a field.

    `read` converts a decoded value or raises ValueError; `write` converts a field for the encoder.
    """

    name: str
    read: Callable[[Any], object]
    write: Callable[[Any], object]


class _Field(NamedTuple):
    name: str
    kind: Kind
    is_mandatory: bool
    default: Any


class _Composite(NamedTuple):
    make: Callable[..., Any]
    name: str
    code: bytes
    fields: tuple[_Field, ...]


def _return_unchanged(value: Any) -> Any:
    return value


def _instance(name: str, of: type | tuple[type, ...], write: Callable[[Any], object] = _return_unchanged) -> Kind:
    def read(value: Any) -> object:
        if not isinstance(value, of):
            raise ValueError
        return value

    return Kind(name, read, write)


def _whole(name: str, of: type[int], bits: int) -> Kind:
    def read(value: Any) -> object:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << bits:
            raise ValueError
        return int(value)

    return Kind(name, read, of)


def _nothing(value: Any) -> object:  # noqa: ARG001
    return None


def _read_text(value: Any) -> object:
    if not isinstance(value, str):
        raise ValueError
    return str(value)


def _read_symbol(value: Any) -> object:
    if not isinstance(value, str) or not value.isascii():
        raise ValueError
    return Symbol(value)


def _read_symbols(value: Any) -> object:
    return [_read_symbol(item) for item in (value if isinstance(value, list) else [value])]


def _read_fields(value: Any) -> object:
    if not isinstance(value, dict):
        raise ValueError
    return {_read_symbol(name): item for name, item in value.items()}


def _write_fields(value: Any) -> object:
    return {Symbol(name): item for name, item in value.items()}


Bool = Annotated[bool, _instance("boolean", bool)]
Ubyte = Annotated[int, _whole("ubyte", UByte, 8)]
Ushort = Annotated[int, _whole("ushort", UShort, 16)]
Uint = Annotated[int, _whole("uint", UInt, 32)]
Ulong = Annotated[int, _whole("ulong", ULong, 64)]
Text = Annotated[str, Kind("string", _read_text, str)]
Binary = Annotated[bytes, _instance("binary", bytes)]
Name = Annotated[str, Kind("symbol", _read_symbol, Symbol)]
Names = Annotated[list[Symbol], Kind("symbols", _read_symbols, lambda value: Array(Symbol, map(Symbol, value)))]
"""Several symbols. A single symbol is read as a list of one; an array is written."""
Fields = Annotated[dict[Symbol, object], Kind("fields", _read_fields, _write_fields)]
"""A map with symbols as keys. A key that is plain text is written as a symbol."""
UnreadNames = Annotated[list[Symbol], Kind("anything", _nothing, lambda value: Array(Symbol, map(Symbol, value)))]
"""Symbols that we write but do not read: any value from the peer is accepted and discarded."""
UnreadFields = Annotated[dict[Symbol, object], Kind("anything", _nothing, _write_fields)]
"""A map with symbols as keys that we write but do not read."""
UnreadMap = Annotated[dict[Any, Any], Kind("anything", _nothing, _return_unchanged)]

_BY_DESCRIPTOR: dict[object, _Composite] = {}
_BY_CLASS: dict[type, _Composite] = {}


def composite(code: int, name: str) -> Callable[[type[T]], type[T]]:
    """Register a dataclass as the composite type with the descriptors `code` and `amqp:<name>:list`."""

    def register(cls: type[T]) -> type[T]:
        hints = get_type_hints(cls, include_extras=True)
        fields = tuple(
            _Field(
                field.name,
                _kind(hints[field.name]),
                field.default is dataclasses.MISSING,
                None if field.default is dataclasses.MISSING else field.default,
            )
            for field in dataclasses.fields(cls)  # type: ignore[arg-type]
        )
        made = _Composite(cls, name, b"\x00" + encode(ULong(code)), fields)
        _BY_CLASS[cls] = _BY_DESCRIPTOR[ULong(code)] = _BY_DESCRIPTOR[Symbol(f"amqp:{name}:list")] = made
        return cls

    return register


def from_described(value: Any, offset: int = 0) -> Any:
    """Return the composite for a described value, or the value itself if its descriptor is unknown.

    Raises `DecodeError` for a value without a descriptor, or with fields that do not fit the composite.
    """
    if not isinstance(value, Described):
        raise DecodeError("composite type", offset, f"{value!r:.100} has no descriptor")
    descriptor = value.descriptor
    found = _BY_DESCRIPTOR.get(descriptor) if type(descriptor) in (ULong, Symbol) else None
    if found is None:
        return value
    items = value.value
    if type(items) is not list:
        raise DecodeError(found.name, offset, "its fields are not a list")
    if len(items) > len(found.fields):
        raise DecodeError(found.name, offset, f"{len(items)} fields are more than {len(found.fields)}")
    values = []
    for field, item in zip(found.fields, items + [None] * (len(found.fields) - len(items)), strict=True):
        if item is None:
            if field.is_mandatory:
                raise DecodeError(found.name, offset, f"{_wire_name(field)} is missing")
            values.append(field.default)
            continue
        try:
            values.append(field.kind.read(item))
        except ValueError as error:
            if isinstance(error, DecodeError):
                raise
            reason = f"{_wire_name(field)} cannot be {item!r:.100}: expected {field.kind.name}"
            raise DecodeError(found.name, offset, reason) from None
    return found.make(**{field.name: item for field, item in zip(found.fields, values, strict=True)})


def to_bytes(value: object) -> bytes:
    """Return the encoding of a composite, or of any other value."""
    found = _BY_CLASS.get(type(value))
    return encode(value) if found is None else found.code + encode(_items(found, value))


def to_described(value: object) -> object:
    """Return a composite as a described value for the encoder; return any other value unchanged."""
    found = _BY_CLASS.get(type(value))
    if found is None:
        return value
    return Described(ULong(found.code[-1]), _items(found, value))


def _items(found: _Composite, value: object) -> list[object]:
    items = []
    for field in found.fields:
        item = getattr(value, field.name)
        if item is None and field.is_mandatory:
            raise EncodeError(f"AMQP {found.name} needs {_wire_name(field)}.")
        items.append(None if item is None else field.kind.write(item))
    return items


def _wire_name(field: _Field) -> str:
    return field.name.replace("_", "-")


def _kind(hint: Any) -> Kind:
    """Return the kind of a field from its annotation: a kind from above, or a union of composites and None."""
    options = [
        option
        for option in (get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,))
        if option is not type(None)
    ]
    if get_origin(options[0]) is Annotated:
        found = get_args(options[0])[1]
        assert isinstance(found, Kind)
        return found
    names = " or ".join(_BY_CLASS[option].name for option in options if option is not Described)
    allowed = tuple(options)

    def read(value: Any) -> object:
        made = from_described(value)
        if not isinstance(made, allowed):
            raise ValueError
        return made

    return Kind(names, read, to_described)
