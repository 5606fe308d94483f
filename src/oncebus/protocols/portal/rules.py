"""The rules of a subscription: in words, as a form, and the pages that add and remove them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from starlette.responses import Response

from oncebus.amqp.types import Timestamp
from oncebus.model.access import Operation
from oncebus.model.entities import (
    BadRequest,
    Catalogue,
    CorrelationFilter,
    FalseFilter,
    Filter,
    FilterValue,
    Rule,
    SqlAction,
    SqlFilter,
    Subscription,
    TrueFilter,
)
from oncebus.model.entities.filter_values import Parameters
from oncebus.model.entities.timespans import in_words
from oncebus.protocols.http.properties import Value, value_of
from oncebus.protocols.management.rules import CORRELATED
from oncebus.protocols.portal.entity_head import entity_page
from oncebus.protocols.portal.forms import Form, area, button, choice, group, list_errors, text_field
from oncebus.protocols.portal.links import link
from oncebus.protocols.portal.markup import Content, Markup, join_markup, tag
from oncebus.protocols.portal.visits import Visit
from oncebus.values.errors import OncebusError

FILTERS = [
    ("all", "All messages"),
    ("sql", "Messages that a SQL filter matches"),
    ("correlation", "A correlation filter"),
]
RULE_NAME = "rule-name"
PROPERTIES = "properties"
LINES = 'One per line, as name: value. Quote a text that looks like another type: 3 is a number, "3" is a text.'
ERROR_FIELDS = {"filter": "expression", "action": "action"}
"""The fields of a rule's form, by the fields that errors name."""
TITLES = {field: "Label (subject)" if field == "label" else name for name, field in CORRELATED.items()}
"""Labels of the fields that a correlation filter compares."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# Adding and removing


async def show_add(visit: Visit) -> Response:
    """Return the page with the empty form."""
    visit.require(Operation.CREATE_ENTITY, visit.path)
    return await _page(visit, _subscription(visit), Form({"filter": "sql"}))


async def add(visit: Visit) -> Response:
    """Add the rule that the form describes, or return the form with its errors."""
    visit.require(Operation.CREATE_ENTITY, visit.path)
    owner, form = _subscription(visit), visit.form
    rule = read_rule(form, form[RULE_NAME].strip())

    def how(catalogue: Catalogue, now: int) -> Catalogue:
        return catalogue.create_rule(owner.topic, owner.name, rule, now)

    status = await visit.change(how, {"name": RULE_NAME, **ERROR_FIELDS})
    if status != 200:
        return await _page(visit, owner, form, status)
    return visit.go_to(link("entity", path=owner.path), f"The rule '{rule.name}' was added.")


async def remove(visit: Visit) -> Response:
    """Remove the rule that the form names."""
    visit.require(Operation.DELETE_ENTITY, visit.path)
    owner, name = _subscription(visit), visit.form["rule"]
    await visit.desk.broker.change(lambda catalogue, _: catalogue.delete_rule(owner.topic, owner.name, name))
    return visit.go_to(link("entity", path=owner.path), f"The rule '{name}' was removed.")


def _subscription(visit: Visit) -> Subscription:
    entity = visit.entity()
    if not isinstance(entity, Subscription):
        raise BadRequest(f"'{entity.path}' is not a subscription: only those have rules.")
    return entity


async def _page(visit: Visit, owner: Subscription, form: Form, status: int = 200) -> Response:
    takes_all = next((rule.name for rule in owner.rules if isinstance(rule.filter, TrueFilter)), None)
    explanation = None
    if takes_all is not None:
        text = f"The rule {takes_all} already takes all messages. Remove it if other rules should decide."
        explanation = tag("p", text, class_="notice")
    fields = [list_errors(form, "Not added"), filter_fields(form), button("Add the rule", class_="main")]
    content = visit.form_to("entity/rule", fields, class_="wide")
    title = "Add a rule"
    return await entity_page(visit, owner, "entity", title, tag("h2", title), explanation, content, status=status)


# The form


def filter_fields(form: Form, *, is_first: bool = False) -> Markup:
    """Return the form fields of a rule.

    Pass `is_first` for the first rule of a new subscription: its name is optional.
    """
    name = text_field(
        form, RULE_NAME, "Name of the rule", required=not is_first, hint="Defaults to $Default." if is_first else None
    )
    hint = "Such as: colour = 'red' AND quantity > 3, or sys.Label LIKE 'order%'"
    sql = group("SQL filter", area(form, "expression", "Expression", rows=2, hint=hint), data_when="filter=sql")
    fields = [text_field(form, f"filter-{field}", title) for field, title in TITLES.items()]
    correlation = group(
        "Correlation filter: all given values must be equal",
        fields,
        area(form, PROPERTIES, "Own properties", hint=LINES),
        data_when="filter=correlation",
    )
    hint = "Changes to the copy, such as: SET urgent = true. Leave empty for none."
    action = area(form, "action", "Action", rows=2, hint=hint)
    kind = choice(form, "filter", "Messages to take", FILTERS)
    if is_first:
        return group("First rule", kind, name, sql, correlation, action)
    return join_markup([name, kind, sql, correlation, action])


def read_rule(form: Form, name: str) -> Rule:
    """Return the rule that a form describes. Errors go into `form`."""
    chosen: Filter = TrueFilter()
    if form["filter"] == "sql":
        chosen = SqlFilter(form["expression"].strip())
        if not chosen.expression:
            form.errors["expression"] = "Give an expression."
    elif form["filter"] == "correlation":
        fields = {field: form[f"filter-{field}"] or None for field in TITLES}
        compared: Parameters = ()
        try:
            own = lines_of(form[PROPERTIES])
            compared = tuple((each, _filter_value(value)) for each, value in own.items())
        except OncebusError as error:
            form.errors[PROPERTIES] = str(error)
        except OverflowError:
            form.errors[PROPERTIES] = "A property has a time before the year 1 or after the year 9999."
        chosen = CorrelationFilter(**fields, properties=compared)
    action = form["action"].strip()
    return Rule(name, chosen, SqlAction(action) if action else None)


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


def _filter_value(value: Value) -> FilterValue:
    return _EPOCH + timedelta(milliseconds=value) if isinstance(value, Timestamp) else value


# In words


def rule_in_words(rule: Rule) -> Markup:
    """Describe in words which messages a rule matches and how it changes them."""
    given = rule.filter
    match given:
        case SqlFilter():
            lines = [_line("SQL filter", tag("code", given.expression), given.parameters)]
        case CorrelationFilter():
            equal = [
                tag("li", f"{title} = ", tag("code", getattr(given, field)))
                for field, title in TITLES.items()
                if getattr(given, field) is not None
            ]
            equal += [tag("li", f"{name} = ", tag("code", _value(value))) for name, value in given.properties]
            lines = [tag("p", "Correlation filter"), tag("ul", equal or tag("li", "nothing: it takes all messages"))]
        case TrueFilter():
            lines = [tag("p", "Takes all messages")]
        case FalseFilter():
            lines = [tag("p", "Takes no message")]
    if rule.action is not None:
        lines.append(_line("Action", tag("code", rule.action.expression), rule.action.parameters))
    return tag("div", lines, class_="rule")


def _line(title: str, content: Content, parameters: Parameters) -> Markup:
    named = [tag("li", f"{name} = ", tag("code", _value(value))) for name, value in parameters]
    return tag("div", tag("p", f"{title} ", content), tag("ul", named) if named else None)


def _value(value: object) -> str:
    match value:
        case str():
            return f'"{value}"'
        case bool():
            return str(value).lower()
        case bytes():
            return f"0x{value.hex()}"
        case datetime():
            return value.isoformat()
        case timedelta():
            return in_words(value // timedelta(microseconds=1))
    return str(value)
