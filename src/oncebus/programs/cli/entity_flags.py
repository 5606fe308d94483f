"""The flags that set the properties of an entity. They have the names of `az servicebus`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import click

from oncebus.model.entities import EntityStatus, Queue, Subscription, Topic
from oncebus.model.entities.descriptions import DEFAULT_WINDOW, LONGEST_WINDOW, EntityKind
from oncebus.model.entities.limits import PARTITIONS, SHORTEST_WINDOW
from oncebus.model.entities.timespans import in_words
from oncebus.programs.cli.options import DURATION
from oncebus.protocols.management.properties import ALL, RESOURCE_FIELDS, ValueType

F = TypeVar("F", bound=Callable[..., Any])


class Flag(NamedTuple):
    """A flag: its names, the property that it sets, the type of its value, and its help."""

    names: Sequence[str]
    sets: str
    kind: Any
    help: str
    metavar: str | None = None

    @property
    def argument(self) -> str:
        """Return the name under which click passes the value."""
        return self.sets.lower()


_HELP = {
    "requires_duplicate_detection": "Drop messages whose id came before, within the window. Cannot be changed later.",
    "duplicate_detection_history_time_window": f"How long an id is remembered: {in_words(SHORTEST_WINDOW)} to "
    f"{in_words(LONGEST_WINDOW)}, {in_words(DEFAULT_WINDOW)} by default.",
    "detection_key": "What counts as the id, beyond Azure: messageId, body or property:NAME. Cannot be changed later.",
    "enable_partitioning": f"Spread its messages over {PARTITIONS} partitions. Cannot be changed later.",
    "requires_session": "Require sessions: every message has a SessionId. Cannot be changed later.",
    "lock_duration": "How long a receiver holds the lock on a message.",
    "max_delivery_count": "Number of delivery attempts before a message becomes a dead letter.",
    "max_size_in_megabytes": "Quota: the total size of its messages.",
    "max_message_size_in_kilobytes": "Size of the largest message allowed; Premium only.",
    "default_message_time_to_live": "Time to live of messages that have none of their own.",
    "dead_lettering_on_message_expiration": "Dead-letter expired messages.",
    "dead_lettering_on_filter_evaluation_exceptions": "Dead-letter messages on which a filter fails.",
    "forward_to": "Queue or topic to forward messages to; '' for none.",
    "forward_dead_lettered_messages_to": "Queue or topic to forward dead letters to; '' for none.",
    "auto_delete_on_idle": "Delete it after it was unused for this long.",
    "enable_express": "For compatibility with Azure; has no effect. Cannot be combined with detection.",
    "support_ordering": "For compatibility with Azure; messages are always in order.",
    "enable_batched_operations": "For compatibility with Azure; has no effect.",
    "status": f"Whether it accepts and delivers messages: {', '.join(EntityStatus)}.",
    "user_metadata": "Any text.",
}

_TYPES: dict[ValueType, Any] = {
    ValueType.FLAG: bool,
    ValueType.NUMBER: int,
    ValueType.SPAN: DURATION,
    ValueType.TEXT: str,
    ValueType.STATUS: click.Choice([status.value for status in EntityStatus], case_sensitive=False),
}
_METAVARS = {
    "max_size_in_megabytes": "MB",
    "max_message_size_in_kilobytes": "KB",
    "max_delivery_count": "COUNT",
    "forward_to": "NAME",
    "forward_dead_lettered_messages_to": "NAME",
    "status": "STATUS",
    "user_metadata": "TEXT",
    "detection_key": "KEY",
}


def _flags(kind: EntityKind) -> tuple[Flag, ...]:
    known = {*RESOURCE_FIELDS[kind], "user_metadata"}
    return tuple(
        Flag(
            each.flags,
            each.camel,
            _TYPES[each.type],
            _HELP[each.field],
            "DURATION" if each.type is ValueType.SPAN else _METAVARS.get(each.field),
        )
        for each in ALL
        if each.flags and each.field in known
    )


QUEUE, TOPIC, SUBSCRIPTION = _flags(Queue), _flags(Topic), _flags(Subscription)


def flags_of(flags: Sequence[Flag]) -> Callable[[F], F]:
    """Return a decorator that adds an option for each flag. A true-or-false flag without a value means true."""

    def decorate(command: F) -> F:
        for flag in reversed(flags):
            if flag.kind is bool:
                option = click.option(
                    *flag.names,
                    flag.argument,
                    type=click.BOOL,
                    is_flag=False,
                    flag_value="true",
                    metavar="[true|false]",
                    help=flag.help,
                )
            else:
                option = click.option(*flag.names, flag.argument, type=flag.kind, metavar=flag.metavar, help=flag.help)
            command = option(command)
        return command

    return decorate


def given_properties(flags: Sequence[Flag], given: dict[str, Any]) -> dict[str, Any]:
    """Return the properties that the command line sets, by their Resource Manager names."""
    return {flag.sets: given[flag.argument] for flag in flags if given.get(flag.argument) is not None}
