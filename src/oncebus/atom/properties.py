"""The properties that a description is made of, by the names that Azure's management has for them.

The names are those of the Atom feed; the Resource Manager's begin with a small letter. What a value may be is the
entities' to say: here is only how it is written.
"""

from __future__ import annotations

import enum
import re
from dataclasses import fields
from typing import NamedTuple

from oncebus.entities import BadRequest, EntityStatus, Queue, Subscription, Topic, iso_timespan, parse_timespan
from oncebus.errors import shown

Value = str | int | bool | EntityStatus | None


class Kind(enum.Enum):
    """What a property holds."""

    TEXT = "text"
    FLAG = "flag"
    NUMBER = "number"
    SPAN = "span"
    STATUS = "status"


class Property(NamedTuple):
    """A property that can be given: its name, and the field of the description that holds it."""

    name: str
    field: str
    kind: Kind

    @property
    def camel(self) -> str:
        """Its name in the Resource Manager's JSON."""
        return self.name[0].lower() + self.name[1:]

    def value_of(self, description: Queue | Topic | Subscription) -> Value:
        """Its value in a description."""
        value: Value = getattr(description, self.field)
        return value


TEXTS = ("forward_to", "forward_dead_lettered_messages_to", "user_metadata")
"""Fields of which there may be none: who does not name them in an update takes them away."""

CHOSEN_AT_CREATION = ("requires_duplicate_detection", "requires_session", "enable_partitioning")
"""Fields that an update leaves as they are when it does not name them, since it could only name the same."""

_SPANS = (
    "lock_duration",
    "default_message_time_to_live",
    "duplicate_detection_history_time_window",
    "auto_delete_on_idle",
)
_NUMBERS = ("max_size_in_megabytes", "max_delivery_count", "max_message_size_in_kilobytes")

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_FLAGS = {"true": True, "1": True, "false": False, "0": False}
_STATUSES = {status.lower(): status for status in EntityStatus}


def _kind_of(field: str, default: object) -> Kind | None:
    if field in _SPANS:
        return Kind.SPAN
    if field in _NUMBERS:
        return Kind.NUMBER
    if field in TEXTS:
        return Kind.TEXT
    if isinstance(default, bool):
        return Kind.FLAG
    return Kind.STATUS if isinstance(default, EntityStatus) else None


def _properties(kind: type[Queue | Topic | Subscription]) -> dict[str, Property]:
    found = {}
    for each in fields(kind):
        sort = _kind_of(each.name, each.default)
        if sort is not None:
            name = "".join(word.capitalize() for word in each.name.split("_"))
            found[name] = Property(name, each.name, sort)
    return found


PROPERTIES: dict[type[Queue | Topic | Subscription], dict[str, Property]] = {
    kind: _properties(kind) for kind in (Queue, Topic, Subscription)
}
"""Of each kind of description, by name, in the order of its fields."""


def written(value: Value, kind: Kind) -> str:
    """A value as text. There must be one."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and kind is Kind.SPAN:
        return iso_timespan(value)
    return str(value)


def read(text: str, name: str, kind: Kind) -> Value:
    """The value of a text. Raises `BadRequest`."""
    if kind is Kind.TEXT:
        return text
    stripped = text.strip()
    match kind:
        case Kind.SPAN:
            return parse_timespan(stripped, name)
        case Kind.STATUS:
            return read_status(stripped, name)
        case Kind.FLAG if stripped.lower() in _FLAGS:
            return _FLAGS[stripped.lower()]
        case Kind.NUMBER if _INTEGER.fullmatch(stripped):
            return int(stripped)
    raise bad_value(text, name, kind)


def read_status(text: str, name: str) -> EntityStatus:
    """The status of a name, in any case of letters."""
    if text.lower() not in _STATUSES:
        raise BadRequest(f"The property '{name}' has value {shown(text)}. Not one of {', '.join(EntityStatus)}.")
    return _STATUSES[text.lower()]


def bad_value(value: object, name: str, kind: Kind) -> BadRequest:
    """That a value is not of its property's kind."""
    wanted = {Kind.FLAG: "true or false", Kind.NUMBER: "a whole number", Kind.SPAN: "a duration"}.get(kind, "a text")
    return BadRequest(f"The property '{name}' has value {shown(value)}. Not {wanted}.")
