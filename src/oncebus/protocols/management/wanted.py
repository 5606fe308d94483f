"""The resources that a file asks for: entities, rules, authorization rules, each with its location in the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from oncebus.model.entities import Rule, Subscription, Tier, subscription_path
from oncebus.model.entities.descriptions import EntityKind
from oncebus.protocols.management.authorization import GivenRule
from oncebus.protocols.management.given import Given


@dataclass(frozen=True, slots=True)
class WantedEntity:
    """A queue, a topic, or a subscription of `topic`. `places` maps each field that the file sets to its location.

    `first_rules` are the rules that a new subscription starts with; None for the default rule, which matches all.
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
        """Return the path of the entity in the namespace."""
        return subscription_path(self.topic, self.name) if self.kind is Subscription else self.name

    def place_of(self, field_name: str) -> str:
        """Return the location of a field, or of the whole entity if the file does not set the field."""
        return self.places.get(field_name, self.place)


@dataclass(frozen=True, slots=True)
class WantedRule:
    """A rule of a subscription. `places` has the locations of its filter and its action."""

    place: str
    topic: str
    subscription: str
    rule: Rule
    places: Mapping[str, str] = field(default_factory=dict)

    @property
    def owner(self) -> str:
        """Return the path of the subscription."""
        return subscription_path(self.topic, self.subscription)


@dataclass(frozen=True, slots=True)
class WantedAuthorization:
    """An authorization rule of the queue or topic `name`, or of the namespace if `kind` is None."""

    place: str
    given: GivenRule
    kind: EntityKind | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class WantedTier:
    """The tier that the namespace gets."""

    place: str
    tier: Tier


@dataclass(frozen=True, slots=True)
class Wanted:
    """Everything that a file asks for, in the order of creation, and warnings about settings that have no effect here.

    With `has_tildes`, a tilde in a name stands for a slash, unless an entity with the tilde in its name exists. An
    entity has an empty name if its name could not be read; it is here only so that its properties are checked. Then
    other entities may be missing too, and `is_complete` is false.
    """

    namespace: str | None = None
    tier: WantedTier | None = None
    entities: tuple[WantedEntity, ...] = ()
    rules: tuple[WantedRule, ...] = ()
    authorizations: tuple[WantedAuthorization, ...] = ()
    warnings: tuple[str, ...] = ()
    has_tildes: bool = False
    is_complete: bool = True
