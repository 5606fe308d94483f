"""What is to be there, whoever wrote it down: entities, rules, authorization rules, each with its place in a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from oncebus.entities import Rule, Subscription, Tier, subscription_path
from oncebus.entities.descriptions import EntityKind
from oncebus.management.authorization import GivenRule
from oncebus.management.given import Given


@dataclass(frozen=True, slots=True)
class WantedEntity:
    """A queue, a topic, or a subscription of `topic`. `places` says where each field of it is given.

    `first_rules` are the rules that a new subscription begins with; None for the one that takes all messages.
    """

    place: str
    kind: EntityKind
    name: str
    given: Given
    places: Mapping[str, str] = field(default_factory=dict)
    topic: str = ""
    first_rules: tuple[WantedRule, ...] | None = None

    @property
    def path(self) -> str:
        """Where it is addressed."""
        return subscription_path(self.topic, self.name) if self.kind is Subscription else self.name

    def place_of(self, field_name: str) -> str:
        """Where a field is given, or the whole."""
        return self.places.get(field_name, self.place)


@dataclass(frozen=True, slots=True)
class WantedRule:
    """A rule of a subscription. `places` says where its filter and its action are given."""

    place: str
    topic: str
    subscription: str
    rule: Rule
    places: Mapping[str, str] = field(default_factory=dict)

    @property
    def owner(self) -> str:
        """The path of the subscription."""
        return subscription_path(self.topic, self.subscription)


@dataclass(frozen=True, slots=True)
class WantedAuthorization:
    """An authorization rule of the queue or topic of a name, or of the namespace where it is empty."""

    place: str
    given: GivenRule
    kind: EntityKind | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class WantedTier:
    """The tier that the namespace is to have."""

    place: str
    tier: Tier


@dataclass(frozen=True, slots=True)
class Wanted:
    """All that a file asks for, in the order in which it is to be made, and what it says that has no effect here.

    A tilde in a name stands for a slash where `has_tildes` says so, unless there is an entity with it in its name. What
    has no name could not be given one, and is only there to be judged; then there may be more that is missing, and
    `is_complete` is false.
    """

    namespace: str | None = None
    tier: WantedTier | None = None
    entities: tuple[WantedEntity, ...] = ()
    rules: tuple[WantedRule, ...] = ()
    authorizations: tuple[WantedAuthorization, ...] = ()
    warnings: tuple[str, ...] = ()
    has_tildes: bool = False
    is_complete: bool = True
