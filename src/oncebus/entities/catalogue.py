"""All entities of a namespace at one moment, and the changes that lead to the next.

A catalogue is a value: a change returns a new one whose version is one higher, or raises and leaves nothing behind.
Entities are found by path, in any case of letters, and by id. An id is new at each creation and never used again, so
that what is in flight to a deleted entity is not taken for its successor's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from oncebus.entities.descriptions import (
    CorrelationFilter,
    Entity,
    Filter,
    Namespace,
    Queue,
    Rule,
    SqlFilter,
    Subscription,
    Tier,
    Topic,
)
from oncebus.entities.errors import AlreadyExists, NotFound, QuotaExceeded
from oncebus.entities.limits import (
    Occasion,
    check_forward_target,
    check_queue,
    check_queue_change,
    check_rule,
    check_subscription,
    check_subscription_change,
    check_topic,
    check_topic_change,
    has_message_size_of,
    settled_queue,
    settled_subscription,
    settled_topic,
)
from oncebus.entities.names import key_of_path, rule_path, subscription_path

MOST_QUEUES_AND_TOPICS = 10_000
MOST_SUBSCRIPTIONS = 2_000
"""Of a topic."""

# Of a topic, all its subscriptions together.
_MOST_FILTERS: dict[type[Filter], tuple[str, int]] = {
    SqlFilter: ("SQL filters", 2_000),
    CorrelationFilter: ("correlation filters", 100_000),
}

_Found = TypeVar("_Found", Queue, Topic, Subscription)


@dataclass(frozen=True)
class Catalogue:
    """The entities of one version. `entities` is keyed by `key_of_path` of each path."""

    version: int = 0
    namespace: Namespace = field(default_factory=Namespace)
    next_id: int = 1
    entities: Mapping[str, Entity] = field(default_factory=dict)

    # Looking up

    def find(self, path: str) -> Entity | None:
        """What is at a path: a queue, a topic, or a subscription at `topic/Subscriptions/name`."""
        return self.entities.get(key_of_path(path))

    def entity(self, id: int) -> Entity | None:  # noqa: A002
        """What has that id; None if it is deleted or was never here."""
        return self._by_id.get(id)

    def queue(self, name: str) -> Queue:
        """The queue of that name."""
        return self._get(name, Queue)

    def topic(self, name: str) -> Topic:
        """The topic of that name."""
        return self._get(name, Topic)

    def subscription(self, topic: str, name: str) -> Subscription:
        """The subscription of that name."""
        return self._get(subscription_path(topic, name), Subscription)

    def rule(self, topic: str, subscription: str, name: str) -> Rule:
        """The rule of that name."""
        for rule in self.subscription(topic, subscription).rules:
            if _same_name(rule.name, name):
                return rule
        raise NotFound(rule_path(topic, subscription, name))

    @property
    def queues(self) -> list[Queue]:
        """All queues, by name."""
        return sorted((each for each in self.entities.values() if isinstance(each, Queue)), key=_key)

    @property
    def topics(self) -> list[Topic]:
        """All topics, by name."""
        return sorted((each for each in self.entities.values() if isinstance(each, Topic)), key=_key)

    def subscriptions_of(self, topic: str | Topic) -> tuple[Subscription, ...]:
        """A topic's subscriptions, by name; none if there is no such topic."""
        found = self.find(topic) if isinstance(topic, str) else topic
        return self._by_topic.get(found.id, ()) if found is not None else ()

    def topic_of(self, subscription: Subscription) -> Topic:
        """The topic that a subscription belongs to."""
        return self.topic(subscription.topic)

    def window_of(self, entity: Entity) -> int | None:
        """How long an id is remembered for what is sent here; a subscription has its topic's. None if not at all."""
        return self.topic_of(entity).window if isinstance(entity, Subscription) else entity.window

    def forward_target(self, path: str | None) -> Queue | Topic | None:
        """Where `forward_to` or `forward_dead_lettered_messages_to` leads today; None if it was deleted since."""
        found = self.find(path) if path is not None else None
        return None if isinstance(found, Subscription) else found

    # Changing queues

    def create_queue(self, queue: Queue, now: int) -> Catalogue:
        """A new queue."""
        self._check_free(queue.name)
        checked = self._checked_queue(queue, Occasion(self.namespace))
        self._check_forwarding(checked)
        return self._with_new(replace(checked, id=self.next_id, created_at=now, updated_at=now, accessed_at=now))

    def update_queue(self, queue: Queue, now: int) -> Catalogue:
        """The queue of that name gets these properties."""
        old = self.queue(queue.name)
        new = self._checked_queue(replace(queue, name=old.name), Occasion(self.namespace, "updating"))
        check_queue_change(old, new)
        self._check_forwarding(new, old)
        return self._with(_continued(old, new, now))

    def delete_queue(self, name: str) -> Catalogue:
        """No such queue any more. What forwarded to it leads nowhere until there is one of that name again."""
        return self._without([self.queue(name)])

    # Changing topics

    def create_topic(self, topic: Topic, now: int) -> Catalogue:
        """A new topic, without subscriptions."""
        self._check_free(topic.name)
        checked = self._checked_topic(topic, Occasion(self.namespace))
        return self._with_new(replace(checked, id=self.next_id, created_at=now, updated_at=now, accessed_at=now))

    def update_topic(self, topic: Topic, now: int) -> Catalogue:
        """The topic of that name gets these properties."""
        old = self.topic(topic.name)
        new = self._checked_topic(replace(topic, name=old.name), Occasion(self.namespace, "updating"))
        check_topic_change(old, new)
        return self._with(_continued(old, new, now))

    def delete_topic(self, name: str) -> Catalogue:
        """No such topic any more, nor any of its subscriptions."""
        topic = self.topic(name)
        return self._without([topic, *self.subscriptions_of(topic)])

    # Changing subscriptions

    def create_subscription(
        self, subscription: Subscription, now: int, rules: Iterable[Rule] | None = None
    ) -> Catalogue:
        """A new subscription with these rules: unless given, the one named $Default, which takes all messages."""
        topic = self.topic(subscription.topic)
        subscription = replace(subscription, topic=topic.name, topic_id=topic.id, rules=())
        checked = self._checked_subscription(subscription, Occasion(self.namespace))
        self._check_forwarding(checked)
        if self.find(checked.path) is not None:
            raise AlreadyExists(checked.path)
        if len(self.subscriptions_of(topic)) >= MOST_SUBSCRIPTIONS:
            raise QuotaExceeded(_too_many(f"Topic: '{topic.name}'", "subscriptions", MOST_SUBSCRIPTIONS))
        for rule in [Rule()] if rules is None else rules:
            checked = self._with_rule(checked, rule, now)
        return self._with_new(replace(checked, id=self.next_id, created_at=now, updated_at=now, accessed_at=now))

    def update_subscription(self, subscription: Subscription, now: int) -> Catalogue:
        """The subscription of that name gets these properties, and keeps its rules."""
        old = self.subscription(subscription.topic, subscription.name)
        given = replace(subscription, topic=old.topic, topic_id=old.topic_id, name=old.name, rules=old.rules)
        new = self._checked_subscription(given, Occasion(self.namespace, "updating"))
        check_subscription_change(old, new)
        self._check_forwarding(new, old)
        return self._with(_continued(old, new, now))

    def delete_subscription(self, topic: str, name: str) -> Catalogue:
        """No such subscription any more."""
        return self._without([self.subscription(topic, name)])

    # Changing rules

    def create_rule(self, topic: str, subscription: str, rule: Rule, now: int) -> Catalogue:
        """A new rule."""
        return self._with(self._with_rule(self.subscription(topic, subscription), rule, now))

    def update_rule(self, topic: str, subscription: str, rule: Rule) -> Catalogue:
        """The rule of that name gets this filter and action."""
        owner = self.subscription(topic, subscription)
        old = self.rule(topic, subscription, rule.name)
        new = replace(rule, name=old.name, created_at=old.created_at)
        check_rule(new)
        rest = replace(owner, rules=tuple(each for each in owner.rules if each is not old))
        self._check_room_for(new, rest)
        return self._with(replace(owner, rules=tuple(new if each is old else each for each in owner.rules)))

    def delete_rule(self, topic: str, subscription: str, name: str) -> Catalogue:
        """No such rule any more. A subscription without rules gets no messages."""
        owner = self.subscription(topic, subscription)
        old = self.rule(topic, subscription, name)
        return self._with(replace(owner, rules=tuple(each for each in owner.rules if each is not old)))

    # Changing the namespace

    def at_tier(self, tier: Tier) -> Catalogue:
        """The same entities in another tier, if it allows all of them."""
        namespace = replace(self.namespace, tier=tier)
        occasion = Occasion(namespace, "keeping")
        entities: dict[str, Entity] = {}
        for key, entity in self.entities.items():
            moved = entity
            if not isinstance(moved, Subscription) and has_message_size_of(self.namespace.tier, moved):
                moved = replace(moved, max_message_size_in_kilobytes=None)
            if isinstance(moved, Queue):
                moved = settled_queue(moved, namespace)
                check_queue(moved, occasion)
            elif isinstance(moved, Topic):
                moved = settled_topic(moved, namespace)
                check_topic(moved, occasion)
            entities[key] = moved
        return replace(self._changed(entities), namespace=namespace)

    # Inside

    @cached_property
    def _by_id(self) -> dict[int, Entity]:
        return {entity.id: entity for entity in self.entities.values()}

    @cached_property
    def _by_topic(self) -> dict[int, tuple[Subscription, ...]]:
        found: dict[int, list[Subscription]] = {}
        for entity in self.entities.values():
            if isinstance(entity, Subscription):
                found.setdefault(entity.topic_id, []).append(entity)
        return {topic: tuple(sorted(subscriptions, key=_key)) for topic, subscriptions in found.items()}

    def _get(self, path: str, kind: type[_Found]) -> _Found:
        found = self.find(path)
        if not isinstance(found, kind):
            raise NotFound(path)
        return found

    def _check_free(self, name: str) -> None:
        if self.find(name) is not None:
            raise AlreadyExists(name)
        if len(self.entities) < MOST_QUEUES_AND_TOPICS:
            return
        if sum(not isinstance(entity, Subscription) for entity in self.entities.values()) >= MOST_QUEUES_AND_TOPICS:
            where = f"Namespace: '{self.namespace.name}'"
            raise QuotaExceeded(_too_many(where, "queues and topics", MOST_QUEUES_AND_TOPICS))

    def _checked_queue(self, queue: Queue, occasion: Occasion) -> Queue:
        queue = settled_queue(queue, self.namespace)
        check_queue(queue, occasion)
        return queue

    def _checked_topic(self, topic: Topic, occasion: Occasion) -> Topic:
        topic = settled_topic(topic, self.namespace)
        check_topic(topic, occasion)
        return topic

    def _checked_subscription(self, subscription: Subscription, occasion: Occasion) -> Subscription:
        subscription = settled_subscription(subscription)
        check_subscription(subscription, occasion)
        return subscription

    def _check_forwarding(self, source: Queue | Subscription, old: Queue | Subscription | None = None) -> None:
        """Refuse targets that cannot be. One that was there before may have been deleted since."""
        targets = {
            "ForwardTo": (source.forward_to, old and old.forward_to),
            "ForwardDeadLetteredMessagesTo": (
                source.forward_dead_lettered_messages_to,
                old and old.forward_dead_lettered_messages_to,
            ),
        }
        for name, (path, before) in targets.items():
            if path is not None and path != before:
                # A new queue that forwards to itself is not here yet, and is to be told so.
                is_itself = isinstance(source, Queue) and _same_name(path, source.name)
                check_forward_target(source, name, path, source if is_itself else self.find(path))

    def _with_rule(self, owner: Subscription, rule: Rule, now: int) -> Subscription:
        check_rule(rule)
        if any(_same_name(each.name, rule.name) for each in owner.rules):
            raise AlreadyExists(rule_path(owner.topic, owner.name, rule.name))
        self._check_room_for(rule, owner)
        return replace(owner, rules=(*owner.rules, replace(rule, created_at=now)))

    def _check_room_for(self, rule: Rule, owner: Subscription) -> None:
        kind: type[Filter] = type(rule.filter)
        if kind not in _MOST_FILTERS:
            return
        noun, most = _MOST_FILTERS[kind]
        others = [each for each in self._by_topic.get(owner.topic_id, ()) if each.path != owner.path]
        if sum(isinstance(each.filter, kind) for one in (*others, owner) for each in one.rules) >= most:
            raise QuotaExceeded(_too_many(f"Topic: '{owner.topic}'", noun, most))

    def _with_new(self, entity: Entity) -> Catalogue:
        return replace(self._with(entity), next_id=self.next_id + 1)

    def _with(self, entity: Entity) -> Catalogue:
        return self._changed({**self.entities, key_of_path(entity.path): entity})

    def _without(self, gone: Iterable[Entity]) -> Catalogue:
        entities = dict(self.entities)
        for entity in gone:
            del entities[key_of_path(entity.path)]
        return self._changed(entities)

    def _changed(self, entities: dict[str, Entity]) -> Catalogue:
        return replace(self, version=self.version + 1, entities=entities)


def _continued(old: _Found, new: _Found, now: int) -> _Found:
    # A clock that steps back does not make a change older than what it changes.
    changed_at = max(now, old.updated_at)
    return replace(new, id=old.id, created_at=old.created_at, updated_at=changed_at, accessed_at=old.accessed_at)


def _same_name(one: str, other: str) -> bool:
    return key_of_path(one) == key_of_path(other)


def _key(entity: Entity) -> str:
    return key_of_path(entity.path)


def _too_many(where: str, noun: str, most: int) -> str:
    return f"The maximum entity count has been reached or exceeded for {where}. At most {most} {noun} are allowed."
