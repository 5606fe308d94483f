"""The view that rules have of a message: its system properties and user properties, as plain Python values."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from oncebus.model.filters.budget import Budget

_STEPS_PER_NAME = 16


@dataclass(frozen=True, slots=True, order=True)
class Instant:
    """A point in time: a timestamp in AMQP, DateTime in .NET. Counted from 1970 UTC."""

    microseconds: int


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A length of time, such as the difference of two timestamps. TimeSpan in .NET."""

    microseconds: int


Value = str | bool | int | float | Decimal | bytes | uuid.UUID | Instant | Duration
"""The types of constants, parameters and properties. `None` stands for null and, in evaluation, for unknown."""

VALUE_TYPES = (str, bool, int, float, Decimal, bytes, uuid.UUID, Instant, Duration)

SYSTEM_NAMES = (
    "ContentType",
    "CorrelationId",
    "DeadLetterSource",
    "DeliveryCount",
    "EnqueuedSequenceNumber",
    "EnqueuedTimeUtc",
    "ExpiresAtUtc",
    "Label",
    "LockedUntilUtc",
    "LockToken",
    "MessageId",
    "PartitionKey",
    "ReplyTo",
    "ReplyToSessionId",
    "ScheduledEnqueueTimeUtc",
    "SequenceNumber",
    "SessionId",
    "Size",
    "State",
    "TimeToLive",
    "To",
    "ViaPartitionKey",
)
"""The keys of `MessageProperties.system`, and the names after `sys.` in a rule."""

_ALIASES = {
    "subject": "Label",
    "enqueuedtime": "EnqueuedTimeUtc",
    "expiresat": "ExpiresAtUtc",
    "lockeduntil": "LockedUntilUtc",
    "scheduledenqueuetime": "ScheduledEnqueueTimeUtc",
    "transactionpartitionkey": "ViaPartitionKey",
}
_BY_LOWER_CASE = {name.lower(): name for name in SYSTEM_NAMES} | _ALIASES

IDENTIFIERS = frozenset({"MessageId", "CorrelationId"})
"""In AMQP, the values of these may be a UUID or a number. Rules see them as text, as receivers do."""

SETTABLE: Mapping[str, type] = {
    "ContentType": str,
    "CorrelationId": str,
    "Label": str,
    "MessageId": str,
    "PartitionKey": str,
    "ReplyTo": str,
    "ReplyToSessionId": str,
    "ScheduledEnqueueTimeUtc": Instant,
    "SessionId": str,
    "TimeToLive": Duration,
    "To": str,
}
"""The system properties that an action may change, with the type each must have."""

SHORT = frozenset({"MessageId", "PartitionKey", "ReplyToSessionId", "SessionId"})
"""The properties that are limited to `LONGEST_ID`."""

LONGEST_ID = 128
"""The maximum length of a MessageId, SessionId or PartitionKey: in UTF-16 units like .NET, or in bytes if binary."""


def system_name(name: str) -> str | None:
    """Return the key in `MessageProperties.system` for a name in any letter case; None if there is no such property.

    The names that newer clients use, such as Subject for Label, are known too.
    """
    return _BY_LOWER_CASE.get(name.lower())


@dataclass(slots=True)
class MessageProperties:
    """The properties of one message, as evaluation takes them.

    The values are str, bool, int, float, decimal.Decimal, bytes, uuid.UUID, Instant, Duration, or None for null. A
    value of another type is allowed: only the rules that read it fail for that message.

    `system` has the keys of `SYSTEM_NAMES`; a missing key means null. Once a rule has been evaluated, only an action
    may change the mappings, because the lookup table of names is cached. `budget` limits the cost of all rules
    together.
    """

    system: Mapping[str, object] = field(default_factory=dict)
    user: Mapping[str, object] = field(default_factory=dict)
    seed: bytes = field(default=b"", repr=False, compare=False, kw_only=True)
    budget: Budget = field(default_factory=Budget, repr=False, compare=False, kw_only=True)
    _spellings: dict[str, str] | None = field(default=None, init=False, repr=False, compare=False)

    def spelling(self, name: str) -> str | None:
        """Return the key of the user property that `name` refers to, or None if there is no such property.

        The exact spelling wins, else the first key that differs only in letter case.
        """
        if name in self.user:
            return name
        spellings = self._spellings
        if spellings is None:
            self.budget.spend(_STEPS_PER_NAME * len(self.user))
            spellings = self._spellings = {}
            for key in self.user:
                spellings.setdefault(key.lower(), key)
        return spellings.get(name.lower())

    def note_added(self, name: str) -> None:
        """Update the lookup table of names after an action has added a user property."""
        if self._spellings is not None:
            self._spellings.setdefault(name.lower(), name)

    def forget_spellings(self) -> None:
        """Drop the lookup table of names after an action has removed a user property.

        The removed name may now refer to another property, whose name differs only in letter case.
        """
        self._spellings = None
