"""`oncebus rule`: manages the rules of subscriptions. Rules decide which subscriptions get a copy of a message."""

from __future__ import annotations

from typing import Any

import click

from oncebus.programs.cli.entities import in_path
from oncebus.programs.cli.errors import RequestError
from oncebus.programs.cli.location import Management, management_options
from oncebus.programs.cli.options import Command, azure_options, json_option, name_option, topic_option
from oncebus.programs.cli.printing import as_text, print_json, print_resource, print_table
from oncebus.protocols.management.rules import CORRELATED

_WHERE = "--topic-name prices --subscription-name high"
_CORRELATED = {field: name[0].lower() + name[1:] for name, field in CORRELATED.items()}
_FILTERS = click.Choice(["SqlFilter", "CorrelationFilter"], case_sensitive=False)


@click.group(
    short_help="Manage the rules of a subscription.",
    epilog=f"Example: oncebus rule list {_WHERE}",
)
def rule() -> None:
    """Create, show, list, update or delete a rule of a subscription."""


def _of_subscription(command: Command) -> Command:
    named = click.option("--subscription-name", required=True, metavar="NAME", help="The subscription it belongs to.")
    return topic_option(named(command))


def _filter_options(command: Command) -> Command:
    options = [
        click.option(
            "--filter-type",
            type=_FILTERS,
            metavar="TYPE",
            help="SqlFilter or CorrelationFilter; by default it follows from the other options.",
        ),
        click.option("--filter-sql-expression", metavar="SQL", help='Condition on messages, like "price > 100".'),
        click.option(
            "--enable-sql-preprocessing",
            type=bool,
            metavar="BOOLEAN",
            help="Stored with the filter; has no effect.",
        ),
        click.option(
            "--action-sql-expression",
            metavar="SQL",
            help="Changes to the copy, like \"SET urgent = true\"; '' for none.",
        ),
        click.option(
            "--enable-action-preprocessing",
            type=bool,
            metavar="BOOLEAN",
            help="Stored with the action; has no effect.",
        ),
        click.option(
            "--action-compatibility-level",
            type=int,
            metavar="NUMBER",
            help="Stored with the action; has no effect.",
        ),
        click.option(
            "--correlation-filter",
            "--correlation-filter-property",
            "properties",
            multiple=True,
            metavar="NAME=VALUE",
            help="Application property that a message must have with this value; repeatable.",
        ),
        *(
            click.option(
                f"--{name.replace('_', '-')}", name, metavar="TEXT", help=f"Value that a message's {camel} must have."
            )
            for name, camel in _CORRELATED.items()
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@rule.command(
    epilog=f'Example: oncebus rule create {_WHERE} --name above --filter-sql-expression "price > 100"'
    ' --action-sql-expression "SET urgent = true"'
)
@_of_subscription
@name_option
@_filter_options
@azure_options
@json_option
@management_options
def create(
    management: Management,
    topic_name: str,
    subscription_name: str,
    name: str,
    as_json: bool,
    **given: Any,
) -> None:
    """Create a rule. Without a filter it selects all messages.

    Every new subscription has the rule $Default, which selects all messages. Delete it if only your rules should count.
    """
    made = management.put(_path(topic_name, subscription_name, name), _properties(given))
    print_resource("Rule", made, as_json)


@rule.command(epilog=f"Example: oncebus rule show {_WHERE} --name above")
@_of_subscription
@name_option
@azure_options
@json_option
@management_options
def show(management: Management, topic_name: str, subscription_name: str, name: str, as_json: bool) -> None:
    """Show a rule."""
    found = management.get(_path(topic_name, subscription_name, name), f"rule '{name}'")
    print_resource("Rule", found, as_json)


@rule.command(epilog=f'Example: oncebus rule update {_WHERE} --name above --filter-sql-expression "price > 200"')
@_of_subscription
@name_option
@_filter_options
@azure_options
@json_option
@management_options
def update(
    management: Management,
    topic_name: str,
    subscription_name: str,
    name: str,
    as_json: bool,
    **given: Any,
) -> None:
    """Change a rule. It keeps its filter or its action if you do not give a new one."""
    path = _path(topic_name, subscription_name, name)
    old = management.get(path, f"rule '{name}'")["properties"]
    new = _properties(given)
    if any(each in new for each in ("sqlFilter", "correlationFilter")):
        old = {each: value for each, value in old.items() if each == "action"}
    print_resource("Rule", management.put(path, old | new), as_json)


@rule.command(epilog=f"Example: oncebus rule delete {_WHERE} --name above")
@_of_subscription
@name_option
@azure_options
@management_options
def delete(management: Management, topic_name: str, subscription_name: str, name: str) -> None:
    """Delete a rule. A subscription without rules gets no messages."""
    is_deleted = management.delete(_path(topic_name, subscription_name, name))
    click.echo(f"Rule {name} is deleted." if is_deleted else f"There is no rule '{name}'.")


@rule.command("list", epilog=f"Example: oncebus rule list {_WHERE}")
@_of_subscription
@azure_options
@json_option
@management_options
def list_rules(management: Management, topic_name: str, subscription_name: str, as_json: bool) -> None:
    """List all rules of a subscription."""
    found = management.list(f"{_owner(topic_name, subscription_name)}/rules")
    if as_json:
        print_json(found)
    elif not found:
        click.echo(f"The subscription '{subscription_name}' has no rules, so it gets no messages.")
    else:
        print_table(None, ("name", "filter", "action"), [_row(each) for each in found])


def _owner(topic: str, subscription: str) -> str:
    return f"topics/{in_path(topic)}/subscriptions/{in_path(subscription)}"


def _path(topic: str, subscription: str, name: str) -> str:
    return f"{_owner(topic, subscription)}/rules/{in_path(name)}"


def _properties(given: dict[str, Any]) -> dict[str, Any]:
    """Return the properties of a rule that the command line sets.

    Raises `RequestError` if options contradict each other.
    """
    correlated = {camel: given[name] for name, camel in _CORRELATED.items() if given.get(name) is not None}
    own = dict(_pair(text) for text in given["properties"])
    if own:
        correlated["properties"] = own
    expression, kind = given.get("filter_sql_expression"), given.get("filter_type")
    if expression is not None and correlated:
        raise RequestError("A rule has a SQL filter or a correlation filter, not both.")
    properties: dict[str, Any] = {}
    if correlated or kind == "CorrelationFilter":
        if kind == "SqlFilter" or not correlated:
            raise RequestError(f"Option --filter-type has value '{kind}', which contradicts the other options.")
        properties |= {"filterType": "CorrelationFilter", "correlationFilter": correlated}
    elif expression is not None:
        sql = _with_notes({"sqlExpression": expression}, requiresPreprocessing=given.get("enable_sql_preprocessing"))
        properties |= {"filterType": "SqlFilter", "sqlFilter": sql}
    elif kind is not None:
        raise RequestError(f"Option --filter-type has value '{kind}'. Give the filter too: --filter-sql-expression.")
    if given.get("action_sql_expression") is not None:
        properties["action"] = _with_notes(
            {"sqlExpression": given["action_sql_expression"]},
            requiresPreprocessing=given.get("enable_action_preprocessing"),
            compatibilityLevel=given.get("action_compatibility_level"),
        )
    return properties


def _with_notes(sql: dict[str, Any], **more: Any) -> dict[str, Any]:
    return sql | {name: value for name, value in more.items() if value is not None}


def _pair(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found or not name:
        raise RequestError(f"Option --correlation-filter has value '{text}'. Write it like name=value.")
    return name, value


def _row(resource: dict[str, Any]) -> list[str]:
    properties = resource["properties"]
    is_sql = properties["filterType"] == "SqlFilter"
    condition = properties["sqlFilter"]["sqlExpression"] if is_sql else as_text(properties["correlationFilter"])
    return [resource["name"], condition, properties["action"].get("sqlExpression", "")]
