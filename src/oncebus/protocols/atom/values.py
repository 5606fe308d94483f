"""Typed values in filters: values of properties, and of parameters.

    <KeyValueOfstringanyType><Key>color</Key>
      <Value i:type="d6p1:string" xmlns:d6p1="http://www.w3.org/2001/XMLSchema">red</Value></KeyValueOfstringanyType>

The JavaScript client expects the type after a prefix of four characters.
"""

from __future__ import annotations

from oncebus.model.entities import BadRequest, FilterValue
from oncebus.model.entities.filter_values import PARSERS, Parameters, type_and_text
from oncebus.protocols.atom import markup
from oncebus.protocols.atom.document import Element
from oncebus.values.errors import clip

_PAIR = "KeyValueOfstringanyType"
_PREFIX = "d6p1"
_SCHEMA = "http://www.w3.org/2001/XMLSchema"
# .NET's namespace for types that XML Schema lacks or defines differently.
_SERIALIZATION = "http://schemas.microsoft.com/2003/10/Serialization/"


def read_values(node: Element | None) -> Parameters:
    """Return the names and values in an element, in order. Raises `BadRequest`."""
    return tuple(_read_pair(each) for each in node or ())


def write_values(name: str, values: Parameters) -> str:
    """Return the element `name` with these names and values."""
    return markup.tag(name, "".join(_write_pair(key, value) for key, value in values))


def _read_pair(node: Element) -> tuple[str, FilterValue]:
    if not node.name.startswith("KeyValueOf"):
        raise BadRequest(f"The element {clip(node.name)} is not allowed here. It must be a {_PAIR}.")
    members = node.members()
    if "Key" not in members or "Value" not in members:
        raise BadRequest(f"A {_PAIR} needs a Key and a Value.")
    key, value = members["Key"].text, members["Value"]
    kind = value.type or "string"
    parse = PARSERS.get(kind)
    if parse is None:
        raise BadRequest(f"The value of {clip(key)} has the type {clip(kind)}. Not one of {', '.join(PARSERS)}.")
    try:
        return key, parse(value.text)
    except (ValueError, OverflowError):
        raise BadRequest(f"The value of {clip(key)} is {clip(value.text)}. It must have the type {kind}.") from None


def _write_pair(key: str, value: FilterValue) -> str:
    kind, text = type_and_text(value)
    namespace = _SERIALIZATION if kind in ("guid", "duration") else _SCHEMA
    attributes = {"i:type": f"{_PREFIX}:{kind}", f"xmlns:{_PREFIX}": namespace}
    return markup.tag(_PAIR, markup.field("Key", key) + markup.tag("Value", markup.text(text), attributes))
