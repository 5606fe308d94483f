"""`oncebus queue`, `topic` and `subscription`: the commands of `az servicebus`, for a running broker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import click

from oncebus.model.entities.descriptions import DEFAULT_LOCK_DURATION, DEFAULT_WINDOW
from oncebus.model.entities.timespans import in_words
from oncebus.programs.cli import entity_flags
from oncebus.programs.cli.client import Client
from oncebus.programs.cli.entity_flags import Flag, flags_of, given_properties
from oncebus.programs.cli.location import Management, management_options
from oncebus.programs.cli.options import Command, azure_options, json_option, name_option, topic_option
from oncebus.programs.cli.printing import as_text, print_json, print_resource, print_table
from oncebus.protocols.management.properties import BY_FIELD, WINDOW

# Properties that the broker reports and that nobody can set.
_READ_ONLY = {
    "createdAt",
    "updatedAt",
    "accessedAt",
    "countDetails",
    "messageCount",
    "sizeInBytes",
    "subscriptionCount",
}
_DETECTION, _WINDOW, _KEY = (
    BY_FIELD[field].camel.lower() for field in ("requires_duplicate_detection", WINDOW, "detection_key")
)
"""The names under which click passes these flags."""
_COLUMNS = ("name", "status", "active", "scheduled", "dead letters", "window")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of entity with its own group of commands: its name, its flags, and its path in the namespace."""

    word: str
    flags: Sequence[Flag]
    example: str
    is_of_topic: bool = False

    def folder(self, topic: str | None) -> str:
        """Return the path of the collection of all entities of this kind."""
        return f"topics/{in_path(topic or '')}/subscriptions" if self.is_of_topic else f"{self.word}s"

    def path(self, name: str, topic: str | None) -> str:
        """Return the path of one entity."""
        return f"{self.folder(topic)}/{in_path(name)}"

    @property
    def title(self) -> str:
        """Return the name of the kind as a title, like `Queue`."""
        return self.word.capitalize()

    def quote(self, name: str) -> str:
        """Return an entity's kind and name as errors call it, like `queue 'orders'`."""
        return f"{self.word} '{name}'"


def in_path(name: str) -> str:
    """Return a name, escaped for use as one segment of a path."""
    return quote(name, safe="")


def group_of(kind: Kind) -> click.Group:
    """Return the group of commands that manage one kind of entity."""
    group = click.Group(
        kind.word,
        help=f"Create, show, list, update or delete a {kind.word} of a running broker.",
        short_help=f"Manage {kind.word}s.",
        epilog=f"Example: {_example(kind, 'list')}",
    )
    flags = flags_of(kind.flags)
    make = (
        f"Create a {kind.word}, or replace the properties of an existing one, as `az` does.\n\n"
        f"For an existing {kind.word}, everything that you do not give returns to its default: {_RESET[kind.word]}. "
        f"{_KEPT[kind.word]} stay. To change some properties and keep the others, use `{kind.word} update`."
    )
    group.add_command(_command(kind, "create", name_option(flags(_common(_create(kind)))), make))
    group.add_command(_command(kind, "show", name_option(_common(_show(kind))), f"Show a {kind.word}."))
    group.add_command(_command(kind, "list", _common(_list(kind)), f"List all {kind.word}s."))
    change = f"Change some properties of a {kind.word}, and keep the others."
    updating = flags(_common(_update(kind)))
    group.add_command(
        _command(kind, "update", name_option(updating if kind.is_of_topic else _from_now_on(updating)), change)
    )
    remove = f"Delete a {kind.word} with all its messages."
    group.add_command(_command(kind, "delete", name_option(azure_options(_delete(kind))), remove))
    return group


def _common(function: Command) -> Command:
    return azure_options(json_option(function))


def _command(kind: Kind, word: str, function: Command, text: str) -> click.Command:
    if kind.is_of_topic:
        function = topic_option(function)
    return click.command(word, help=text, epilog=f"Example: {_example(kind, word)}")(function)


def _example(kind: Kind, word: str) -> str:
    topic = " --topic-name prices" if kind.is_of_topic else ""
    name = "" if word == "list" else f" --name {kind.example}"
    more = {"create": " " + _CREATES[kind.word], "update": " " + _UPDATES[kind.word]}.get(word, "")
    return f"oncebus {kind.word} {word}{topic}{name}{more}"


_RESET = {
    "queue": f"a window of {in_words(DEFAULT_WINDOW)} and the status Active, for example",
    "topic": f"a window of {in_words(DEFAULT_WINDOW)} and the status Active, for example",
    "subscription": f"a lock duration of {in_words(DEFAULT_LOCK_DURATION)} and the status Active, for example",
}
_KEPT = {
    "queue": "Its messages, remembered ids and user metadata, and its choice of detection, sessions and partitions",
    "topic": "Its subscriptions, remembered ids and user metadata, and its choice of detection and partitions",
    "subscription": "Its messages, rules and user metadata, and its choice of sessions",
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


def _create(kind: Kind) -> Command:
    @management_options
    def create(
        management: Management,
        name: str,
        as_json: bool,
        topic_name: str | None = None,
        **given: Any,
    ) -> None:
        made = management.put(kind.path(name, topic_name), given_properties(kind.flags, given))
        print_resource(kind.title, made, as_json)

    return create


def _show(kind: Kind) -> Command:
    @management_options
    def show(management: Management, name: str, as_json: bool, topic_name: str | None = None) -> None:
        found = management.get(kind.path(name, topic_name), kind.quote(name))
        print_resource(kind.title, found, as_json)

    return show


def _update(kind: Kind) -> Command:
    @management_options
    def update(
        management: Management,
        name: str,
        as_json: bool,
        topic_name: str | None = None,
        from_now_on: bool = False,
        **given: Any,
    ) -> None:
        path, quoted = kind.path(name, topic_name), kind.quote(name)
        if from_now_on:
            management.get(path, quoted)
            _switch_on_detection(management.client, name, given)
        old = management.get(path, quoted)["properties"]
        kept = {each: value for each, value in old.items() if each not in _READ_ONLY}
        changed = management.put(path, kept | given_properties(kind.flags, given))
        print_resource(kind.title, changed, as_json)

    return update


_from_now_on = click.option(
    "--from-now-on",
    is_flag=True,
    help="With --enable-duplicate-detection: switch on detection although it exists. Azure refuses this. Messages that "
    "were sent before are not remembered. Detection cannot be switched off again.",
)


def _switch_on_detection(client: Client, name: str, given: dict[str, Any]) -> None:
    """Switch on detection for an existing entity, with the window that the command line gives."""
    if not given.get(_DETECTION):
        raise click.UsageError("Option --from-now-on needs --enable-duplicate-detection.")
    query = {"window": given.get(_WINDOW), "detection-key": given.get(_KEY)}
    wanted = urlencode({parameter: value for parameter, value in query.items() if value is not None})
    client.ask_json("POST", f"/{quote(name, safe='/')}/$detection?{wanted}")


def _delete(kind: Kind) -> Command:
    @management_options
    def delete(management: Management, name: str, topic_name: str | None = None) -> None:
        is_deleted = management.delete(kind.path(name, topic_name))
        click.echo(f"{kind.title} {name} is deleted." if is_deleted else f"There is no {kind.quote(name)}.")

    return delete


def _list(kind: Kind) -> Command:
    @management_options
    def list_entities(management: Management, as_json: bool, topic_name: str | None = None) -> None:
        found = management.list(kind.folder(topic_name))
        if as_json:
            print_json(found)
        elif not found:
            click.echo(f"There are no {kind.word}s.")
        else:
            print_table(None, _COLUMNS, [_row(each) for each in found])

    return list_entities


def _row(resource: dict[str, Any]) -> list[str]:
    properties = resource["properties"]
    counts = properties["countDetails"]
    window = properties["duplicateDetectionHistoryTimeWindow"] if properties.get("requiresDuplicateDetection") else ""
    states = ("activeMessageCount", "scheduledMessageCount", "deadLetterMessageCount")
    return [resource["name"], properties["status"], *(as_text(counts[state]) for state in states), window]


queue = group_of(Kind("queue", entity_flags.QUEUE, "orders"))
topic = group_of(Kind("topic", entity_flags.TOPIC, "prices"))
subscription = group_of(Kind("subscription", entity_flags.SUBSCRIPTION, "high", is_of_topic=True))
