"""The catalogue: all entities of a namespace, as of one version, and the changes that lead to the next version.

A catalogue is an immutable value: a change returns a new catalogue whose version is one higher, or raises. Entities are
found by path, in any letter case, and by id. Each creation gives a new id, which is never reused. So messages on their
way to a deleted entity do not reach a new entity of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from oncebus.model.access import AuthorizationRule
from oncebus.model.entities.descriptions import (
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
from oncebus.model.entities.errors import AlreadyExists, BadRequest, NotFound, QuotaExceeded
from oncebus.model.entities.limits import (
    E,
    Occasion,
    check_change,
    check_entity,
    check_forward_target,
    check_rule,
    fill_in,
    has_message_size_of,
    largest_message,
)
from oncebus.model.entities.names import key_of_path, rule_path, subscription_path

MOST_QUEUES_AND_TOPICS = 10_000
MOST_SUBSCRIPTIONS = 2_000
"""Per topic."""

# Per topic, in all its subscriptions together.
_MOST_FILTERS: dict[type[Filter], tuple[str, int]] = {
    SqlFilter: ("SQL filters", 2_000),
    CorrelationFilter: ("correlation filters", 100_000),
}

# Segments that may follow the path of a queue or topic and belong to it. So do segments that begin with $.
_PARTS = ("subscriptions", "messages")


@dataclass(frozen=True)
class Catalogue:
    """One version of all entities. The keys of `entities` are the paths, as `key_of_path` returns them."""

    version: int = 0
    namespace: Namespace = field(default_factory=Namespace)
    next_id: int = 1
    entities: Mapping[str, Entity] = field(default_factory=dict)

    # Lookups

    def find(self, path: str) -> Entity | None:
        """Return the entity at a path, or None. The path of a subscription is `topic/Subscriptions/name`."""
        return self.entities.get(key_of_path(path))

    def entity(self, id: int) -> Entity | None:  # noqa: A002
        """Return the entity whose id is `id`; None if it was deleted or never existed."""
        return self._by_id.get(id)

    def get(self, path: str, kind: type[E]) -> E:
        """Return the entity at a path. Raises `NotFound` if there is none, or if it is not of the given kind."""
        found = self.find(path)
        if not isinstance(found, kind):
            raise NotFound(path)
        return found

    def queue(self, name: str) -> Queue:
        """Return the queue called `name`. Raises `NotFound`."""
        return self.get(name, Queue)

    def topic(self, name: str) -> Topic:
        """Return the topic called `name`. Raises `NotFound`."""
        return self.get(name, Topic)

    def subscription(self, topic: str, name: str) -> Subscription:
        """Return the subscription called `name`. Raises `NotFound`."""
        return self.get(subscription_path(topic, name), Subscription)

    def rule(self, topic: str, subscription: str, name: str) -> Rule:
        """Return the rule called `name`. Raises `NotFound`."""
        rule = self.subscription(topic, subscription).find_rule(name)
        if rule is None:
            raise NotFound(rule_path(topic, subscription, name))
        return rule

    def list_entities(self, kind: EntityKind, topic: str = "") -> Sequence[Entity]:
        """Return all queues, all topics, or all subscriptions of an existing topic, sorted by name."""
        if kind is Subscription:
            return self.subscriptions_of(self.topic(topic))
        return self.queues if kind is Queue else self.topics

    @property
    def queues(self) -> list[Queue]:
        """Return all queues, sorted by name."""
        return sorted((each for each in self.entities.values() if isinstance(each, Queue)), key=_key)

    @property
    def topics(self) -> list[Topic]:
        """Return all topics, sorted by name."""
        return sorted((each for each in self.entities.values() if isinstance(each, Topic)), key=_key)

    def subscriptions_of(self, topic: str | Topic) -> tuple[Subscription, ...]:
        """Return the subscriptions of a topic, sorted by name. Empty if there is no such topic."""
        found = self.find(topic) if isinstance(topic, str) else topic
        return self._by_topic.get(found.id, ()) if found is not None else ()

    def topic_of(self, subscription: Subscription) -> Topic:
        """Return the topic that a subscription belongs to."""
        return self.topic(subscription.topic)

    def window_of(self, entity: Entity) -> int | None:
        """Return the duplicate detection window of an entity, or None without detection.

        A subscription has the window of its topic.
        """
        return self.topic_of(entity).window if isinstance(entity, Subscription) else entity.window

    def largest_message(self, entity: Entity | None) -> int:
        """Return the maximum size of a message in an entity, in bytes. A subscription has the limit of its topic.

        For None, which stands for a deleted entity, it returns the default limit.
        """
        holder = self.topic_of(entity) if isinstance(entity, Subscription) else entity
        return largest_message(holder if holder is not None else Queue(name=""))

    def forward_target(self, path: str | None) -> Queue | Topic | None:
        """Return the queue or topic at the path in `forward_to` or `forward_dead_lettered_messages_to`.

        Returns None if the path is None, or if the entity has been deleted.
        """
        found = self.find(path) if path is not None else None
        return None if isinstance(found, Subscription) else found

    # Ownership and authorization rules: the interface that `oncebus.model.access.guard` needs

    def authorization_rules_of(self, path: str) -> tuple[AuthorizationRule, ...]:
        """Return the authorization rules of the entity at a path. A subscription has no rules of its own."""
        found = self.forward_target(path)
        return () if found is None else found.authorization_rules

    def owner_of(self, path: str) -> str:
        """Return the path of the queue or topic that a lower-case path belongs to.

        Returns the path itself if it belongs to none.

        A path belongs to an entity if it is the path of the entity or of a part of it.
        """
        segments = path.split("/")
        for size in range(len(segments), 0, -1):
            above = "/".join(segments[:size])
            if self.forward_target(above) is not None:
                is_part = size == len(segments) or segments[size] in _PARTS or segments[size].startswith("$")
                return above if is_part else path
        return path

    def paths_with_key(self, name: str, key: str) -> Sequence[str]:
        """Return the paths of the queues and topics that have this authorization rule with this key."""
        return self._by_key.get((name, key), ())

    # Changing entities

    def create(self, entity: Entity, now: int, rules: Iterable[Rule] | None = None) -> Catalogue:
        """Return the catalogue with a new entity.

        A new topic has no subscriptions. A new subscription has the given rules. `rules=None` means one rule named
        $Default, which selects all messages.
        """
        if isinstance(entity, Subscription):
            topic = self.topic(entity.topic)
            entity = replace(entity, topic=topic.name, topic_id=topic.id, rules=())
        else:
            self._check_free(entity.name)
        new = self._check(entity, Occasion(self.namespace))
        if isinstance(new, Subscription):
            new = self._with_first_rules(new, now, [Rule()] if rules is None else rules)
        new = replace(new, id=self.next_id, created_at=now, updated_at=now)
        return replace(self._with(new), next_id=self.next_id + 1)

    def update(self, entity: Entity, now: int) -> Catalogue:
        """Return the catalogue with an entity replaced by `entity`, which has the same kind and name.

        Raises `NotFound` if there is no such entity. A subscription keeps its rules.
        """
        old = self.get(entity.path, type(entity))
        kept: dict[str, Any] = {"name": old.name}
        if isinstance(old, Subscription):
            kept |= {"topic": old.topic, "topic_id": old.topic_id, "rules": old.rules}
        new = self._check(replace(entity, **kept), Occasion(self.namespace, "updating", old))
        # After the clock steps back, an update must not look older than the version before it.
        changed_at = max(now, old.updated_at)
        return self._with(replace(new, id=old.id, created_at=old.created_at, updated_at=changed_at))

    def switch_on_detection(
        self, path: str, window: int | None, now: int, detection_key: str | None = None
    ) -> Catalogue:
        """Return the catalogue in which an existing queue or topic detects duplicates. An extension beyond Azure.

        Messages are judged and remembered from this version on. Without `window`, the window of its description
        applies. Detection cannot be switched off again: a sender that relies on it would not notice.
        """
        old = self.find(path)
        if old is None:
            raise NotFound(path)
        if isinstance(old, Subscription):
            raise BadRequest(f"The subscription '{old.path}' has the detection of its topic. Switch it on there.")
        if old.requires_duplicate_detection:
            raise BadRequest(f"The {type(old).__name__.lower()} '{old.path}' detects duplicates already.")
        new = replace(
            old,
            requires_duplicate_detection=True,
            duplicate_detection_history_time_window=(
                old.duplicate_detection_history_time_window if window is None else window
            ),
            detection_key=detection_key,
            updated_at=max(now, old.updated_at),
        )
        new = fill_in(new, self.namespace)
        check_entity(new, Occasion(self.namespace, "updating", old))
        return self._with(new)

    def delete(self, entity: Entity) -> Catalogue:
        """Return the catalogue without the entity that has the kind and name of `entity`.

        A topic's subscriptions are deleted too.

        Entities that forward to it keep their target. The target dangles until an entity with that name exists again.
        """
        found = self.get(entity.path, type(entity))
        removed: list[Entity] = [found, *(self.subscriptions_of(found) if isinstance(found, Topic) else ())]
        entities = dict(self.entities)
        for each in removed:
            del entities[key_of_path(each.path)]
        return self._next_version(entities)

    def clear(self) -> Catalogue:
        """Return the catalogue without any entity. Ids of deleted entities are not used again."""
        return self._next_version({})

    # Changing rules

    def create_rule(self, topic: str, subscription: str, rule: Rule, now: int) -> Catalogue:
        """Return the catalogue with a new rule in a subscription."""
        return self._with(self._with_rule(self.subscription(topic, subscription), rule, now))

    def update_rule(self, topic: str, subscription: str, rule: Rule) -> Catalogue:
        """Return the catalogue in which the rule called `rule.name` has the filter and action of `rule`."""
        owner = self.subscription(topic, subscription)
        old = self.rule(topic, subscription, rule.name)
        new = replace(rule, name=old.name, created_at=old.created_at)
        check_rule(new)
        rest = replace(owner, rules=tuple(each for each in owner.rules if each is not old))
        self._check_room_for(new, rest)
        return self._with(replace(owner, rules=tuple(new if each is old else each for each in owner.rules)))

    def delete_rule(self, topic: str, subscription: str, name: str) -> Catalogue:
        """Return the catalogue without a rule. A subscription without rules gets no messages."""
        owner = self.subscription(topic, subscription)
        old = self.rule(topic, subscription, name)
        return self._with(replace(owner, rules=tuple(each for each in owner.rules if each is not old)))

    # Changing the namespace

    def change_tier(self, tier: Tier) -> Catalogue:
        """Return the catalogue with the namespace in another tier.

        Raises `BadRequest` if the tier does not allow one of its entities.
        """
        namespace = replace(self.namespace, tier=tier)
        entities: dict[str, Entity] = {}
        for key, entity in self.entities.items():
            moved = entity
            if not isinstance(moved, Subscription) and has_message_size_of(self.namespace.tier, moved):
                moved = replace(moved, max_message_size_in_kilobytes=None)
            if not isinstance(moved, Subscription):
                moved = fill_in(moved, namespace)
                check_entity(moved, Occasion(namespace, "keeping", entity))
            entities[key] = moved
        return replace(self._next_version(entities), namespace=namespace)

    def change_tags(self, tags: tuple[tuple[str, str], ...]) -> Catalogue:
        """Return the catalogue with other tags of the namespace."""
        return replace(self, version=self.version + 1, namespace=replace(self.namespace, tags=tags))

    def allow_windows(self, longest_window: int) -> Catalogue:
        """Return the same version, in which new windows may have this length at most. Existing windows stay."""
        return replace(self, namespace=replace(self.namespace, longest_window=longest_window))

    # Internals

    @cached_property
    def _by_id(self) -> dict[int, Entity]:
        return {entity.id: entity for entity in self.entities.values()}

    @cached_property
    def _by_key(self) -> dict[tuple[str, str], list[str]]:
        # Anyone can trigger this lookup with a login attempt, and very many entities may have a rule of the same name.
        # So the index is built once per catalogue. A dictionary compares only keys with the same hash, so the time of a
        # lookup reveals nothing about a key.
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

    def _check(self, entity: E, occasion: Occasion) -> E:
        new = fill_in(entity, self.namespace)
        check_entity(new, occasion)
        if occasion.old is not None:
            check_change(occasion.old, new)
        self._check_forwarding(new, occasion.old)
        return new

    def _check_forwarding(self, source: Entity, old: Entity | None) -> None:
        """Raise `BadRequest` for an invalid forwarding target.

        A target that was in `old` already is allowed even if it has been deleted.
        """
        before = forward_targets(old)
        for name, path in forward_targets(source).items():
            if path != before.get(name):
                # A new queue that forwards to itself is not in the catalogue yet.
                is_itself = isinstance(source, Queue) and key_of_path(path) == key_of_path(source.name)
                check_forward_target(name, path, source if is_itself else self.find(path))

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
        if owner.find_rule(rule.name) is not None:
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
        return self._next_version({**self.entities, key_of_path(entity.path): entity})

    def _next_version(self, entities: dict[str, Entity]) -> Catalogue:
        return replace(self, version=self.version + 1, entities=entities)


def _key(entity: Entity) -> str:
    return key_of_path(entity.path)


def _too_many(where: str, noun: str, most: int) -> str:
    return f"The maximum entity count has been reached or exceeded for {where}. At most {most} {noun} are allowed."
