"""`oncebus queue`, `topic` and `subscription`: what `az servicebus` does, against a running broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import click

from oncebus.cli import entity_flags
from oncebus.cli.entity_flags import Flag, flags_of, given_properties
from oncebus.cli.errors import RequestError
from oncebus.cli.printing import print_json, print_properties, print_table, told
from oncebus.cli.reaching import Management, Reach, broker_options

# What a resource tells, and nobody can set.
_READ_ONLY = {
    "createdAt",
    "updatedAt",
    "accessedAt",
    "countDetails",
    "messageCount",
    "sizeInBytes",
    "subscriptionCount",
}
_COLUMNS = ("name", "status", "active", "scheduled", "dead letters", "window")

Command = Callable[..., None]


def azure_options(command: Command) -> Command:
    """The options that `az` insists on, so that its command lines need not be changed."""
    group = click.option(
        "--resource-group", "-g", metavar="NAME", help="Accepted for compatibility with `az`; any value will do."
    )
    named = click.option("--namespace-name", metavar="NAME", help="Checked to be the broker's, where it is given.")
    return named(group(command))


name_option = click.option("--name", "-n", required=True, metavar="NAME", help="Its name.")
topic_option = click.option("--topic-name", required=True, metavar="NAME", help="The topic that it belongs to.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@dataclass(frozen=True, slots=True)
class Sort:
    """What a group of commands is about: its word, its place below the namespace, and its flags."""

    word: str
    flags: Sequence[Flag]
    example: str
    is_of_topic: bool = False

    def folder(self, topic: str | None) -> str:
        """Where all of them are."""
        return f"topics/{in_path(topic or '')}/subscriptions" if self.is_of_topic else f"{self.word}s"

    def path(self, name: str, topic: str | None) -> str:
        """Where one of them is."""
        return f"{self.folder(topic)}/{in_path(name)}"

    def title(self, name: str) -> str:
        """What it is called in what is printed."""
        return f"{self.word.capitalize()} {name}"


def in_path(name: str) -> str:
    """A name as one segment of a path."""
    return quote(name, safe="")


def group_of(sort: Sort) -> click.Group:
    """The commands that manage one sort of entity."""
    group = click.Group(
        sort.word,
        help=f"Create, show, list, update or delete a {sort.word} of a running broker.",
        short_help=f"Manage {sort.word}s.",
        epilog=f"Example: {_example(sort, 'list')}",
    )
    flags = flags_of(sort.flags)
    make = (
        f"Make a {sort.word}, or set one that is there to what is given, as `az` does.\n\n"
        f"Of one that is there, whatever is not given gets its default again: {_RESET[sort.word]}. {_KEPT[sort.word]} "
        f"stay. To change some properties and leave the others, use `{sort.word} update`."
    )
    group.add_command(_command(sort, "create", name_option(flags(_common(_create(sort)))), make))
    group.add_command(_command(sort, "show", name_option(_common(_show(sort))), f"Show a {sort.word}."))
    group.add_command(_command(sort, "list", _common(_list(sort)), f"List all {sort.word}s."))
    change = f"Change a {sort.word}; what is not given stays as it is."
    group.add_command(_command(sort, "update", name_option(flags(_common(_update(sort)))), change))
    remove = f"Delete a {sort.word} with all that it holds."
    group.add_command(_command(sort, "delete", name_option(azure_options(_delete(sort))), remove))
    return group


def _common(function: Command) -> Command:
    return azure_options(json_option(function))


def _command(sort: Sort, word: str, function: Command, text: str) -> click.Command:
    if sort.is_of_topic:
        function = topic_option(function)
    return click.command(word, help=text, epilog=f"Example: {_example(sort, word)}")(function)


def _example(sort: Sort, word: str) -> str:
    topic = " --topic-name prices" if sort.is_of_topic else ""
    name = "" if word == "list" else f" --name {sort.example}"
    more = {"create": " " + _CREATES[sort.word], "update": " " + _UPDATES[sort.word]}.get(word, "")
    return f"oncebus {sort.word} {word}{topic}{name}{more}"


_RESET = {
    "queue": "the window is 10 minutes, the status Active",
    "topic": "the window is 10 minutes, the status Active",
    "subscription": "a message is held for a minute, the status is Active",
}
_KEPT = {
    "queue": "Its messages, the ids that it remembers, its user metadata, and detection, sessions and partitions",
    "topic": "Its subscriptions, the ids that it remembers, its user metadata, and detection and partitions",
    "subscription": "Its messages, its rules, its user metadata, and sessions",
}
_CREATES = {
    "queue": "--enable-duplicate-detection -d PT1H",
    "topic": "--enable-duplicate-detection",
    "subscription": "--max-delivery-count 5",
}
_UPDATES = {
    "queue": "--lock-duration PT2M",
    "topic": "--status SendDisabled",
    "subscription": "--lock-duration '30 seconds'",
}


def _create(sort: Sort) -> Command:
    @broker_options
    def create(
        reach: Reach,
        name: str,
        as_json: bool,
        namespace_name: str | None,
        resource_group: str | None,
        topic_name: str | None = None,
        **given: Any,
    ) -> None:
        with reach.connected() as client:
            management = Management(client, namespace_name, resource_group)
            made = management.put(sort.path(name, topic_name), given_properties(sort.flags, given))
        _print(sort, made, as_json)

    return create


def _show(sort: Sort) -> Command:
    @broker_options
    def show(
        reach: Reach,
        name: str,
        as_json: bool,
        namespace_name: str | None,
        resource_group: str | None,
        topic_name: str | None = None,
    ) -> None:
        with reach.connected() as client:
            found = Management(client, namespace_name, resource_group).get(sort.path(name, topic_name))
        _print(sort, _there(sort, name, found), as_json)

    return show


def _update(sort: Sort) -> Command:
    @broker_options
    def update(
        reach: Reach,
        name: str,
        as_json: bool,
        namespace_name: str | None,
        resource_group: str | None,
        topic_name: str | None = None,
        **given: Any,
    ) -> None:
        with reach.connected() as client:
            management = Management(client, namespace_name, resource_group)
            path = sort.path(name, topic_name)
            old = _there(sort, name, management.get(path))["properties"]
            kept = {each: value for each, value in old.items() if each not in _READ_ONLY}
            changed = management.put(path, kept | given_properties(sort.flags, given))
        _print(sort, changed, as_json)

    return update


def _delete(sort: Sort) -> Command:
    @broker_options
    def delete(
        reach: Reach,
        name: str,
        namespace_name: str | None,
        resource_group: str | None,
        topic_name: str | None = None,
    ) -> None:
        with reach.connected() as client:
            is_deleted = Management(client, namespace_name, resource_group).delete(sort.path(name, topic_name))
        click.echo(f"{sort.title(name)} is deleted." if is_deleted else f"There was no {sort.word} '{name}'.")

    return delete


def _list(sort: Sort) -> Command:
    @broker_options
    def listed(
        reach: Reach,
        as_json: bool,
        namespace_name: str | None,
        resource_group: str | None,
        topic_name: str | None = None,
    ) -> None:
        with reach.connected() as client:
            found = Management(client, namespace_name, resource_group).list(sort.folder(topic_name))
        if as_json:
            print_json(found)
        elif not found:
            click.echo(f"There are no {sort.word}s.")
        else:
            print_table(None, _COLUMNS, [_row(each) for each in found])

    return listed


def _there(sort: Sort, name: str, found: dict[str, Any] | None) -> dict[str, Any]:
    if found is None:
        raise RequestError(f"There is no {sort.word} '{name}'.")
    return found


def _print(sort: Sort, resource: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(resource)
    else:
        print_properties(sort.title(resource["name"]), resource["properties"])


def _row(resource: dict[str, Any]) -> list[str]:
    properties = resource["properties"]
    counts = properties["countDetails"]
    window = properties["duplicateDetectionHistoryTimeWindow"] if properties.get("requiresDuplicateDetection") else ""
    states = ("activeMessageCount", "scheduledMessageCount", "deadLetterMessageCount")
    return [resource["name"], properties["status"], *(told(counts[state]) for state in states), window]


queue = group_of(Sort("queue", entity_flags.QUEUE, "orders"))
topic = group_of(Sort("topic", entity_flags.TOPIC, "prices"))
subscription = group_of(Sort("subscription", entity_flags.SUBSCRIPTION, "high", is_of_topic=True))
