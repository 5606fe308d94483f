"""The properties of entities that forms show: what they are called, and how their values are written and read.

What a value may be is not known here: the namespace says it when the entity is made or changed.
"""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass

from oncebus.durations import DAY, HOUR, MINUTE, SECOND
from oncebus.entities import NO_LIMIT, BadRequest, Entity, EntityStatus, iso_timespan, parse_timespan
from oncebus.entities.limits import LONGEST_LOCK, LONGEST_WINDOW, MOST_DELIVERIES, PARTITIONS, SHORTEST_WINDOW
from oncebus.portal.posted import Posted
from oncebus.portal.wording import in_words

_MOST_DIGITS = 12
WINDOW_UNITS = (("days", DAY), ("hours", HOUR), ("minutes", MINUTE), ("seconds", SECOND))


class Sort(enum.Enum):
    """How a value is written."""

    FLAG = "flag"
    NUMBER = "number"
    TEXT = "text"
    DURATION = "duration"
    # A number of each unit, or ISO 8601.
    WINDOW = "window"
    STATUS = "status"


@dataclass(frozen=True, slots=True)
class Property:
    """A property: the field of a description, its name in the texts of errors, and what people call it.

    `is_chosen_once` holds of what is chosen at creation; `is_further` of what few people change; `is_optional` of a
    number that need not be given.
    """

    field: str
    name: str
    title: str
    sort: Sort
    hint: str = ""
    is_chosen_once: bool = False
    is_further: bool = False
    is_optional: bool = False

    @property
    def first_field(self) -> str:
        """Where in a form it is typed, or begins to be."""
        return f"{self.field}-days" if self.sort is Sort.WINDOW else self.field


_DURATION = "Like PT1M30S or 00:01:30."

PROPERTIES = (
    Property(
        "requires_duplicate_detection",
        "RequiresDuplicateDetection",
        "Enable duplicate detection",
        Sort.FLAG,
        "A message whose MessageId was accepted less than one window ago is accepted and dropped.",
        is_chosen_once=True,
    ),
    Property(
        "duplicate_detection_history_time_window",
        "DuplicateDetectionHistoryTimeWindow",
        "Duplicate detection window",
        Sort.WINDOW,
        f"How long a MessageId is remembered: {in_words(SHORTEST_WINDOW)} to {in_words(LONGEST_WINDOW)}. "
        "The longer it is, the more ids are remembered.",
    ),
    Property(
        "requires_session",
        "RequiresSession",
        "Enable sessions",
        Sort.FLAG,
        "Messages have a SessionId, and those of one session go to one receiver in their order.",
        is_chosen_once=True,
    ),
    Property(
        "enable_partitioning",
        "EnablePartitioning",
        "Enable partitioning",
        Sort.FLAG,
        f"Messages are spread over {PARTITIONS} partitions. Duplicates are then told by their partition key too.",
        is_chosen_once=True,
    ),
    Property(
        "lock_duration",
        "LockDuration",
        "Lock duration",
        Sort.DURATION,
        f"For how long a receiver holds a message, {in_words(LONGEST_LOCK)} at most. {_DURATION}",
    ),
    Property(
        "max_delivery_count",
        "MaxDeliveryCount",
        "Max delivery count",
        Sort.NUMBER,
        f"After so many deliveries a message is a dead letter; 1 to {MOST_DELIVERIES}.",
    ),
    Property(
        "default_message_time_to_live",
        "DefaultMessageTimeToLive",
        "Message time to live",
        Sort.DURATION,
        f"Empty for no limit. {_DURATION}",
    ),
    Property(
        "dead_lettering_on_message_expiration",
        "DeadLetteringOnMessageExpiration",
        "Dead-letter messages that expire",
        Sort.FLAG,
        "Else they are deleted.",
    ),
    Property(
        "dead_lettering_on_filter_evaluation_exceptions",
        "DeadLetteringOnFilterEvaluationExceptions",
        "Dead-letter messages whose filters fail",
        Sort.FLAG,
    ),
    Property("forward_to", "ForwardTo", "Forward messages to", Sort.TEXT, "A queue or a topic. Empty for nowhere."),
    Property(
        "forward_dead_lettered_messages_to",
        "ForwardDeadLetteredMessagesTo",
        "Forward dead letters to",
        Sort.TEXT,
        "A queue or a topic. Empty for nowhere.",
    ),
    Property(
        "max_size_in_megabytes",
        "MaxSizeInMegabytes",
        "Max size in megabytes",
        Sort.NUMBER,
        "A multiple of 1024. Of a partitioned entity, asked for by the partition and shown for all.",
        is_further=True,
    ),
    Property(
        "max_message_size_in_kilobytes",
        "MaxMessageSizeInKilobytes",
        "Max message size in kilobytes",
        Sort.NUMBER,
        "Empty for what the tier gives.",
        is_further=True,
        is_optional=True,
    ),
    Property(
        "auto_delete_on_idle",
        "AutoDeleteOnIdle",
        "Delete when idle for",
        Sort.DURATION,
        f"Empty for never. {_DURATION}",
        is_further=True,
    ),
    Property(
        "user_metadata", "UserMetadata", "Note", Sort.TEXT, "For people: what this is and whose.", is_further=True
    ),
    Property("status", "Status", "Status", Sort.STATUS),
)


def properties_of(kind: type[Entity]) -> list[Property]:
    """Those that a kind of entity has."""
    fields = {field.name for field in dataclasses.fields(kind)}
    return [each for each in PROPERTIES if each.field in fields]


def written(entity: Entity) -> dict[str, str]:
    """The fields of a form that shows an entity as it is."""
    values: dict[str, str] = {}
    for each in properties_of(type(entity)):
        value = getattr(entity, each.field)
        if each.sort is Sort.FLAG:
            values[each.field] = "on" if value else ""
        elif each.sort is Sort.WINDOW:
            rest = value
            for unit, length in WINDOW_UNITS:
                count, rest = divmod(rest, length)
                values[f"{each.field}-{unit}"] = str(count)
            values[f"{each.field}-iso"] = iso_timespan(value) if rest else ""
        elif each.sort is Sort.DURATION:
            values[each.field] = "" if value >= NO_LIMIT else iso_timespan(value)
        else:
            values[each.field] = "" if value is None else str(value)
    return values


def read(each: Property, posted: Posted) -> object:
    """The value of a property in a form. Raises `BadRequest` for what cannot be one."""
    if each.sort is Sort.FLAG:
        return bool(posted[each.field])
    if each.sort is Sort.WINDOW:
        return _window(each, posted)
    text = posted[each.field].strip()
    if each.sort is Sort.DURATION:
        return parse_timespan(text, each.name) if text else NO_LIMIT
    if each.sort is Sort.NUMBER:
        return None if each.is_optional and not text else _number(text, each.title)
    if each.sort is Sort.STATUS:
        if text not in list(EntityStatus):
            raise BadRequest(f"The status {text!r:.100} is none of {', '.join(EntityStatus)}.")
        return EntityStatus(text)
    return text or None


def is_given(each: Property, posted: Posted) -> bool:
    """Whether a form has the property at all: browsers leave out what cannot be changed."""
    return any(name == each.field or name.startswith(f"{each.field}-") for name in posted.values())


def _window(each: Property, posted: Posted) -> int:
    text = posted[f"{each.field}-iso"].strip()
    if text:
        return parse_timespan(text, each.name)
    total = 0
    for unit, length in WINDOW_UNITS:
        count = posted[f"{each.field}-{unit}"].strip()
        if count:
            total += _number(count, f"number of {unit}") * length
    return total


def _number(text: str, title: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise BadRequest(f"The {title[:1].lower()}{title[1:]} has value {text!r:.100}. Not a whole number.")
    return int(text)
