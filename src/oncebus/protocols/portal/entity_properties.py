"""The properties of entities in forms: their labels, and the conversion of their values to and from text.

This module does not know which values are allowed: the catalogue checks them when the entity is created or changed.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from oncebus.model.entities import NO_LIMIT, BadRequest, Entity, EntityStatus, iso_timespan, parse_timespan
from oncebus.model.entities.descriptions import CHOSEN_AT_CREATION
from oncebus.model.entities.limits import LONGEST_LOCK, MOST_DELIVERIES, PARTITIONS, SHORTEST_WINDOW
from oncebus.model.entities.timespans import in_words
from oncebus.protocols.management.properties import BY_FIELD, WINDOW, Property, Value, ValueType
from oncebus.protocols.portal.posted import Posted
from oncebus.values.durations import DAY, HOUR, MINUTE, SECOND

_MOST_DIGITS = 12
_OPTIONAL = "max_message_size_in_kilobytes"
"""The field of an optional number. If it is empty, the tier's default applies."""
WINDOW_UNITS = (("days", DAY), ("hours", HOUR), ("minutes", MINUTE), ("seconds", SECOND))


@dataclass(frozen=True, slots=True)
class FormProperty:
    """A property in a form. `is_further` marks properties that few people change."""

    about: Property
    hint: str = ""
    is_further: bool = False

    @property
    def field(self) -> str:
        """Return the name of the field in the entity's description."""
        return self.about.field

    @property
    def type(self) -> ValueType:
        """Return the type of its value."""
        return self.about.type

    @property
    def title(self) -> str:
        """Return its label."""
        return self.about.title

    @property
    def is_window(self) -> bool:
        """Return whether the form has fields for days, hours, minutes and seconds, and one for ISO 8601."""
        return self.field == WINDOW

    @property
    def is_chosen_once(self) -> bool:
        """Return whether it is fixed at creation."""
        return self.field in CHOSEN_AT_CREATION

    @property
    def first_field(self) -> str:
        """Return the name of its form field, or of the first one if it has several."""
        return f"{self.field}-days" if self.is_window else self.field


_DURATION = "Like PT1M30S or 00:01:30."

PROPERTIES = (
    FormProperty(
        BY_FIELD["requires_duplicate_detection"],
        "A message whose MessageId came less than one window ago is a duplicate. The sender gets its answer, and the "
        "message is dropped.",
    ),
    FormProperty(BY_FIELD["duplicate_detection_history_time_window"]),
    FormProperty(
        BY_FIELD["requires_session"],
        "Every message has a SessionId. The messages of one session go to one receiver, in order.",
    ),
    FormProperty(
        BY_FIELD["enable_partitioning"],
        f"Messages are spread over {PARTITIONS} partitions. Only duplicates with the same partition key are detected.",
    ),
    FormProperty(
        BY_FIELD["lock_duration"],
        f"How long a receiver holds a message, at most {in_words(LONGEST_LOCK)}. {_DURATION}",
    ),
    FormProperty(
        BY_FIELD["max_delivery_count"],
        f"After this many deliveries a message becomes a dead letter; 1 to {MOST_DELIVERIES}.",
    ),
    FormProperty(BY_FIELD["default_message_time_to_live"], f"Leave empty for no limit. {_DURATION}"),
    FormProperty(BY_FIELD["dead_lettering_on_message_expiration"], "Otherwise they are deleted."),
    FormProperty(BY_FIELD["dead_lettering_on_filter_evaluation_exceptions"]),
    FormProperty(BY_FIELD["forward_to"], "A queue or a topic. Leave empty to forward nothing."),
    FormProperty(BY_FIELD["forward_dead_lettered_messages_to"], "A queue or a topic. Leave empty to forward nothing."),
    FormProperty(
        BY_FIELD["max_size_in_megabytes"],
        "A multiple of 1024. For a partitioned entity, give the size of one partition; the page shows the total.",
        is_further=True,
    ),
    FormProperty(BY_FIELD["max_message_size_in_kilobytes"], "Leave empty for the tier's default.", is_further=True),
    FormProperty(
        BY_FIELD["detection_key"],
        "Beyond Azure: what counts as the id of a message. Leave empty for the MessageId; write body for the content "
        "of the body, or property:NAME for an application property.",
        is_further=True,
    ),
    FormProperty(BY_FIELD["auto_delete_on_idle"], f"Leave empty for never. {_DURATION}", is_further=True),
    FormProperty(BY_FIELD["user_metadata"], "A note for people, for example purpose and owner.", is_further=True),
    FormProperty(BY_FIELD["status"]),
)
"""The properties that forms show, in their order."""


def window_hint(longest: int) -> str:
    """Return the hint of the window, whose limit is a setting of the broker."""
    return (
        f"How long a MessageId is remembered: {in_words(SHORTEST_WINDOW)} to {in_words(longest)}. "
        "The longer it is, the more ids are remembered."
    )


def properties_of(kind: type[Entity]) -> list[FormProperty]:
    """Return the properties of a kind of entity."""
    fields = {field.name for field in dataclasses.fields(kind)}
    return [each for each in PROPERTIES if each.field in fields]


def written(entity: Entity) -> dict[str, str]:
    """Return the form values that represent an entity, by field name."""
    values: dict[str, str] = {}
    for each in properties_of(type(entity)):
        value = getattr(entity, each.field)
        if each.type is ValueType.FLAG:
            values[each.field] = "on" if value else ""
        elif each.is_window:
            rest = value
            for unit, length in WINDOW_UNITS:
                count, rest = divmod(rest, length)
                values[f"{each.field}-{unit}"] = str(count)
            values[f"{each.field}-iso"] = iso_timespan(value) if rest else ""
        elif each.type is ValueType.SPAN:
            values[each.field] = "" if value >= NO_LIMIT else iso_timespan(value)
        else:
            values[each.field] = "" if value is None else str(value)
    return values


def read(each: FormProperty, posted: Posted) -> Value:
    """Parse the value of a property from a submitted form. Raises `BadRequest`."""
    if each.type is ValueType.FLAG:
        return bool(posted[each.field])
    if each.is_window:
        return read_window(posted)
    text = posted[each.field].strip()
    if each.type is ValueType.SPAN:
        return parse_timespan(text, each.about.name) if text else NO_LIMIT
    if each.type is ValueType.NUMBER:
        return None if not text and each.field == _OPTIONAL else _number(text, each.title)
    if each.type is ValueType.STATUS:
        if text not in list(EntityStatus):
            raise BadRequest(f"The status {text!r:.100} is not one of {', '.join(EntityStatus)}.")
        return EntityStatus(text)
    return text or None


def is_given(each: FormProperty, posted: Posted) -> bool:
    """Return whether a submitted form contains the property. Browsers do not send disabled fields."""
    return any(name == each.field or name.startswith(f"{each.field}-") for name in posted.values())


def read_window(posted: Posted) -> int:
    """Parse the window from a submitted form. Raises `BadRequest`."""
    text = posted[f"{WINDOW}-iso"].strip()
    if text:
        return parse_timespan(text, BY_FIELD[WINDOW].name)
    total = 0
    for unit, length in WINDOW_UNITS:
        count = posted[f"{WINDOW}-{unit}"].strip()
        if count:
            total += _number(count, f"number of {unit}") * length
    return total


def _number(text: str, title: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise BadRequest(f"The {title[:1].lower()}{title[1:]} has value {text!r:.100}. Not a whole number.")
    return int(text)
