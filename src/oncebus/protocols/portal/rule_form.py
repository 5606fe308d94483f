"""The form for a rule of a subscription."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from oncebus.amqp import Timestamp
from oncebus.model.entities import (
    BadRequest,
    CorrelationFilter,
    Filter,
    FilterValue,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from oncebus.protocols.http.properties import Value, value_of
from oncebus.protocols.portal.fields import Filled, area, choice, group, text_field
from oncebus.protocols.portal.markup import Markup, joined
from oncebus.protocols.portal.posted import Posted
from oncebus.protocols.portal.rule_words import TITLES
from oncebus.values.errors import OncebusError

FILTERS = [
    ("all", "All messages"),
    ("sql", ("Messages that a SQL filter matches")),
    ("correlation", "A correlation filter"),
]
RULE_NAME = "rule-name"
PROPERTIES = "properties"
LINES = 'One per line, as name: value. Quote a text that looks like another type: 3 is a number, "3" is a text.'
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def filter_fields(form: Filled, *, is_first: bool = False) -> Markup:
    """Return the form fields of a rule.

    Pass `is_first` for the first rule of a new subscription: its name is optional.
    """
    name = text_field(
        form, RULE_NAME, "Name of the rule", required=not is_first, hint="Defaults to $Default." if is_first else None
    )
    sql = group(
        "SQL filter",
        area(
            form,
            "expression",
            "Expression",
            rows=2,
            hint="Such as: colour = 'red' AND quantity > 3, or sys.Label LIKE 'order%'",
        ),
        data_when="filter=sql",
    )
    fields = [text_field(form, f"filter-{field}", title) for field, title in TITLES.items()]
    correlation = group(
        "Correlation filter: all given values must be equal",
        fields,
        area(form, PROPERTIES, "Own properties", hint=LINES),
        data_when="filter=correlation",
    )
    action = area(
        form,
        "action",
        "Action",
        rows=2,
        hint="Changes to the copy, such as: SET urgent = true. Leave empty for none.",
    )
    kind = choice(form, "filter", "Messages to take", FILTERS)
    return (
        group("First rule", kind, name, sql, correlation, action)
        if is_first
        else joined([name, kind, sql, correlation, action])
    )


def described_rule(posted: Posted, form: Filled, name: str) -> Rule | None:
    """Return the rule that a form describes. If it has errors, add them to `form` and return None."""
    chosen: Filter = TrueFilter()
    if posted["filter"] == "sql":
        chosen = SqlFilter(posted["expression"].strip())
        if not chosen.expression:
            form.errors["expression"] = "Give an expression."
    elif posted["filter"] == "correlation":
        fields = {field: posted[f"filter-{field}"] or None for field in TITLES}
        try:
            own = tuple((each, _compared(value)) for each, value in lines_of(posted[PROPERTIES]).items())
        except OncebusError as error:
            form.errors[PROPERTIES] = str(error)
            return None
        chosen = CorrelationFilter(**fields, properties=own)
    action = posted["action"].strip()
    return None if form.is_wrong else Rule(name, chosen, SqlAction(action) if action else None)


def lines_of(text: str) -> dict[str, Value]:
    """Parse properties from a text with one property per line. Raises `BadRequest`."""
    found: dict[str, Value] = {}
    for line in text.split("\n"):
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        name = name.strip()
        if not colon or not name:
            raise BadRequest(f"The line {line!r:.100} is not a property. Write it as name: value.", field=PROPERTIES)
        if name in found:
            raise BadRequest(f"The property {name!r:.100} is given more than once.", field=PROPERTIES)
        found[name] = value_of(name, value)
    return found


def _compared(value: Value) -> FilterValue:
    return _EPOCH + timedelta(milliseconds=value) if isinstance(value, Timestamp) else value
