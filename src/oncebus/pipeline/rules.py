"""Prepares the subscriptions of a catalogue for routing, and applies the changes of a rule's action to a message."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from oncebus import amqp
from oncebus.amqp.types import Described, Symbol, Timestamp
from oncebus.model.entities import NO_LIMIT
from oncebus.model.entities.catalogue import Catalogue
from oncebus.model.entities.descriptions import Queue, Subscription, Topic, TrueFilter
from oncebus.model.entities.rule_parsing import compile_rule
from oncebus.model.filters.budget import Budget
from oncebus.model.filters.properties import Duration, Instant, MessageProperties
from oncebus.model.filters.routing import CompiledRule, failure_of, make_copies
from oncebus.model.messages import LogRow
from oncebus.values.errors import OncebusError

_AMQP_FIELDS = {
    "ContentType": "content_type",
    "CorrelationId": "correlation_id",
    "Label": "subject",
    "MessageId": "message_id",
    "ReplyTo": "reply_to",
    "ReplyToSessionId": "reply_to_group_id",
    "SessionId": "group_id",
    "To": "to",
}
FILTER_FAILED = "FilterEvaluationException"
LONGEST_DESCRIPTION = 4096
"""The limit for a dead-letter description in characters: many rules may fail on one message."""
NO_SESSION = "Session ID is null."

_COLUMNS = {"MessageId": "message_id", "SessionId": "session", "PartitionKey": "partition_key"}


@dataclass(frozen=True, slots=True)
class Target:
    """A subscription with its parsed rules.

    `takes_all` is set if every message matches, so that nothing is evaluated.
    """

    id: int
    rules: tuple[CompiledRule, ...]
    dead_letters_failures: bool
    takes_all: bool
    requires_session: bool
    time_to_live: int


@dataclass(frozen=True, slots=True)
class RoutedCopy:
    """A copy of a message for a subscription.

    If `reason` is set, the copy is a dead letter. `changes` has the columns that differ from the message.
    """

    destination: int
    changes: Mapping[str, Any] = field(default_factory=dict)
    reason: str | None = None
    description: str | None = None


class Routes:
    """The destinations in one catalogue version. Parses the rules of a topic once and keeps them."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._targets: dict[int, list[Target]] = {}

    def is_queue(self, entity: int) -> bool:
        """Return whether the entity is a queue."""
        return isinstance(self._catalogue.entity(entity), Queue)

    def detection_key(self, entity: int) -> str | None:
        """Return the detection key of a queue or topic; None for the MessageId, and for a deleted entity."""
        found = self._catalogue.entity(entity)
        return found.detection_key if isinstance(found, Queue | Topic) else None

    def targets(self, entity: int) -> list[Target] | None:
        """Return the subscriptions of a topic, in order; None if the entity is not a topic. Raises `BadRule`."""
        known = self._targets.get(entity)
        if known is None:
            topic = self._catalogue.entity(entity)
            if not isinstance(topic, Topic):
                return None
            known = [_target(subscription) for subscription in self._catalogue.subscriptions_of(topic)]
            self._targets[entity] = known
        return known


def copies_of(row: LogRow, targets: list[Target]) -> list[RoutedCopy]:
    """Return the copies of a message for the subscriptions in `targets`. `row` is the message's row of the inbox.

    Raises `DecodeError` if the message's head is broken.
    """
    properties: MessageProperties | None = None
    made: list[RoutedCopy] = []
    for target in targets:
        if target.takes_all:
            made.append(_copy(row, target, {}))
            continue
        if properties is None:
            properties = _properties(row, sum(len(each.rules) for each in targets))
        seed = struct.pack(">qq", row.position, target.id)
        routed = make_copies(target.rules, properties, seed)
        failures = routed.failures
        for copy in routed.copies:
            try:
                changes = _changes(row, properties, copy.properties)
            except (OncebusError, ValueError, OverflowError) as error:
                failures.append(failure_of("action", copy.rule, str(error).removesuffix(".")))
            else:
                made.append(_copy(row, target, changes))
        if failures and target.dead_letters_failures:
            made.append(
                RoutedCopy(target.id, reason=FILTER_FAILED, description=" ".join(failures)[:LONGEST_DESCRIPTION])
            )
    return made


def _copy(row: LogRow, target: Target, changes: dict[str, object]) -> RoutedCopy:
    if target.time_to_live < NO_LIMIT:
        # The time to live of the subscription is an upper bound on that of the message.
        end, expires = row.time + target.time_to_live, changes.get("expires", row.expires)
        changes = {**changes, "expires": min(end, expires) if isinstance(expires, int) else end}
    if target.requires_session and changes.get("session", row.session) is None:
        return RoutedCopy(
            target.id, changes, NO_SESSION, "A session enabled entity takes no message without a session id."
        )
    return RoutedCopy(target.id, changes)


def _target(subscription: Subscription) -> Target:
    return Target(
        subscription.id,
        tuple(map(compile_rule, subscription.rules)),
        subscription.dead_lettering_on_filter_evaluation_exceptions,
        takes_all=[(rule.filter, rule.action) for rule in subscription.rules] == [(TrueFilter(), None)],
        requires_session=subscription.requires_session,
        time_to_live=subscription.default_message_time_to_live,
    )


def _properties(row: LogRow, rules: int) -> MessageProperties:
    """Return the properties of a message, with a budget for this many rules. Rules see the head, not the body."""
    system, user = amqp.filter_properties(row.head)
    system["MessageId"] = row.message_id
    system["SequenceNumber"] = row.sequence
    system["Size"] = row.size
    for name, text in (("SessionId", row.session), ("PartitionKey", row.partition_key)):
        if text is not None:
            system[name] = text
    system["EnqueuedTimeUtc"] = Instant(row.time)
    if row.expires is not None:
        system["ExpiresAtUtc"] = Instant(row.expires)
        system["TimeToLive"] = Duration(row.expires - row.time)
    own = {name: _for_filters(value) for name, value in user.items()}
    return MessageProperties(system, own, budget=Budget(len(row.head), rules))


def _for_filters(value: object) -> object:
    return Instant(value * 1000) if isinstance(value, Timestamp) else value


def _changes(row: LogRow, before: MessageProperties, after: MessageProperties) -> dict[str, object]:
    """Return the columns of a copy that an action changed."""
    if after is before:
        return {}
    changes: dict[str, object] = {}
    fields: dict[str, object] = {}
    for name in before.system.keys() | after.system.keys():
        value = after.system.get(name)
        if value == before.system.get(name):
            continue
        if name in _AMQP_FIELDS:
            fields[_AMQP_FIELDS[name]] = value
        if name in _COLUMNS:
            changes[_COLUMNS[name]] = value
        if isinstance(value, Duration) and name == "TimeToLive":
            changes["expires"] = row.time + value.microseconds if value.microseconds < NO_LIMIT else None
    changed = {
        name: _for_amqp(value)
        for name, value in after.user.items()
        if name not in before.user or value is not before.user[name]
    }
    removed = [name for name in before.user if name not in after.user]
    made = amqp.with_application_properties(amqp.with_properties(row.head, fields), changed, removed)
    return {**changes, "head": made, "size": row.size + len(made) - len(row.head)}


def _for_amqp(value: object) -> object:
    if isinstance(value, Instant):
        return Timestamp(value.microseconds // 1000)
    if isinstance(value, Duration):
        return Described(Symbol("com.microsoft:timespan"), value.microseconds * 10)
    if isinstance(value, Decimal):
        return float(value)
    return value
