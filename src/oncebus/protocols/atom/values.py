"""Typed values in filters: values of properties, and of parameters.

    <KeyValueOfstringanyType><Key>color</Key>
      <Value i:type="d6p1:string" xmlns:d6p1="http://www.w3.org/2001/XMLSchema">red</Value></KeyValueOfstringanyType>

The JavaScript client expects the type after a prefix of four characters.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from uuid import UUID

from oncebus.amqp.encoding import encode
from oncebus.amqp.types import Byte, Float, Int, Long, Short, UByte, UInt, ULong, UShort
from oncebus.model.entities import BadRequest, FilterValue, iso_timespan
from oncebus.model.entities.filter_values import Moment, Parameters, Span, parse_decimal
from oncebus.protocols.atom import markup
from oncebus.protocols.atom.document import Element
from oncebus.values.errors import shown

_PAIR = "KeyValueOfstringanyType"
_PREFIX = "d6p1"
_SCHEMA = "http://www.w3.org/2001/XMLSchema"
# .NET's namespace for types that XML Schema lacks or defines differently.
_SERIALIZATION = "http://schemas.microsoft.com/2003/10/Serialization/"

_WHOLE: dict[str, type[int]] = {
    "int": Int,
    "long": Long,
    "short": Short,
    "byte": Byte,
    "unsignedByte": UByte,
    "unsignedShort": UShort,
    "unsignedInt": UInt,
    "unsignedLong": ULong,
}
_NAMES_OF_WHOLE = {kind: name for name, kind in _WHOLE.items()}
_INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_FLAGS = {"true": True, "1": True, "false": False, "0": False}
_MICROSECOND = timedelta(microseconds=1)


def read_values(node: Element | None) -> Parameters:
    """Return the names and values in an element, in order. Raises `BadRequest`."""
    return tuple(_pair(each) for each in node or ())


def written_values(name: str, values: Parameters) -> str:
    """Return the element `name` with these names and values."""
    return markup.tag(name, "".join(_written_pair(key, value) for key, value in values))


def _pair(node: Element) -> tuple[str, FilterValue]:
    if not node.name.startswith("KeyValueOf"):
        raise BadRequest(f"The element {shown(node.name)} is not allowed here. It must be a {_PAIR}.")
    members = node.members()
    if "Key" not in members or "Value" not in members:
        raise BadRequest(f"A {_PAIR} needs a Key and a Value.")
    key, value = members["Key"].text, members["Value"]
    kind = value.type or "string"
    read = _READERS.get(kind)
    if read is None:
        raise BadRequest(f"The value of {shown(key)} has the type {shown(kind)}. Not one of {', '.join(_READERS)}.")
    try:
        return key, read(value.text)
    except (ValueError, OverflowError):
        raise BadRequest(f"The value of {shown(key)} is {shown(value.text)}. It must have the type {kind}.") from None


def _string(text: str) -> str:
    return text


def _integer(kind: type[int], text: str) -> int:
    stripped = text.strip()
    if not _INTEGER.fullmatch(stripped):
        raise ValueError
    # A plain int: a range is searched number by number for one of a subclass.
    if int(stripped) not in _INT64:
        raise ValueError
    value = kind(stripped)
    # Raises if the number does not fit its type.
    encode(value)
    return value


def _float(text: str) -> float:
    return float(text.strip())


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in _FLAGS:
        raise ValueError
    return _FLAGS[word]


def _binary(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error:
        raise ValueError from None


_READERS: dict[str, Callable[[str], FilterValue]] = {
    "string": _string,
    **{name: partial(_integer, kind) for name, kind in _WHOLE.items()},
    "double": _float,
    "float": lambda text: Float(_float(text)),
    "decimal": parse_decimal,
    "boolean": _boolean,
    "dateTime": Moment.parse,
    "duration": Span.parse,
    "guid": UUID,
    "base64Binary": _binary,
    "anyURI": _string,
}


def _written_pair(key: str, value: FilterValue) -> str:
    kind, text = _typed(value)
    namespace = _SERIALIZATION if kind in ("guid", "duration") else _SCHEMA
    attributes = {"i:type": f"{_PREFIX}:{kind}", f"xmlns:{_PREFIX}": namespace}
    return markup.tag(_PAIR, markup.field("Key", key) + markup.tag("Value", markup.text(text), attributes))


def _typed(value: FilterValue) -> tuple[str, str]:
    match value:
        case bool():
            return "boolean", "true" if value else "false"
        case int():
            return _NAMES_OF_WHOLE.get(type(value)) or ("int" if value in _INT32 else "long"), str(value)
        case float():
            return "float" if isinstance(value, Float) else "double", _written_float(value)
        case Decimal():
            return "decimal", f"{value:f}"
        case Moment():
            return "dateTime", value.text
        case Span():
            return "duration", value.text
        case datetime():
            text = value.isoformat()
            return "dateTime", text.removesuffix("+00:00") + "Z" if value.tzinfo is UTC else text
        case timedelta():
            return "duration", iso_timespan(value // _MICROSECOND)
        case UUID():
            return "guid", str(value)
        case bytes():
            return "base64Binary", base64.b64encode(value).decode()
    return "string", value


def _written_float(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    if math.isnan(value):
        return "NaN"
    return "INF" if value > 0 else "-INF"
