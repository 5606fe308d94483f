"""The form that creates or changes an entity, and the values that it sets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from oncebus.model.entities import (
    BadRequest,
    Entity,
    EntityError,
    EntityStatus,
    Namespace,
    Queue,
    Topic,
)
from oncebus.model.entities.descriptions import blank
from oncebus.model.entities.limits import Occasion, check_entity, filled_in
from oncebus.protocols.management.given import Given
from oncebus.protocols.management.properties import WINDOW, Value, ValueType
from oncebus.protocols.portal.entity_properties import (
    PROPERTIES,
    WINDOW_UNITS,
    FormProperty,
    is_given,
    properties_of,
    read,
    window_hint,
)
from oncebus.protocols.portal.fields import Filled, area, check_box, choice, group, text_field
from oncebus.protocols.portal.markup import Content, Markup, tag
from oncebus.protocols.portal.posted import Posted
from oncebus.values.durations import HOUR
from oncebus.values.errors import OncebusError

DETECTION = "requires_duplicate_detection"
NAME = "name"

_BY_FIELD = {each.field: each for each in PROPERTIES}
TITLES = {each.first_field: each.title for each in PROPERTIES}
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


def read_form(base: Entity, posted: Posted, form: Filled) -> Given:
    """Return the values that a form sets for `base`, a new or an existing entity. Errors go into `form`."""
    values: dict[str, Value] = {}
    # Without detection the window has no effect.
    detects = bool(posted[DETECTION]) if DETECTION in posted or not base.id else getattr(base, DETECTION, False)
    for each in properties_of(type(base)):
        is_flag_of_new = each.type is ValueType.FLAG and (not base.id or not each.is_chosen_once)
        if not is_flag_of_new and not is_given(each, posted):
            continue
        if each.is_window and not detects:
            continue
        try:
            values[each.field] = read(each, posted)
        except BadRequest as error:
            form.errors[each.first_field] = error.summary
    return Given(values)


def place(error: OncebusError, form: Filled, name_field: str = NAME) -> None:
    """Attach an error to the form field that it concerns, or to the top of the form.

    `name_field` is the field for the name.
    """
    fields = {NAME: name_field, "filter": "expression", "action": "action"}
    fields |= {field: each.first_field for field, each in _BY_FIELD.items()}
    if error.field in fields:
        form.errors[fields[error.field]] = error.summary if isinstance(error, EntityError) else str(error)
    else:
        form.general.append(str(error))


def tier_refusal(kind: type[Entity], field: str | None, namespace: Namespace) -> str | None:
    """Return an error text if the tier does not allow a property, else None.

    With `field=None`, ask about the kind of entity as a whole.
    """
    tried = {field: _TRIED[field]} if field is not None and field in _TRIED else {}
    if field is not None and not tried:
        return None
    try:
        check_entity(filled_in(replace(blank(kind, "x", "x"), **tried), namespace), Occasion(namespace))
    except BadRequest as error:
        return error.summary
    return None


def entity_fields(kind: type[Entity], form: Filled, namespace: Namespace, old: Entity | None) -> list[Content]:
    """Return the form fields for all properties.

    For an existing entity, properties that cannot change are read-only.
    """
    known = properties_of(kind)
    # Most people decide only about detection when they create an entity.
    first = [each for each in known if (each.field in (DETECTION, WINDOW) if old is None else not each.is_further)]
    further = [each for each in known if each not in first]
    is_open = any(each.first_field in form.errors for each in further)
    usual, more = ([_shown(each, kind, form, namespace, old) for each in some] for some in (first, further))
    return [usual, tag("details", tag("summary", "More"), more, open=is_open)]


def _later(each: FormProperty, old: Entity | None) -> str:
    """Return a sentence about changing a property that is chosen at creation."""
    if each.field == DETECTION:
        is_on = isinstance(old, Queue | Topic) and old.requires_duplicate_detection
        switching_on = "" if is_on else "; switching it on later is an extension"
        return f" It cannot be switched off later{switching_on}."
    if old is not None:
        return " Chosen at creation: it cannot be changed."
    return f" It cannot be {'switched on or off' if each.type is ValueType.FLAG else 'changed'} later."


def _shown(
    each: FormProperty, kind: type[Entity], form: Filled, namespace: Namespace, old: Entity | None
) -> Markup | None:
    refusal = tier_refusal(kind, each.field, namespace)
    hint = refusal or each.hint
    if each.is_chosen_once and refusal is None:
        hint += _later(each, old)
    is_fixed = refusal is not None or (old is not None and each.is_chosen_once)
    match each.type:
        case ValueType.FLAG:
            return check_box(form, each.field, each.title, hint=hint, is_fixed=is_fixed)
        case ValueType.SPAN if each.is_window:
            return _window(each, form, old, namespace, tier_refusal(kind, DETECTION, namespace))
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


def _window(
    each: FormProperty,
    form: Filled,
    old: Entity | None,
    namespace: Namespace,
    refusal: str | None,
    needs: str | None = DETECTION,
) -> Markup:
    is_off = refusal is not None or (old is not None and not getattr(old, DETECTION))
    first = each.first_field
    units = [
        tag(
            "div",
            tag("label", unit.capitalize(), for_=f"{each.field}-{unit}"),
            tag(
                "input",
                id=f"{each.field}-{unit}",
                name=f"{each.field}-{unit}",
                type="text",
                inputmode="numeric",
                autocomplete="off",
                value=form.value(f"{each.field}-{unit}"),
                aria_describedby=f"{first}-error" if first in form.errors else None,
                aria_invalid="true" if first in form.errors else None,
            ),
        )
        for unit, _ in WINDOW_UNITS
    ]
    iso = text_field(
        form, f"{each.field}-iso", "Or as ISO 8601", placeholder="PT10M", title="If given, it takes precedence."
    )
    error = tag("p", form.errors[first], id=f"{first}-error", class_="error") if first in form.errors else None
    explanation = "Duplicates are not detected here." if is_off else window_hint(namespace.longest_window)
    return group(
        each.title,
        tag("p", explanation, class_="hint"),
        tag("div", units, iso, class_="units"),
        error,
        disabled=is_off,
        # The script hides the field while the box for detection is not checked.
        data_needs=needs if old is None and not is_off else None,
        class_="wrong" if error else None,
    )


def detection_fields(form: Filled, namespace: Namespace) -> list[Content]:
    """Return the fields to switch on detection: the window and the detection key."""
    key = _BY_FIELD["detection_key"]
    return [
        _window(_BY_FIELD[WINDOW], form, None, namespace, None, needs=None),
        text_field(form, key.field, key.title, hint=key.hint),
    ]
