"""Reads and writes a rule as XML: a filter, an action and a name.

    <RuleDescription><Filter i:type="SqlFilter"><SqlExpression>color = 'red'</SqlExpression>…</Filter>
      <Action i:type="EmptyRuleAction"/><CreatedAt>…</CreatedAt><Name>red</Name></RuleDescription>

A filter that matches all or no messages is written with an expression too, because some clients read only that.
"""

from __future__ import annotations

from oncebus.model.entities import (
    BadRequest,
    CorrelationFilter,
    FalseFilter,
    Filter,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from oncebus.model.entities.filter_values import Parameters
from oncebus.model.entities.names import DEFAULT_RULE
from oncebus.protocols.atom import markup
from oncebus.protocols.atom.document import Element
from oncebus.protocols.atom.values import read_values, write_values
from oncebus.protocols.http.times import iso8601
from oncebus.protocols.management.rules import CORRELATED, FALSE_EXPRESSION, TRUE_EXPRESSION
from oncebus.values.errors import clip

_COMPATIBILITY = 20
_SQL = ("SqlExpression", "CompatibilityLevel", "Parameters", "RequiresPreprocessing")


def read_rule(node: Element, name: str | None = None) -> Rule:
    """Return the rule that an element describes. A given name overrides the element's. Raises `BadRequest`."""
    members = node.members()
    check_known(node, ("Filter", "Action", "CreatedAt", "Name"))
    own = members["Name"].text.strip() if "Name" in members else DEFAULT_RULE
    action = members.get("Action")
    return Rule(
        own if name is None else name,
        _filter(members["Filter"]) if "Filter" in members else TrueFilter(),
        _action(action) if action is not None else None,
    )


def write_rule(rule: Rule, name: str = "RuleDescription", attributes: dict[str, str] | None = None) -> str:
    """Return the element that describes a rule."""
    content = (
        _write_filter(rule.filter),
        _write_action(rule.action),
        markup.field("CreatedAt", iso8601(rule.created_at)),
        markup.field("Name", rule.name),
    )
    return markup.tag(name, "".join(content), attributes)


def check_known(node: Element, names: tuple[str, ...] | set[str]) -> None:
    """Raise `BadRequest` if an element has an unknown child, because a misspelt property would otherwise be ignored."""
    for child in node:
        if child.name not in names:
            raise BadRequest(f"The element {clip(child.name)} is not allowed in a {node.name}.")


def _filter(node: Element) -> Filter:
    match node.type:
        case "TrueFilter":
            return TrueFilter()
        case "FalseFilter":
            return FalseFilter()
        case "SqlFilter":
            return SqlFilter(*_read_sql(node))
        case "CorrelationFilter":
            check_known(node, {*CORRELATED, "Properties"})
            given = {field: node.child(name) for name, field in CORRELATED.items()}
            texts = {field: child.text for field, child in given.items() if child is not None}
            return CorrelationFilter(**texts, properties=read_values(node.child("Properties")))
    raise BadRequest(
        f"The filter has type {clip(node.type)}. Not one of SqlFilter, CorrelationFilter, TrueFilter, FalseFilter."
    )


def _action(node: Element) -> SqlAction | None:
    if node.type == "EmptyRuleAction" or (node.type is None and not node.children):
        return None
    if node.type != "SqlRuleAction":
        raise BadRequest(f"The action has type {clip(node.type)}. Not one of SqlRuleAction, EmptyRuleAction.")
    return SqlAction(*_read_sql(node))


def _read_sql(node: Element) -> tuple[str, Parameters, int, bool]:
    """Return the fields of a `SqlFilter` or a `SqlAction`."""
    check_known(node, _SQL)
    texts = {name: child.text for name, child in node.members().items()}
    level = texts.get("CompatibilityLevel", str(_COMPATIBILITY)).strip()
    if not (level.isascii() and level.isdigit() and len(level) < 10):
        given = clip(texts["CompatibilityLevel"])
        raise BadRequest(f"The property 'CompatibilityLevel' has value {given}. Not a whole number.")
    is_preprocessed = texts.get("RequiresPreprocessing", "").strip().lower() in ("true", "1")
    return texts.get("SqlExpression", ""), read_values(node.child("Parameters")), int(level), is_preprocessed


def _write_filter(given: Filter) -> str:
    if isinstance(given, CorrelationFilter):
        texts = {name: getattr(given, field) for name, field in CORRELATED.items()}
        content = "".join(markup.field(name, value) for name, value in texts.items() if value is not None)
        if given.properties:
            # An empty element breaks clients that count its children.
            content += write_values("Properties", given.properties)
        return markup.tag("Filter", content, {"i:type": "CorrelationFilter"})
    if isinstance(given, SqlFilter):
        return markup.tag("Filter", _sql(given), {"i:type": "SqlFilter"})
    is_true = isinstance(given, TrueFilter)
    content = _sql(SqlFilter(TRUE_EXPRESSION if is_true else FALSE_EXPRESSION))
    return markup.tag("Filter", content, {"i:type": "TrueFilter" if is_true else "FalseFilter"})


def _write_action(action: SqlAction | None) -> str:
    if action is None:
        return markup.tag("Action", "", {"i:type": "EmptyRuleAction"})
    return markup.tag("Action", _sql(action), {"i:type": "SqlRuleAction"})


def _sql(given: SqlFilter | SqlAction) -> str:
    content = markup.field("SqlExpression", given.expression)
    content += markup.field("CompatibilityLevel", str(given.compatibility_level))
    content += write_values("Parameters", given.parameters)
    if given.requires_preprocessing:
        content += markup.field("RequiresPreprocessing", "true")
    return content
