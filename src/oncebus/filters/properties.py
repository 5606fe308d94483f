"""What a rule sees of a message: its system properties and its user properties, as plain Python values."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from oncebus.filters.budget import Budget

_STEPS_PER_NAME = 16


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """A moment: an AMQP timestamp, .NET's DateTime."""

    microseconds: int


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A length of time: .NET's TimeSpan. The difference of two timestamps."""

    microseconds: int


Value = str | bool | int | float | Decimal | bytes | uuid.UUID | Timestamp | Duration
"""What a constant, a parameter or a property may be. `None` stands for null and, in evaluation, for unknown."""

VALUE_TYPES = (str, bool, int, float, Decimal, bytes, uuid.UUID, Timestamp, Duration)

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
"""The keys of `Properties.system`, and the names after `sys.` in a rule."""

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
"""AMQP lets these be a uuid or a number; a rule sees the text, as a receiver does."""

SETTABLE: Mapping[str, type] = {
    "ContentType": str,
    "CorrelationId": str,
    "Label": str,
    "MessageId": str,
    "PartitionKey": str,
    "ReplyTo": str,
    "ReplyToSessionId": str,
    "ScheduledEnqueueTimeUtc": Timestamp,
    "SessionId": str,
    "TimeToLive": Duration,
    "To": str,
}
"""The system properties that an action may change, with the type each must have."""

SHORT = frozenset({"MessageId", "PartitionKey", "ReplyToSessionId", "SessionId"})
"""These hold at most 128 UTF-16 units."""


def system_name(name: str) -> str | None:
    """The name as `Properties.system` has it, from any case and either generation's spelling; None if unknown."""
    return _BY_LOWER_CASE.get(name.lower())


@dataclass(slots=True)
class Properties:
    """The properties of one message, as evaluation takes them.

    The values are str, bool, int, float, decimal.Decimal, bytes, uuid.UUID, Timestamp, Duration, or None for null. Any
    other value may be there: a rule that touches it fails for that message, a rule that does not is not disturbed.

    `system` has the keys of `SYSTEM_NAMES`; one that is absent is null. Neither mapping may change once a rule has
    been evaluated, but through an action: what was learnt about the names is kept. `budget` is what all rules together
    may cost.
    """

    system: Mapping[str, object] = field(default_factory=dict)
    user: Mapping[str, object] = field(default_factory=dict)
    seed: bytes = field(default=b"", repr=False, compare=False, kw_only=True)
    budget: Budget = field(default_factory=Budget, repr=False, compare=False, kw_only=True)
    _spellings: dict[str, str] | None = field(default=None, init=False, repr=False, compare=False)

    def spelling(self, name: str) -> str | None:
        """The user property meant by a name: the same spelling, else the first that differs only in case, else None."""
        if name in self.user:
            return name
        spellings = self._spellings
        if spellings is None:
            self.budget.spend(_STEPS_PER_NAME * len(self.user))
            spellings = self._spellings = {}
            for key in self.user:
                spellings.setdefault(key.lower(), key)
        return spellings.get(name.lower())

    def added(self, name: str) -> None:
        """Take note of a user property that an action has added."""
        if self._spellings is not None:
            self._spellings.setdefault(name.lower(), name)

    def removed(self) -> None:
        """Take note that an action has removed a user property: another may be meant by its name now."""
        self._spellings = None
