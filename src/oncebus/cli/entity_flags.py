"""The flags that describe an entity, by the names that `az servicebus` has for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import click

from oncebus.cli.durations import DURATION
from oncebus.entities import EntityStatus

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


_STATUS = click.Choice([status.value for status in EntityStatus], case_sensitive=False)

_WINDOW = Flag(
    ("--duplicate-detection-history-time-window", "-d"),
    "duplicateDetectionHistoryTimeWindow",
    DURATION,
    "How long an id is remembered: 20 seconds to 7 days, 10 minutes unless given.",
    "DURATION",
)
_DETECTION = Flag(
    ("--enable-duplicate-detection", "--duplicate-detection"),
    "requiresDuplicateDetection",
    bool,
    "Drop messages whose id was accepted within the window. Chosen at creation.",
)
_SIZE = Flag(("--max-size", "--max-size-in-megabytes"), "maxSizeInMegabytes", int, "Most that it holds.", "MB")
_MESSAGE_SIZE = Flag(
    ("--max-message-size", "--max-message-size-in-kilobytes"),
    "maxMessageSizeInKilobytes",
    int,
    "Largest message; Premium only.",
    "KB",
)
_PARTITIONING = Flag(
    ("--enable-partitioning",), "enablePartitioning", bool, "Spread it over 16 partitions. Chosen at creation."
)
_EXPRESS = Flag(("--enable-express",), "enableExpress", bool, "Taken over, without effect. Not with detection.")
_SESSION = Flag(("--enable-session",), "requiresSession", bool, "Messages come in sessions. Chosen at creation.")
_LOCK = Flag(("--lock-duration",), "lockDuration", DURATION, "How long a received message is held.", "DURATION")
_DELIVERIES = Flag(
    ("--max-delivery-count",), "maxDeliveryCount", int, "Attempts before a message is a dead letter.", "COUNT"
)
_TIME_TO_LIVE = Flag(
    ("--default-message-time-to-live",),
    "defaultMessageTimeToLive",
    DURATION,
    "How long messages live that do not say so themselves.",
    "DURATION",
)
_EXPIRY = Flag(
    ("--enable-dead-lettering-on-message-expiration", "--message-expiration"),
    "deadLetteringOnMessageExpiration",
    bool,
    "Expired messages become dead letters.",
)
_FILTER_ERRORS = Flag(
    ("--dead-letter-on-filter-exceptions", "-f"),
    "deadLetteringOnFilterEvaluationExceptions",
    bool,
    "Messages on which a filter fails become dead letters.",
)
_FORWARD = Flag(("--forward-to",), "forwardTo", str, "Queue or topic that its messages go to; '' for none.", "NAME")
_FORWARD_DEAD = Flag(
    ("--forward-dead-lettered-messages-to",),
    "forwardDeadLetteredMessagesTo",
    str,
    "Queue or topic that its dead letters go to; '' for none.",
    "NAME",
)
_IDLE = Flag(("--auto-delete-on-idle",), "autoDeleteOnIdle", DURATION, "Delete it when unused for so long.", "DURATION")
_BATCHED = Flag(("--enable-batched-operations",), "enableBatchedOperations", bool, "Taken over, without effect.")
_ORDERING = Flag(("--enable-ordering",), "supportOrdering", bool, "Taken over; messages are always in order.")
_STATE = Flag(("--status",), "status", _STATUS, f"Whether messages go in and out: {', '.join(EntityStatus)}.", "STATUS")
_METADATA = Flag(("--user-metadata",), "userMetadata", str, "Any text of your own.", "TEXT")

QUEUE = (
    _DETECTION,
    _WINDOW,
    _PARTITIONING,
    _SESSION,
    _LOCK,
    _DELIVERIES,
    _SIZE,
    _MESSAGE_SIZE,
    _TIME_TO_LIVE,
    _EXPIRY,
    _FORWARD,
    _FORWARD_DEAD,
    _IDLE,
    _EXPRESS,
    _BATCHED,
    _STATE,
    _METADATA,
)
TOPIC = (
    _DETECTION,
    _WINDOW,
    _PARTITIONING,
    _SIZE,
    _MESSAGE_SIZE,
    _TIME_TO_LIVE,
    _IDLE,
    _EXPRESS,
    _ORDERING,
    _BATCHED,
    _STATE,
    _METADATA,
)
SUBSCRIPTION = (
    _SESSION,
    _LOCK,
    _DELIVERIES,
    _TIME_TO_LIVE,
    _EXPIRY,
    _FILTER_ERRORS,
    _FORWARD,
    _FORWARD_DEAD,
    _IDLE,
    _BATCHED,
    _STATE,
    _METADATA,
)


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
