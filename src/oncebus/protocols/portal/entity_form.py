"""The form that creates or changes an entity: its fields, and the values that it sets.

This module does not know which values are allowed: the catalogue checks them when the entity is created or changed.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from oncebus.model.entities import (
    NO_LIMIT,
    BadRequest,
    Entity,
    EntityStatus,
    Namespace,
    Queue,
    Topic,
    iso_timespan,
    parse_timespan,
)
from oncebus.model.entities.descriptions import CHOSEN_AT_CREATION, blank
from oncebus.model.entities.limits import (
    LONGEST_LOCK,
    MOST_DELIVERIES,
    PARTITIONS,
    SHORTEST_WINDOW,
    Occasion,
    check_entity,
    fill_in,
)
from oncebus.model.entities.timespans import in_words
from oncebus.protocols.management.given import Given
from oncebus.protocols.management.properties import BY_FIELD, WINDOW, Property, Value, ValueType
from oncebus.protocols.portal.forms import Form, area, check_box, choice, group, text_field
from oncebus.protocols.portal.markup import Content, Markup, tag
from oncebus.values.durations import DAY, HOUR, MINUTE, SECOND

DETECTION = "requires_duplicate_detection"
NAME = "name"
WINDOW_UNITS = (("days", DAY), ("hours", HOUR), ("minutes", MINUTE), ("seconds", SECOND))
_MOST_DIGITS = 12
_DURATION = "Like PT1M30S or 00:01:30."

HINTS = {
    DETECTION: (
        "A message whose MessageId came less than one window ago is a duplicate. The sender gets its answer, and the "
        "message is dropped."
    ),
    WINDOW: "",
    "requires_session": "Every message has a SessionId. The messages of one session go to one receiver, in order.",
    "enable_partitioning": (
        f"Messages are spread over {PARTITIONS} partitions. Only duplicates with the same partition key are detected."
    ),
    "lock_duration": f"How long a receiver holds a message, at most {in_words(LONGEST_LOCK)}. {_DURATION}",
    "max_delivery_count": f"After this many deliveries a message becomes a dead letter; 1 to {MOST_DELIVERIES}.",
    "default_message_time_to_live": f"Leave empty for no limit. {_DURATION}",
    "dead_lettering_on_message_expiration": "Otherwise they are deleted.",
    "dead_lettering_on_filter_evaluation_exceptions": "",
    "forward_to": "A queue or a topic. Leave empty to forward nothing.",
    "forward_dead_lettered_messages_to": "A queue or a topic. Leave empty to forward nothing.",
    "max_size_in_megabytes": (
        "A multiple of 1024. For a partitioned entity, give the size of one partition; the page shows the total."
    ),
    "max_message_size_in_kilobytes": "Leave empty for the tier's default.",
    "detection_key": (
        "Beyond Azure: what counts as the id of a message. Leave empty for the MessageId; write body for the content "
        "of the body, or property:NAME for an application property."
    ),
    "auto_delete_on_idle": f"Leave empty for never. {_DURATION}",
    "user_metadata": "A note for people, for example purpose and owner.",
    "status": "",
}
"""The properties that forms show, in their order, with their hints."""
_FURTHER = frozenset(
    {
        "max_size_in_megabytes",
        "max_message_size_in_kilobytes",
        "detection_key",
        "auto_delete_on_idle",
        "user_metadata",
    }
)
"""Properties that few people change."""
FORM_FIELDS = {field: f"{field}-days" if field == WINDOW else field for field in HINTS}
"""The form field of each property, or its first one if it has several."""
ERROR_FIELDS = {NAME: NAME, **FORM_FIELDS}
"""The fields of the form, by the fields that errors name."""
TITLES = {FORM_FIELDS[field]: BY_FIELD[field].title for field in HINTS}
"""The labels of the fields."""

# Values to try, to learn whether the tier allows the property, and the error text if it does not.
_TRIED: dict[str, Any] = {
    DETECTION: True,
    "requires_session": True,
    "enable_partitioning": True,
    "forward_to": "elsewhere",
    "forward_dead_lettered_messages_to": "elsewhere",
    "auto_delete_on_idle": HOUR,
    "max_message_size_in_kilobytes": 1024,
}


# Values


def form_values(entity: Entity) -> dict[str, str]:
    """Return the form values that represent an entity, by field name."""
    values: dict[str, str] = {}
    for each in _properties_of(type(entity)):
        value = getattr(entity, each.field)
        if each.type is ValueType.FLAG:
            values[each.field] = "on" if value else ""
        elif each.field == WINDOW:
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


def read_entity(base: Entity, form: Form) -> Given:
    """Return the values that a form sets for `base`, a new or an existing entity. Errors go into `form`."""
    values: dict[str, Value] = {}
    # Without detection the window has no effect.
    detects = bool(form[DETECTION]) if DETECTION in form.values or not base.id else getattr(base, DETECTION, False)
    for each in _properties_of(type(base)):
        is_flag_of_new = each.type is ValueType.FLAG and (not base.id or each.field not in CHOSEN_AT_CREATION)
        # Browsers do not send disabled fields.
        is_given = any(name == each.field or name.startswith(f"{each.field}-") for name in form.values)
        if (is_flag_of_new or is_given) and (each.field != WINDOW or detects):
            try:
                values[each.field] = _read(each, form)
            except BadRequest as error:
                form.errors[FORM_FIELDS[each.field]] = error.summary
    return Given(values)


def read_window(form: Form) -> int:
    """Parse the window from a submitted form. Raises `BadRequest`."""
    text = form[f"{WINDOW}-iso"].strip()
    if text:
        return parse_timespan(text, BY_FIELD[WINDOW].name)
    total = 0
    for unit, length in WINDOW_UNITS:
        count = form[f"{WINDOW}-{unit}"].strip()
        if count:
            total += _number(count, f"number of {unit}") * length
    return total


def _properties_of(kind: type[Entity]) -> list[Property]:
    fields = {field.name for field in dataclasses.fields(kind)}
    return [BY_FIELD[field] for field in HINTS if field in fields]


def _read(each: Property, form: Form) -> Value:
    text = form[each.field].strip()
    match each.type:
        case ValueType.FLAG:
            return bool(form[each.field])
        case ValueType.SPAN if each.field == WINDOW:
            return read_window(form)
        case ValueType.SPAN:
            return parse_timespan(text, each.name) if text else NO_LIMIT
        case ValueType.NUMBER:
            # If it is empty, the tier's default applies.
            is_default = not text and each.field == "max_message_size_in_kilobytes"
            return None if is_default else _number(text, each.title)
        case ValueType.STATUS:
            if text not in list(EntityStatus):
                raise BadRequest(f"The status {text!r:.100} is not one of {', '.join(EntityStatus)}.")
            return EntityStatus(text)
    return text or None


def _number(text: str, title: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise BadRequest(f"The {title[:1].lower()}{title[1:]} has value {text!r:.100}. Not a whole number.")
    return int(text)


# Fields


def tier_refusal(kind: type[Entity], field: str | None, namespace: Namespace) -> str | None:
    """Return an error text if the tier does not allow a property, else None.

    With `field=None`, ask about the kind of entity as a whole.
    """
    tried = {field: _TRIED[field]} if field is not None and field in _TRIED else {}
    if field is not None and not tried:
        return None
    try:
        check_entity(fill_in(dataclasses.replace(blank(kind, "x", "x"), **tried), namespace), Occasion(namespace))
    except BadRequest as error:
        return error.summary
    return None


def entity_fields(kind: type[Entity], form: Form, namespace: Namespace, old: Entity | None) -> list[Content]:
    """Return the form fields for all properties.

    For an existing entity, properties that cannot change are read-only.
    """
    known = _properties_of(kind)
    # Most people decide only about detection when they create an entity.
    first = [
        each for each in known if (each.field in (DETECTION, WINDOW) if old is None else each.field not in _FURTHER)
    ]
    further = [each for each in known if each not in first]
    is_open = any(FORM_FIELDS[each.field] in form.errors for each in further)
    usual, more = ([_field(each, kind, form, namespace, old) for each in some] for some in (first, further))
    return [usual, tag("details", tag("summary", "More"), more, open=is_open)]


def detection_fields(form: Form, namespace: Namespace) -> list[Content]:
    """Return the fields to switch on detection: the window and the detection key."""
    key = BY_FIELD["detection_key"]
    return [window_fields(form, namespace), text_field(form, key.field, key.title, hint=HINTS[key.field])]


def _later(each: Property, old: Entity | None) -> str:
    """Return a sentence about changing a property that is chosen at creation."""
    if each.field == DETECTION:
        is_on = isinstance(old, Queue | Topic) and old.requires_duplicate_detection
        switching_on = "" if is_on else "; switching it on later is an extension"
        return f" It cannot be switched off later{switching_on}."
    if old is not None:
        return " Chosen at creation: it cannot be changed."
    return f" It cannot be {'switched on or off' if each.type is ValueType.FLAG else 'changed'} later."


def _field(each: Property, kind: type[Entity], form: Form, namespace: Namespace, old: Entity | None) -> Markup | None:
    refusal = tier_refusal(kind, each.field, namespace)
    is_chosen_once = each.field in CHOSEN_AT_CREATION
    hint = refusal or HINTS[each.field]
    if is_chosen_once and refusal is None:
        hint += _later(each, old)
    is_fixed = refusal is not None or (old is not None and is_chosen_once)
    match each.type:
        case ValueType.FLAG:
            return check_box(form, each.field, each.title, hint=hint, is_fixed=is_fixed)
        case ValueType.SPAN if each.field == WINDOW:
            is_off = tier_refusal(kind, DETECTION, namespace) is not None
            is_off |= old is not None and not getattr(old, DETECTION)
            # The script hides the field while the box for detection is not checked.
            needs = DETECTION if old is None and not is_off else None
            return window_fields(form, namespace, is_off=is_off, needs=needs)
        case ValueType.STATUS:
            options = [(status.value, status.value) for status in EntityStatus]
            return choice(form, each.field, each.title, options) if old is not None else None
        case ValueType.NUMBER:
            return text_field(
                form, each.field, each.title, hint=hint, is_fixed=is_fixed, inputmode="numeric", class_="short"
            )
    if each.field == "user_metadata":
        return area(form, each.field, each.title, hint=hint, rows=2)
    return text_field(form, each.field, each.title, hint=hint, is_fixed=is_fixed)


def window_fields(form: Form, namespace: Namespace, *, is_off: bool = False, needs: str | None = None) -> Markup:
    """Return the fields of the window: days, hours, minutes and seconds, and one for ISO 8601.

    `needs` is the box without which they are hidden.
    """
    first = FORM_FIELDS[WINDOW]
    wrong = form.errors.get(first)
    units = []
    for unit, _ in WINDOW_UNITS:
        name = f"{WINDOW}-{unit}"
        box = tag(
            "input",
            id=name,
            name=name,
            type="text",
            inputmode="numeric",
            autocomplete="off",
            value=form[name],
            aria_describedby=f"{first}-error" if wrong else None,
            aria_invalid="true" if wrong else None,
        )
        units.append(tag("div", tag("label", unit.capitalize(), for_=name), box))
    iso = text_field(
        form, f"{WINDOW}-iso", "Or as ISO 8601", placeholder="PT10M", title="If given, it takes precedence."
    )
    explanation = (
        "Duplicates are not detected here."
        if is_off
        else (
            f"How long a MessageId is remembered: {in_words(SHORTEST_WINDOW)} to {in_words(namespace.longest_window)}. "
            "The longer it is, the more ids are remembered."
        )
    )
    return group(
        BY_FIELD[WINDOW].title,
        tag("p", explanation, class_="hint"),
        tag("div", units, iso, class_="units"),
        tag("p", wrong, id=f"{first}-error", class_="error") if wrong else None,
        disabled=is_off,
        data_needs=needs,
        class_="wrong" if wrong else None,
    )
