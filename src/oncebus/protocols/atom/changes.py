"""Turns requests of the Atom API into changes to the catalogue: functions for `Broker.change`.

Each function looks up what it needs in the catalogue that it is given. Anything looked up earlier may have changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oncebus.model.access import Grant, Guard
from oncebus.model.entities import BadRequest, Catalogue, Entity, NotFound, Rule
from oncebus.model.entities.descriptions import blank, forward_targets
from oncebus.protocols.atom.descriptions import KINDS, MESSAGE_SIZE, read_description, write_description
from oncebus.protocols.atom.document import Element
from oncebus.protocols.atom.entries import RULE, etag_of, matches
from oncebus.protocols.atom.paths import AtomKind, AtomPath
from oncebus.protocols.atom.rules import read_rule, write_rule
from oncebus.protocols.http.errors import Refused
from oncebus.protocols.management import changes
from oncebus.protocols.management.changes import Change

FIRST_VERSION = "2017-04"
"""The first api-version. It lacks the property for the maximum message size."""
_ALLOWED = {AtomKind.RULE: (RULE,), AtomKind.SUBSCRIPTION: ("SubscriptionDescription",)}


@dataclass(frozen=True, slots=True)
class Asker:
    """The caller of a change, with the conditions of its request.

    `tokens` has supplementary tokens by forwarding field.
    """

    guard: Guard
    grant: Grant
    if_match: str | None
    tokens: Mapping[str, str | None]

    def permit(self, old: Entity | None, new: Entity) -> None:
        """Raise `AccessRefused` if the new entity forwards to an entity that the caller may not send to."""
        self.guard.require_forwarding(self.grant, forward_targets(old), forward_targets(new), self.tokens)

    def check_unchanged(self, path: str, etag: str) -> None:
        """Raise `Refused` with status 412 if the request's If-Match header does not match the current ETag."""
        if self.if_match is not None and not matches(self.if_match, etag):
            raise Refused(
                412,
                (
                    f"The entity '{path}' has changed in the meantime: its ETag is {etag}, but If-Match is "
                    f"{self.if_match}."
                ),
            )


def put(target: AtomPath, description: Element, version: str, asker: Asker) -> Change:
    """Return the change for a PUT request. It creates an entity or rule; with If-Match it updates an existing one."""
    allowed = _ALLOWED.get(target.kind, ("QueueDescription", "TopicDescription"))
    if description.name not in allowed:
        wanted = " or a ".join(allowed)
        raise BadRequest(f"The content for '{target.path}' is a '{description.name}'. Not a {wanted}.")
    if target.kind is AtomKind.RULE:
        return _put_rule(target, read_rule(description, target.rule), asker)
    given = read_description(description)
    if version == FIRST_VERSION and "max_message_size_in_kilobytes" in given.values:
        raise BadRequest(f"The property '{MESSAGE_SIZE}' does not exist in the api-version {version}.")
    is_subscription = target.kind is AtomKind.SUBSCRIPTION
    new = blank(KINDS[description.name], target.subscription if is_subscription else target.name, target.name)
    if asker.if_match is None:
        return changes.create(new, given, asker.permit)
    return changes.update(
        new, given, asker.permit, lambda old: asker.check_unchanged(target.path, description_etag(old))
    )


def delete(target: AtomPath, asker: Asker) -> Change:
    """Return the change that deletes an entity or rule."""

    def how(catalogue: Catalogue, _: int) -> Catalogue:
        if target.kind is AtomKind.RULE:
            rule = catalogue.rule(target.name, target.subscription, target.rule)
            asker.check_unchanged(target.path, rule_etag(rule))
            return catalogue.delete_rule(target.name, target.subscription, target.rule)
        entity = find_entity(catalogue, target)
        asker.check_unchanged(target.path, description_etag(entity))
        return catalogue.delete(entity)

    return how


def find_entity(catalogue: Catalogue, target: AtomPath) -> Entity:
    """Return the entity that a path names. Raises `NotFound`."""
    if target.kind is AtomKind.SUBSCRIPTION:
        return catalogue.subscription(target.name, target.subscription)
    entity = catalogue.find(target.name)
    if entity is None:
        raise NotFound(target.name)
    return entity


def description_etag(entity: Entity) -> str:
    """Return the ETag of an entity's description. Messages do not change it."""
    return etag_of(write_description(entity))


def rule_etag(rule: Rule) -> str:
    """Return the ETag of a rule."""
    return etag_of(write_rule(rule))


def _put_rule(target: AtomPath, rule: Rule, asker: Asker) -> Change:
    def how(catalogue: Catalogue, now: int) -> Catalogue:
        if asker.if_match is None:
            return catalogue.create_rule(target.name, target.subscription, rule, now)
        old = catalogue.rule(target.name, target.subscription, target.rule)
        asker.check_unchanged(target.path, rule_etag(old))
        return catalogue.update_rule(target.name, target.subscription, rule)

    return how
