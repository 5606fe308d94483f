"""What a Resource Manager's request does to the catalogue, as functions for `Broker.change`: what is described comes
to be, whether or not it was there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from oncebus.access import Grant, Guard
from oncebus.arm.paths import Shape, Target
from oncebus.arm.reading import read_window
from oncebus.entities import BadRequest, Catalogue, NotFound, Queue, Rule, Subscription, Topic, dotnet_timespan
from oncebus.entities.descriptions import forward_targets
from oncebus.management.reading import RESOURCE_WINDOW, Members, read_description
from oncebus.management.rules import with_old_values

Change = Callable[[Catalogue, int], Catalogue]
T = TypeVar("T", Queue, Topic, Subscription)


def put_entity(
    target: Target, properties: Members, kind: type[Queue | Topic | Subscription], guard: Guard, grant: Grant
) -> Change:
    """Make an entity as it is described; of one that is there, what is not named gets its default again."""
    given = read_description(properties, kind)
    window = read_window(properties) if kind is Subscription else None

    def changed(old: T | None, base: T, now: int) -> T:
        new = given.created(base, now) if old is None else given.replaced(old, now)
        guard.require_forwarding(grant, forward_targets(old), forward_targets(new))
        return new

    def how(catalogue: Catalogue, now: int) -> Catalogue:
        if kind is Subscription:
            _check_window(window, catalogue.topic(target.name))
            there = catalogue.find(f"{target.name}/Subscriptions/{target.subscription}")
            old = there if isinstance(there, Subscription) else None
            subscription = changed(old, Subscription(topic=target.name, name=target.subscription), now)
            if old is None:
                return catalogue.created(subscription, now)
            return catalogue.updated(subscription, now)
        there = catalogue.find(target.name)
        if kind is Topic:
            topic = changed(there if isinstance(there, Topic) else None, Topic(name=target.name), now)
            is_there = isinstance(there, Topic)
            return catalogue.updated(topic, now) if is_there else catalogue.created(topic, now)
        queue = changed(there if isinstance(there, Queue) else None, Queue(name=target.name), now)
        is_there = isinstance(there, Queue)
        return catalogue.updated(queue, now) if is_there else catalogue.created(queue, now)

    return how


def delete_entity(target: Target) -> Change:
    """Delete an entity. Raises `NotFound` where there is none of that sort."""

    def how(catalogue: Catalogue, _: int) -> Catalogue:
        match target.shape:
            case Shape.QUEUE:
                return catalogue.deleted(catalogue.queue(target.name))
            case Shape.TOPIC:
                return catalogue.deleted(catalogue.topic(target.name))
        return catalogue.deleted(catalogue.subscription(target.name, target.subscription))

    return how


def put_rule(target: Target, rule: Rule) -> Change:
    """Make a rule as it is described."""

    def how(catalogue: Catalogue, now: int) -> Catalogue:
        try:
            old = catalogue.rule(target.name, target.subscription, target.rule)
        except NotFound:
            return catalogue.create_rule(target.name, target.subscription, rule, now)
        return catalogue.update_rule(target.name, target.subscription, with_old_values(rule, old))

    return how


def delete_rule(target: Target) -> Change:
    """Delete a rule. Raises `NotFound` where there is none."""
    return lambda catalogue, _: catalogue.delete_rule(target.name, target.subscription, target.rule)


def _check_window(window: int | None, topic: Topic) -> None:
    if window is not None and window != topic.duplicate_detection_history_time_window:
        raise BadRequest(
            f"The property '{RESOURCE_WINDOW}' of a subscription is its topic's. Topic '{topic.name}' has"
            f" {dotnet_timespan(topic.duplicate_detection_history_time_window)}.\nActual value was"
            f" {dotnet_timespan(window)}."
        )
