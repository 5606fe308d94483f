"""`oncebus rule`: which messages a subscription gets a copy of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from oncebus.cli.entities import azure_options, in_path, json_option, name_option, topic_option
from oncebus.cli.errors import RequestError
from oncebus.cli.printing import print_json, print_properties, print_table, told
from oncebus.cli.reaching import Management, Reach, broker_options
from oncebus.management.rules import CORRELATED

Command = Callable[..., None]

_WHERE = "--topic-name prices --subscription-name high"
_CORRELATED = {field: name[0].lower() + name[1:] for name, field in CORRELATED.items()}
_FILTERS = click.Choice(["SqlFilter", "CorrelationFilter"], case_sensitive=False)


@click.group(
    short_help="Manage the rules of a subscription.",
    epilog=f"Example: oncebus rule list {_WHERE}",
)
def rule() -> None:
    """Create, show, list, update or delete a rule of a subscription of a running broker."""


def _of_subscription(command: Command) -> Command:
    named = click.option("--subscription-name", required=True, metavar="NAME", help="The subscription of the topic.")
    return topic_option(named(command))


def _filter_options(command: Command) -> Command:
    options = [
        click.option(
            "--filter-type",
            type=_FILTERS,
            metavar="TYPE",
            help="SqlFilter or CorrelationFilter; else what is given says so.",
        ),
        click.option("--filter-sql-expression", metavar="SQL", help='Condition on a message, like "price > 100".'),
        click.option(
            "--enable-sql-preprocessing",
            type=bool,
            metavar="BOOLEAN",
            help="Noted in the filter; nothing depends on it.",
        ),
        click.option("--action-sql-expression", metavar="SQL", help="What is changed in the copy; '' for nothing."),
        click.option(
            "--enable-action-preprocessing",
            type=bool,
            metavar="BOOLEAN",
            help="Noted in the action; nothing depends on it.",
        ),
        click.option("--action-compatibility-level", type=int, metavar="NUMBER", help="Noted in the action."),
        click.option(
            "--correlation-filter",
            "--correlation-filter-property",
            "properties",
            multiple=True,
            metavar="NAME=VALUE",
            help="A property of the message that must be equal. May be given several times.",
        ),
        *(
            click.option(
                f"--{name.replace('_', '-')}", name, metavar="TEXT", help=f"The message's {camel} must be equal."
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
@broker_options
def create(
    reach: Reach,
    topic_name: str,
    subscription_name: str,
    name: str,
    namespace_name: str | None,
    resource_group: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Make a rule; without a filter it takes all messages.

    The rule $Default, which every subscription begins with, takes all messages: delete it where others are to decide.
    """
    with reach.connected() as client:
        management = Management(client, namespace_name, resource_group)
        made = management.put(_path(topic_name, subscription_name, name), _properties(given))
    _print(made, as_json)


@rule.command(epilog=f"Example: oncebus rule show {_WHERE} --name above")
@_of_subscription
@name_option
@azure_options
@json_option
@broker_options
def show(
    reach: Reach,
    topic_name: str,
    subscription_name: str,
    name: str,
    namespace_name: str | None,
    resource_group: str | None,
    as_json: bool,
) -> None:
    """Show a rule."""
    with reach.connected() as client:
        management = Management(client, namespace_name, resource_group)
        found = management.get(_path(topic_name, subscription_name, name))
    _print(_there(name, found), as_json)


@rule.command(epilog=f'Example: oncebus rule update {_WHERE} --name above --filter-sql-expression "price > 200"')
@_of_subscription
@name_option
@_filter_options
@azure_options
@json_option
@broker_options
def update(
    reach: Reach,
    topic_name: str,
    subscription_name: str,
    name: str,
    namespace_name: str | None,
    resource_group: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Change a rule; a filter or an action that is not given stays as it is."""
    with reach.connected() as client:
        management = Management(client, namespace_name, resource_group)
        path = _path(topic_name, subscription_name, name)
        old = _there(name, management.get(path))["properties"]
        new = _properties(given)
        if any(each in new for each in ("sqlFilter", "correlationFilter")):
            old = {each: value for each, value in old.items() if each == "action"}
        changed = management.put(path, old | new)
    _print(changed, as_json)


@rule.command(epilog=f"Example: oncebus rule delete {_WHERE} --name above")
@_of_subscription
@name_option
@azure_options
@broker_options
def delete(
    reach: Reach,
    topic_name: str,
    subscription_name: str,
    name: str,
    namespace_name: str | None,
    resource_group: str | None,
) -> None:
    """Delete a rule. A subscription without rules gets no messages."""
    with reach.connected() as client:
        management = Management(client, namespace_name, resource_group)
        is_deleted = management.delete(_path(topic_name, subscription_name, name))
    click.echo(f"Rule {name} is deleted." if is_deleted else f"There was no rule '{name}'.")


@rule.command("list", epilog=f"Example: oncebus rule list {_WHERE}")
@_of_subscription
@azure_options
@json_option
@broker_options
def list_rules(
    reach: Reach,
    topic_name: str,
    subscription_name: str,
    namespace_name: str | None,
    resource_group: str | None,
    as_json: bool,
) -> None:
    """List all rules of a subscription."""
    with reach.connected() as client:
        management = Management(client, namespace_name, resource_group)
        found = management.list(f"{_owner(topic_name, subscription_name)}/rules")
    if as_json:
        print_json(found)
    elif not found:
        click.echo(f"The subscription '{subscription_name}' has no rules. It gets no messages.")
    else:
        print_table(None, ("name", "filter", "action"), [_row(each) for each in found])


def _owner(topic: str, subscription: str) -> str:
    return f"topics/{in_path(topic)}/subscriptions/{in_path(subscription)}"


def _path(topic: str, subscription: str, name: str) -> str:
    return f"{_owner(topic, subscription)}/rules/{in_path(name)}"


def _properties(given: dict[str, Any]) -> dict[str, Any]:
    """What the flags ask of a rule."""
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
            raise RequestError(f"Option --filter-type has value '{kind}', which does not fit what else is given.")
        properties |= {"filterType": "CorrelationFilter", "correlationFilter": correlated}
    elif expression is not None:
        sql = _noted({"sqlExpression": expression}, requiresPreprocessing=given.get("enable_sql_preprocessing"))
        properties |= {"filterType": "SqlFilter", "sqlFilter": sql}
    elif kind is not None:
        raise RequestError(f"Option --filter-type has value '{kind}'. Give the filter too: --filter-sql-expression.")
    if given.get("action_sql_expression") is not None:
        properties["action"] = _noted(
            {"sqlExpression": given["action_sql_expression"]},
            requiresPreprocessing=given.get("enable_action_preprocessing"),
            compatibilityLevel=given.get("action_compatibility_level"),
        )
    return properties


def _noted(sql: dict[str, Any], **more: Any) -> dict[str, Any]:
    return sql | {name: value for name, value in more.items() if value is not None}


def _pair(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found or not name:
        raise RequestError(f"Option --correlation-filter has value '{text}'. Write it like name=value.")
    return name, value


def _there(name: str, found: dict[str, Any] | None) -> dict[str, Any]:
    if found is None:
        raise RequestError(f"There is no rule '{name}'.")
    return found


def _print(resource: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(resource)
    else:
        print_properties(f"Rule {resource['name']}", resource["properties"])


def _row(resource: dict[str, Any]) -> list[str]:
    properties = resource["properties"]
    is_sql = properties["filterType"] == "SqlFilter"
    condition = properties["sqlFilter"]["sqlExpression"] if is_sql else told(properties["correlationFilter"])
    return [resource["name"], condition, properties["action"].get("sqlExpression", "")]
