"""The flags that describe an entity, by the names that `az servicebus` has for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import click

from oncebus.cli.durations import DURATION
from oncebus.entities import EntityStatus, Queue, Subscription, Topic
from oncebus.entities.descriptions import EntityKind
from oncebus.management.properties import ALL, RESOURCE_FIELDS, ValueType

F = TypeVar("F", bound=Callable[..., Any])


class Flag(NamedTuple):
    """A flag: its names, the property it sets, what it holds and its help."""

    names: Sequence[str]
    sets: str
    kind: Any
    help: str
    metavar: str | None = None

    @property
    def argument(self) -> str:
        """What click calls it."""
        return self.sets.lower()


_HELP = {
    "requires_duplicate_detection": "Drop messages whose id was accepted within the window. Chosen at creation.",
    "duplicate_detection_history_time_window": "How long an id is remembered: 20 seconds to 7 days, 10 minutes unless "
    "given.",
    "enable_partitioning": "Spread it over 16 partitions. Chosen at creation.",
    "requires_session": "Messages come in sessions. Chosen at creation.",
    "lock_duration": "How long a received message is held.",
    "max_delivery_count": "Attempts before a message is a dead letter.",
    "max_size_in_megabytes": "Most that it holds.",
    "max_message_size_in_kilobytes": "Largest message; Premium only.",
    "default_message_time_to_live": "How long messages live that do not say so themselves.",
    "dead_lettering_on_message_expiration": "Expired messages become dead letters.",
    "dead_lettering_on_filter_evaluation_exceptions": "Messages on which a filter fails become dead letters.",
    "forward_to": "Queue or topic that its messages go to; '' for none.",
    "forward_dead_lettered_messages_to": "Queue or topic that its dead letters go to; '' for none.",
    "auto_delete_on_idle": "Delete it when unused for so long.",
    "enable_express": "Accepted for compatibility; has no effect. Not with detection.",
    "support_ordering": "Accepted for compatibility; messages are always in order.",
    "enable_batched_operations": "Accepted for compatibility; has no effect.",
    "status": f"Whether messages go in and out: {', '.join(EntityStatus)}.",
    "user_metadata": "Any text of your own.",
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
    """An option for each flag. One that is true or false may stand alone, for true."""

    def decorated(command: F) -> F:
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

    return decorated


def given_properties(flags: Sequence[Flag], given: dict[str, Any]) -> dict[str, Any]:
    """The properties that were given, by the Resource Manager's names."""
    return {flag.sets: given[flag.argument] for flag in flags if given.get(flag.argument) is not None}
