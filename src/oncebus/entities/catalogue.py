"""All entities of a namespace at one moment, and the changes that lead to the next.

A catalogue is a value: a change returns a new one whose version is one higher, or raises and leaves nothing behind.
Entities are found by path, in any case of letters, and by id. An id is new at each creation and never used again, so
that what is in flight to a deleted entity is not taken for its successor's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from oncebus.access import AuthorizationRule
from oncebus.entities.descriptions import (
    CorrelationFilter,
    Entity,
    EntityKind,
    Filter,
    Namespace,
    Queue,
    Rule,
    SqlFilter,
    Subscription,
    Tier,
    Topic,
    forward_targets,
)
from oncebus.entities.errors import AlreadyExists, NotFound, QuotaExceeded
from oncebus.entities.limits import (
    E,
    Occasion,
    check_change,
    check_entity,
    check_forward_target,
    check_rule,
    has_message_size_of,
    largest_message,
    settled,
)
from oncebus.entities.names import key_of_path, property_name, rule_path, subscription_path

MOST_QUEUES_AND_TOPICS = 10_000
MOST_SUBSCRIPTIONS = 2_000
"""Of a topic."""

# Of a topic, all its subscriptions together.
_MOST_FILTERS: dict[type[Filter], tuple[str, int]] = {
    SqlFilter: ("SQL filters", 2_000),
    CorrelationFilter: ("correlation filters", 100_000),
}

# What stands below a queue or a topic and is part of it, besides names that begin with $.
_PARTS = ("subscriptions", "messages")


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

    def get(self, path: str, kind: type[E]) -> E:
        """Return the entity of a kind at a path. Raises `NotFound`, also where there is one of another kind."""
        found = self.find(path)
        if not isinstance(found, kind):
            raise NotFound(path)
        return found

    def queue(self, name: str) -> Queue:
        """The queue of that name."""
        return self.get(name, Queue)

    def topic(self, name: str) -> Topic:
        """The topic of that name."""
        return self.get(name, Topic)

    def subscription(self, topic: str, name: str) -> Subscription:
        """The subscription of that name."""
        return self.get(subscription_path(topic, name), Subscription)

    def rule(self, topic: str, subscription: str, name: str) -> Rule:
        """The rule of that name."""
        for rule in self.subscription(topic, subscription).rules:
            if _same_name(rule.name, name):
                return rule
        raise NotFound(rule_path(topic, subscription, name))

    def listed(self, kind: EntityKind, topic: str = "") -> Sequence[Entity]:
        """Return all entities of a kind, by name: of subscriptions those of a topic, which must exist."""
        if kind is Subscription:
            return self.subscriptions_of(self.topic(topic))
        return self.queues if kind is Queue else self.topics

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

    def largest_message(self, entity: Entity | None) -> int:
        """Return how many bytes a message in an entity may have; a subscription holds those of its topic.

        Of an entity that was deleted since, what most have.
        """
        holder = self.topic_of(entity) if isinstance(entity, Subscription) else entity
        return largest_message(holder if holder is not None else Queue(name=""))

    def forward_target(self, path: str | None) -> Queue | Topic | None:
        """Where `forward_to` or `forward_dead_lettered_messages_to` leads today; None if it was deleted since."""
        found = self.find(path) if path is not None else None
        return None if isinstance(found, Subscription) else found

    # Who owns what: what `oncebus.access` asks

    def authorization_rules_of(self, path: str) -> tuple[AuthorizationRule, ...]:
        """Return the authorization rules of the entity at a path. A subscription has none of its own."""
        found = self.forward_target(path)
        return () if found is None else found.authorization_rules

    def owner_of(self, path: str) -> str:
        """Return the path of the queue or topic that a path in lower case belongs to, or the path itself.

        A path belongs to an entity if it is the entity's own or names a part of it.
        """
        segments = path.split("/")
        for size in range(len(segments), 0, -1):
            above = "/".join(segments[:size])
            if self.forward_target(above) is not None:
                is_part = size == len(segments) or segments[size] in _PARTS or segments[size].startswith("$")
                return above if is_part else path
        return path

    def paths_with_key(self, name: str, key: str) -> Sequence[str]:
        """Return the paths of the queues and topics that have an authorization rule of that name with that key."""
        return self._by_key.get((name, key), ())

    # Changing entities

    def created(self, entity: Entity, now: int, rules: Iterable[Rule] | None = None) -> Catalogue:
        """Return the catalogue with a new entity.

        A new topic has no subscriptions. A new subscription has these rules: unless given, the one named $Default,
        which takes all messages.
        """
        if isinstance(entity, Subscription):
            topic = self.topic(entity.topic)
            entity = replace(entity, topic=topic.name, topic_id=topic.id, rules=())
        else:
            self._check_free(entity.name)
        new = self._checked(entity, Occasion(self.namespace))
        if isinstance(new, Subscription):
            new = self._with_first_rules(new, now, [Rule()] if rules is None else rules)
        new = replace(new, id=self.next_id, created_at=now, updated_at=now, accessed_at=now)
        return replace(self._with(new), next_id=self.next_id + 1)

    def updated(self, entity: Entity, now: int) -> Catalogue:
        """Return the catalogue in which the entity of that kind and name has these properties.

        A subscription keeps its rules.
        """
        old = self.get(entity.path, type(entity))
        kept: dict[str, Any] = {"name": old.name}
        if isinstance(old, Subscription):
            kept |= {"topic": old.topic, "topic_id": old.topic_id, "rules": old.rules}
        new = self._checked(replace(entity, **kept), Occasion(self.namespace, "updating"), old)
        # A clock that steps back does not make a change older than what it changes.
        changed_at = max(now, old.updated_at)
        return self._with(
            replace(new, id=old.id, created_at=old.created_at, updated_at=changed_at, accessed_at=old.accessed_at)
        )

    def deleted(self, entity: Entity) -> Catalogue:
        """Return the catalogue without the entity of that kind and name, nor any subscription of a topic.

        What forwarded to it leads nowhere until there is an entity of that name again.
        """
        found = self.get(entity.path, type(entity))
        gone: list[Entity] = [found, *(self.subscriptions_of(found) if isinstance(found, Topic) else ())]
        entities = dict(self.entities)
        for each in gone:
            del entities[key_of_path(each.path)]
        return self._changed(entities)

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
            if not isinstance(moved, Subscription):
                moved = settled(moved, namespace)
                check_entity(moved, occasion)
            entities[key] = moved
        return replace(self._changed(entities), namespace=namespace)

    # Inside

    @cached_property
    def _by_id(self) -> dict[int, Entity]:
        return {entity.id: entity for entity in self.entities.values()}

    @cached_property
    def _by_key(self) -> dict[tuple[str, str], list[str]]:
        # Anybody may ask by trying to sign in, and very many entities may have a rule of the same name: they are gone
        # through once for each catalogue. A dictionary compares only keys of the same hash, so timing tells nothing.
        paths: dict[tuple[str, str], list[str]] = {}
        for entity in self.entities.values():
            for rule in self.authorization_rules_of(entity.path):
                for key in {rule.primary_key, rule.secondary_key}:
                    paths.setdefault((rule.name, key), []).append(entity.path)
        return paths

    @cached_property
    def _by_topic(self) -> dict[int, tuple[Subscription, ...]]:
        found: dict[int, list[Subscription]] = {}
        for entity in self.entities.values():
            if isinstance(entity, Subscription):
                found.setdefault(entity.topic_id, []).append(entity)
        return {topic: tuple(sorted(subscriptions, key=_key)) for topic, subscriptions in found.items()}

    def _check_free(self, name: str) -> None:
        if self.find(name) is not None:
            raise AlreadyExists(name)
        if len(self.entities) < MOST_QUEUES_AND_TOPICS:
            return
        if sum(not isinstance(entity, Subscription) for entity in self.entities.values()) >= MOST_QUEUES_AND_TOPICS:
            where = f"Namespace: '{self.namespace.name}'"
            raise QuotaExceeded(_too_many(where, "queues and topics", MOST_QUEUES_AND_TOPICS))

    def _checked(self, entity: E, occasion: Occasion, old: Entity | None = None) -> E:
        new = settled(entity, self.namespace)
        check_entity(new, occasion)
        if old is not None:
            check_change(old, new)
        self._check_forwarding(new, old)
        return new

    def _check_forwarding(self, source: Entity, old: Entity | None) -> None:
        """Refuse targets that cannot be. One that was there before may have been deleted since."""
        before = forward_targets(old)
        for name, path in forward_targets(source).items():
            if path != before.get(name):
                # A new queue that forwards to itself is not here yet, and is to be told so.
                is_itself = isinstance(source, Queue) and _same_name(path, source.name)
                check_forward_target(source, property_name(name), path, source if is_itself else self.find(path))

    def _with_first_rules(self, new: Subscription, now: int, rules: Iterable[Rule]) -> Subscription:
        if self.find(new.path) is not None:
            raise AlreadyExists(new.path)
        if len(self._by_topic.get(new.topic_id, ())) >= MOST_SUBSCRIPTIONS:
            raise QuotaExceeded(_too_many(f"Topic: '{new.topic}'", "subscriptions", MOST_SUBSCRIPTIONS))
        for rule in rules:
            new = self._with_rule(new, rule, now)
        return new

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

    def _with(self, entity: Entity) -> Catalogue:
        return self._changed({**self.entities, key_of_path(entity.path): entity})

    def _changed(self, entities: dict[str, Entity]) -> Catalogue:
        return replace(self, version=self.version + 1, entities=entities)


def _same_name(one: str, other: str) -> bool:
    return key_of_path(one) == key_of_path(other)


def _key(entity: Entity) -> str:
    return key_of_path(entity.path)


def _too_many(where: str, noun: str, most: int) -> str:
    return f"The maximum entity count has been reached or exceeded for {where}. At most {most} {noun} are allowed."
