"""The properties of a description, and their names in each protocol.

A property has one name in many forms. The Atom feed and the emulator's configuration write `LockDuration`. The Resource
Manager, templates and the entities file write `lockDuration`. Commands have flags, by the names of Azure's own command
line, and the portal has a title. This module says how a value is written; `oncebus.model.entities` which values are
allowed.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, fields

from oncebus.model.entities import (
    BadRequest,
    Entity,
    EntityStatus,
    Queue,
    Subscription,
    Topic,
    iso_timespan,
    parse_timespan,
)
from oncebus.model.entities.descriptions import CHOSEN_AT_CREATION, EntityKind
from oncebus.model.entities.names import property_name
from oncebus.values.errors import clip

Value = str | int | bool | EntityStatus | None


class ValueType(enum.Enum):
    """The type of a property's value."""

    TEXT = "text"
    FLAG = "flag"
    NUMBER = "number"
    SPAN = "span"
    STATUS = "status"


@dataclass(frozen=True, slots=True)
class Property:
    """A property that requests can set. `field` is the field of the description that holds it.

    `title` is the portal's label, empty if the portal does not show the property. `flags` are the names of the command
    line's option, none if there is no such option. `is_extension` marks a property that Azure does not have.
    """

    field: str
    type: ValueType
    title: str = ""
    flags: tuple[str, ...] = ()
    is_extension: bool = False

    @property
    def name(self) -> str:
        """Return its name in the Atom feed, the emulator's configuration and error texts."""
        return property_name(self.field)

    @property
    def camel(self) -> str:
        """Return its name in the Resource Manager's JSON, in templates and in the entities file."""
        return f"oncebus{self.name}" if self.is_extension else self.name[0].lower() + self.name[1:]

    def value_of(self, description: Entity) -> Value:
        """Return its value in a description."""
        value: Value = getattr(description, self.field)
        return value


WINDOW = "duplicate_detection_history_time_window"

ALL = (
    Property(
        "requires_duplicate_detection",
        ValueType.FLAG,
        "Enable duplicate detection",
        ("--enable-duplicate-detection", "--duplicate-detection"),
    ),
    Property(
        WINDOW,
        ValueType.SPAN,
        "Duplicate detection window",
        ("--duplicate-detection-history-time-window", "-d"),
    ),
    Property("detection_key", ValueType.TEXT, "Detection key", ("--detection-key",), is_extension=True),
    Property("enable_partitioning", ValueType.FLAG, "Enable partitioning", ("--enable-partitioning",)),
    Property("requires_session", ValueType.FLAG, "Enable sessions", ("--enable-session",)),
    Property("lock_duration", ValueType.SPAN, "Lock duration", ("--lock-duration",)),
    Property("max_delivery_count", ValueType.NUMBER, "Max delivery count", ("--max-delivery-count",)),
    Property(
        "max_size_in_megabytes",
        ValueType.NUMBER,
        "Max size in megabytes",
        ("--max-size", "--max-size-in-megabytes"),
    ),
    Property(
        "max_message_size_in_kilobytes",
        ValueType.NUMBER,
        "Max message size in kilobytes",
        ("--max-message-size", "--max-message-size-in-kilobytes"),
    ),
    Property(
        "default_message_time_to_live", ValueType.SPAN, "Message time to live", ("--default-message-time-to-live",)
    ),
    Property(
        "dead_lettering_on_message_expiration",
        ValueType.FLAG,
        "Dead-letter messages that expire",
        ("--enable-dead-lettering-on-message-expiration", "--message-expiration"),
    ),
    Property(
        "dead_lettering_on_filter_evaluation_exceptions",
        ValueType.FLAG,
        "Dead-letter messages whose filters fail",
        ("--dead-letter-on-filter-exceptions", "-f"),
    ),
    Property("forward_to", ValueType.TEXT, "Forward messages to", ("--forward-to",)),
    Property(
        "forward_dead_lettered_messages_to",
        ValueType.TEXT,
        "Forward dead letters to",
        ("--forward-dead-lettered-messages-to",),
    ),
    Property("auto_delete_on_idle", ValueType.SPAN, "Delete when idle for", ("--auto-delete-on-idle",)),
    Property("enable_express", ValueType.FLAG, flags=("--enable-express",)),
    Property("support_ordering", ValueType.FLAG, flags=("--enable-ordering",)),
    Property("enable_batched_operations", ValueType.FLAG, flags=("--enable-batched-operations",)),
    Property("status", ValueType.STATUS, "Status", ("--status",)),
    Property("user_metadata", ValueType.TEXT, "Note", ("--user-metadata",)),
    Property("is_anonymous_accessible", ValueType.FLAG),
    Property("filtering_messages_before_publishing", ValueType.FLAG),
)
"""All properties of all kinds of entities, in the order in which commands show them."""

BY_FIELD = {each.field: each for each in ALL}

TEXTS = tuple(each.field for each in ALL if each.type is ValueType.TEXT and each.field not in CHOSEN_AT_CREATION)
"""Fields that may be None and may be changed.

An update through the Atom feed that does not set such a field removes its text.
"""

PROPERTIES: dict[EntityKind, dict[str, Property]] = {
    kind: {property_name(each.name): BY_FIELD[each.name] for each in fields(kind) if each.name in BY_FIELD}
    for kind in (Queue, Topic, Subscription)
}
"""The properties of each kind of entity, by name, in the order of its fields."""

# The Resource Manager's descriptions lack these fields, so leaving one out must not reset it.
_NOT_IN_RESOURCES = {"is_anonymous_accessible", "filtering_messages_before_publishing", "user_metadata"}

RESOURCE_FIELDS: dict[EntityKind, frozenset[str]] = {
    kind: frozenset(each.field for each in known.values())
    - _NOT_IN_RESOURCES
    - ({"support_ordering"} if kind is Queue else set())
    for kind, known in PROPERTIES.items()
}
"""The fields that the Resource Manager's description of each kind of entity has."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_FLAGS = {"true": True, "1": True, "false": False, "0": False}
_STATUSES = {status.lower(): status for status in EntityStatus}
_WANTED = {ValueType.FLAG: "true or false", ValueType.NUMBER: "a whole number", ValueType.SPAN: "a duration"}


def write_value(value: Value, type_: ValueType) -> str:
    """Return the text form of a value, which must not be None."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and type_ is ValueType.SPAN:
        return iso_timespan(value)
    return str(value)


def read_value(text: str, name: str, type_: ValueType) -> Value:
    """Parse the text form of a value. Raises `BadRequest` with a text that calls the property `name`."""
    if type_ is ValueType.TEXT:
        return text
    stripped = text.strip()
    match type_:
        case ValueType.SPAN:
            return parse_timespan(stripped, name)
        case ValueType.STATUS:
            return read_status(stripped, name)
        case ValueType.FLAG if stripped.lower() in _FLAGS:
            return _FLAGS[stripped.lower()]
        case ValueType.NUMBER if _INTEGER.fullmatch(stripped):
            return int(stripped)
    raise bad_value(text, name, type_)


def read_status(text: str, name: str) -> EntityStatus:
    """Return the status that `text` names, in any letter case.

    Raises `BadRequest` with a text that calls the property `name`.
    """
    if text.lower() not in _STATUSES:
        raise BadRequest(f"The property '{name}' has value {clip(text)}. Not one of {', '.join(EntityStatus)}.")
    return _STATUSES[text.lower()]


def bad_value(value: object, name: str, type_: ValueType) -> BadRequest:
    """Return the error for a value that does not have its property's type."""
    return BadRequest(f"The property '{name}' has value {clip(value)}. Not {_WANTED.get(type_, 'a text')}.")
