"""`oncebus authorization-rule`: manages the shared access policies of the namespace, of queues and of topics."""

from __future__ import annotations

from typing import Any

import click

from oncebus.model.access import Right, WhichKey
from oncebus.programs.cli.entities import in_path
from oncebus.programs.cli.errors import RequestError
from oncebus.programs.cli.location import Management, management_options
from oncebus.programs.cli.options import Command, azure_options, json_option, name_option
from oncebus.programs.cli.printing import as_text, print_json, print_resource, print_table

_KIND = "Authorization rule"


class _WithRights(click.Command):
    """A command with `--rights Send Listen`, as az has it: options of click take one value each time."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See `click.Command`."""
        spread: list[str] = []
        is_right = False
        for each in args:
            if each.startswith("-"):
                is_right = each == "--rights"
            elif is_right and spread[-1] != "--rights":
                spread.append("--rights")
            spread.append(each)
        return super().parse_args(ctx, spread)


@click.group(
    "authorization-rule",
    short_help="Manage authorization rules and their keys.",
    epilog="Example: oncebus authorization-rule list --queue-name orders",
)
def authorization_rule() -> None:
    """Create, list, show or delete an authorization rule; show or renew its keys.

    A rule belongs to the namespace, or to the queue or topic that you name.
    """


def _owner_options(command: Command) -> Command:
    queue = click.option("--queue-name", metavar="NAME", help="The queue it belongs to.")
    topic = click.option("--topic-name", metavar="NAME", help="The topic it belongs to.")
    return queue(topic(command))


@authorization_rule.command(
    cls=_WithRights,
    epilog="Example: oncebus authorization-rule create --queue-name orders --name app --rights Send Listen",
)
@_owner_options
@name_option
@click.option(
    "--rights",
    multiple=True,
    required=True,
    type=click.Choice([right.value for right in Right], case_sensitive=False),
    metavar="RIGHT…",
    help="Send, Listen, Manage: one or more, with blanks between them. Manage includes the others.",
)
@azure_options
@json_option
@management_options
def create(
    management: Management,
    queue_name: str | None,
    topic_name: str | None,
    name: str,
    rights: tuple[str, ...],
    as_json: bool,
) -> None:
    """Create a rule with random keys, or change the rights of one. It keeps its keys."""
    made = management.put(_path(queue_name, topic_name, name), {"rights": list(rights)})
    print_resource(_KIND, made, as_json)


@authorization_rule.command("list", epilog="Example: oncebus authorization-rule list --topic-name prices")
@_owner_options
@azure_options
@json_option
@management_options
def list_rules(management: Management, queue_name: str | None, topic_name: str | None, as_json: bool) -> None:
    """List all rules, without their keys."""
    found = management.list(_owner(queue_name, topic_name))
    if as_json:
        print_json(found)
    elif not found:
        click.echo(f"There are no authorization rules at the {_owner_in_words(queue_name, topic_name)}.")
    else:
        rows = [(each["name"], ", ".join(each["properties"]["rights"])) for each in found]
        print_table(None, ("name", "rights"), rows)


@authorization_rule.command(epilog="Example: oncebus authorization-rule show --queue-name orders --name app")
@_owner_options
@name_option
@azure_options
@json_option
@management_options
def show(management: Management, queue_name: str | None, topic_name: str | None, name: str, as_json: bool) -> None:
    """Show a rule, without its keys."""
    found = management.get(_path(queue_name, topic_name, name), f"authorization rule '{name}'")
    print_resource(_KIND, found, as_json)


@authorization_rule.command(epilog="Example: oncebus authorization-rule keys --queue-name orders --name app")
@_owner_options
@name_option
@azure_options
@json_option
@management_options
def keys(management: Management, queue_name: str | None, topic_name: str | None, name: str, as_json: bool) -> None:
    """Print the keys and connection strings of a rule. Whoever has one has the rights of the rule."""
    _print_keys(management.post(f"{_path(queue_name, topic_name, name)}/listKeys", {}), as_json)


@authorization_rule.command(
    epilog="Example: oncebus authorization-rule renew --queue-name orders --name app --key SecondaryKey"
)
@_owner_options
@name_option
@click.option(
    "--key",
    "which",
    required=True,
    type=click.Choice([which.value for which in WhichKey], case_sensitive=False),
    metavar="KEY",
    help="PrimaryKey or SecondaryKey.",
)
@click.option("--key-value", metavar="TEXT", help="The new key, of at least 16 characters; by default a random one.")
@azure_options
@json_option
@management_options
def renew(
    management: Management,
    queue_name: str | None,
    topic_name: str | None,
    name: str,
    which: str,
    key_value: str | None,
    as_json: bool,
) -> None:
    """Replace a key of a rule, and print its keys. Clients with the old key are refused from now on."""
    content = {"keyType": which} | ({} if key_value is None else {"key": key_value})
    _print_keys(management.post(f"{_path(queue_name, topic_name, name)}/regenerateKeys", content), as_json)


@authorization_rule.command(epilog="Example: oncebus authorization-rule delete --queue-name orders --name app")
@_owner_options
@name_option
@azure_options
@management_options
def delete(management: Management, queue_name: str | None, topic_name: str | None, name: str) -> None:
    """Delete a rule. Clients with one of its keys are refused from now on."""
    is_deleted = management.delete(_path(queue_name, topic_name, name))
    click.echo(f"Authorization rule {name} is deleted." if is_deleted else f"There is no authorization rule '{name}'.")


def _print_keys(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        # One to a line and not in a table, which would break a key at the edge of the terminal.
        for name, value in found.items():
            click.echo(f"{name}: {as_text(value)}")


def _owner(queue: str | None, topic: str | None) -> str:
    if queue is not None and topic is not None:
        raise RequestError("A rule belongs to a queue or to a topic. Give --queue-name or --topic-name, not both.")
    place = "" if queue is None else f"queues/{in_path(queue)}/"
    return f"{place if topic is None else f'topics/{in_path(topic)}/'}authorizationRules"


def _owner_in_words(queue: str | None, topic: str | None) -> str:
    if queue is None and topic is None:
        return "namespace"
    return f"topic '{topic}'" if queue is None else f"queue '{queue}'"


def _path(queue: str | None, topic: str | None, name: str) -> str:
    return f"{_owner(queue, topic)}/{in_path(name)}"
