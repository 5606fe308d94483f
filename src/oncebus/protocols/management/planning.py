"""Planning: a pure function from the catalogue and the wanted resources to the next catalogue.

The planner first creates entities without their forwarding and then adds it, so that a file may list them in any order
and forward in circles. The catalogue decides what is allowed; the planner finds out where in the file each problem is.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from oncebus.model.access import MOST_RULES, AuthorizationRule, Right
from oncebus.model.entities import (
    Catalogue,
    Entity,
    EntityError,
    NotFound,
    Subscription,
    Topic,
    TrueFilter,
    limits,
)
from oncebus.model.entities.descriptions import CHOSEN_AT_CREATION, FORWARDING, EntityKind, blank
from oncebus.model.entities.names import DEFAULT_RULE, key_of_path, path_of_address
from oncebus.model.entities.rule_parsing import compile_rule
from oncebus.protocols.management.given import Given
from oncebus.protocols.management.problems import Fault, Problems
from oncebus.protocols.management.rules import with_old_values
from oncebus.protocols.management.wanted import Wanted, WantedAuthorization, WantedEntity, WantedRule
from oncebus.values.errors import OncebusError

NOT_FOUND = NotFound("").sub_code


@dataclass(frozen=True, slots=True)
class Plan:
    """The planned state. `after` is `before` itself if the catalogue does not change, else it is one version higher.

    `known` has the namespace's authorization rules before the plan, `authorizations` those after it. `wanted` spells
    the names of entities as the catalogue does.
    """

    before: Catalogue
    after: Catalogue
    wanted: Wanted
    known: tuple[AuthorizationRule, ...] = ()
    authorizations: tuple[AuthorizationRule, ...] = ()

    @property
    def changed_authorizations(self) -> list[AuthorizationRule]:
        """Return the rules of the namespace that the plan creates or changes."""
        return [rule for rule in self.authorizations if rule not in self.known]


def plan(
    wanted: Wanted,
    before: Catalogue,
    now: int,
    problems: Problems,
    namespace_rules: Iterable[AuthorizationRule] | None = None,
    *,
    leaves_existing: bool = False,
) -> Plan:
    """Return the plan that creates and changes everything in `wanted`.

    Raises `FileRefused` with all problems: those that are already in `problems`, and those that planning finds.

    Resources that the file does not name stay as they are. With `leaves_existing`, all existing entities stay as they
    are. `namespace_rules` is None if the namespace's own rules cannot be changed.
    """
    wanted = _resolve_tildes(wanted, before)
    if leaves_existing:
        wanted = _select_missing(wanted, before)
    planner = _Planner(before, now, problems, wanted.is_complete)
    if wanted.tier is not None and wanted.tier.tier is not before.namespace.tier:
        with problems.record_at(wanted.tier.place):
            planner.after = before.change_tier(wanted.tier.tier)
    for entity in wanted.entities:
        planner.make(entity)
    for entity in wanted.entities:
        planner.complete(entity)
    for rule in wanted.rules:
        planner.put_rule(rule)
    planner.drop_implicit_rules(wanted.rules)
    for authorization in wanted.authorizations:
        if authorization.kind is not None:
            planner.put_authorization(authorization)
    known = tuple(namespace_rules or ())
    authorizations = _plan_namespace_rules(wanted, known, problems, may_change=namespace_rules is not None)
    problems.check()
    after = planner.after if planner.after is before else replace(planner.after, version=before.version + 1)
    return Plan(before, after, wanted, known, authorizations)


def _select_missing(wanted: Wanted, before: Catalogue) -> Wanted:
    return replace(
        wanted,
        entities=tuple(each for each in wanted.entities if before.find(each.path) is None),
        rules=tuple(each for each in wanted.rules if before.find(each.owner) is None),
    )


def _resolve_tildes(wanted: Wanted, before: Catalogue) -> Wanted:
    if not wanted.has_tildes:
        return wanted

    def name(text: str) -> str:
        return text.replace("~", "/") if "~" in text and before.find(text) is None else text

    return replace(
        wanted,
        entities=tuple(
            replace(each, topic=name(each.topic)) if each.kind is Subscription else replace(each, name=name(each.name))
            for each in wanted.entities
        ),
        rules=tuple(replace(each, topic=name(each.topic)) for each in wanted.rules),
        authorizations=tuple(replace(each, name=name(each.name)) for each in wanted.authorizations),
    )


class _Planner:
    """Changes a catalogue step by step.

    It records each failure and continues with a blank entity in place of the failed one.
    """

    def __init__(self, before: Catalogue, now: int, problems: Problems, is_complete: bool) -> None:
        self.after = before
        self._is_complete = is_complete
        self._before = before
        self._now = now
        self._problems = problems
        self._failed: set[str] = set()

    def make(self, wanted: WantedEntity) -> None:
        """Create an entity if it is missing, without forwarding and authorization rules."""
        if not wanted.name:
            self._judge(wanted, None)
            return
        if self._find(wanted) is not None:
            return
        for rule in wanted.first_rules or ():
            self._check_rule(rule)
        try:
            values = {name: value for name, value in wanted.given.values.items() if name not in FORWARDING}
            new = Given(values).apply_to(blank(wanted.kind, wanted.name, wanted.topic))
            rules = None if wanted.first_rules is None else [each.rule for each in wanted.first_rules]
            self.after = self.after.create(new, self._now, rules)
        except OncebusError as error:
            self._explain(wanted, None, error)
            self._failed.add(key_of_path(wanted.path))
            # A blank one takes its place, so that its subscriptions and rules are checked too.
            with suppress(OncebusError):
                self.after = self.after.create(blank(wanted.kind, wanted.name, wanted.topic), self._now)

    def complete(self, wanted: WantedEntity) -> None:
        """Set all given properties of an entity, forwarding included."""
        old = self._find(wanted)
        if old is None or key_of_path(wanted.path) in self._failed:
            return
        try:
            if self._before.entity(old.id) is None:
                new = Given(wanted.given.values).apply_to(old)
            else:
                new = wanted.given.apply_replacing(old)
            self._update(new)
        except OncebusError as error:
            self._explain(wanted, old, error)

    def put_rule(self, wanted: WantedRule) -> None:
        """Create or change a rule of a subscription."""
        owner = self.after.find(wanted.owner)
        rule = wanted.rule
        self._check_rule(wanted)
        if not rule.name or (owner is None and self._is_expected(wanted.owner)):
            return
        with self._problems.record_at(wanted.place):
            subscription = self.after.subscription(wanted.topic, wanted.subscription)
            old = subscription.find_rule(rule.name)
            if old is None:
                self.after = self.after.create_rule(wanted.topic, wanted.subscription, rule, self._now)
                return
            rule = with_old_values(rule, old)
            if (old.filter, old.action) != (rule.filter, rule.action):
                self.after = self.after.update_rule(wanted.topic, wanted.subscription, rule)

    def _check_rule(self, wanted: WantedRule) -> None:
        with self._problems.record_at(wanted.places.get("filter", wanted.place)):
            compile_rule(replace(wanted.rule, action=None))
        with self._problems.record_at(wanted.places.get("action", wanted.place)):
            compile_rule(replace(wanted.rule, filter=TrueFilter()))

    def drop_implicit_rules(self, rules: Iterable[WantedRule]) -> None:
        """Delete the default rule of each subscription that is given other rules, as Azure does."""
        for owner in {key_of_path(rule.owner): rule for rule in rules}.values():
            names = {each.rule.name.lower() for each in rules if key_of_path(each.owner) == key_of_path(owner.owner)}
            found = self.after.find(owner.owner)
            if DEFAULT_RULE.lower() in names or not isinstance(found, Subscription):
                continue
            implicit = found.find_rule(DEFAULT_RULE)
            if implicit is not None and (implicit.filter, implicit.action) == (TrueFilter(), None):
                self.after = self.after.delete_rule(owner.topic, owner.subscription, DEFAULT_RULE)

    def put_authorization(self, wanted: WantedAuthorization) -> None:
        """Create or change an authorization rule of a queue or topic.

        An existing rule keeps the keys that the file does not give.
        """
        if self.after.find(wanted.name) is None and self._is_expected(wanted.name):
            return
        with self._problems.record_at(wanted.place):
            entity = self.after.topic(wanted.name) if wanted.kind is Topic else self.after.queue(wanted.name)
            rules = wanted.given.put_into(entity.authorization_rules)
            self._update(replace(entity, authorization_rules=rules))

    def _find(self, wanted: WantedEntity) -> Any:
        found = self.after.find(wanted.path)
        return found if isinstance(found, wanted.kind) else None

    def _update(self, new: Entity) -> None:
        """Update an entity, unless only its modification time would change."""
        after = self.after.update(new, self._now)
        old, changed = self.after.find(new.path), after.find(new.path)
        if old is None or changed is None or replace(changed, updated_at=old.updated_at) != old:
            self.after = after

    def _explain(self, wanted: WantedEntity, old: Entity | None, error: OncebusError) -> None:
        """Record the problems of an entity: each property that is wrong on its own, then `error` itself.

        An error that is already recorded, or follows from a recorded one, is left out.
        """
        reported = self._judge(wanted, old)
        about = error.field if error.field in wanted.given.values else None
        absent = wanted.topic if about is None else path_of_address(str(wanted.given.values[about]))
        is_absence = isinstance(error, EntityError) and error.sub_code == NOT_FOUND
        if str(error) not in reported and not (is_absence and self._is_expected(absent)):
            self._problems.add(wanted.place if about is None else wanted.place_of(about), str(error))

    def _judge(self, wanted: WantedEntity, old: Entity | None) -> set[str]:
        """Record each property that is wrong on its own, and return the texts of these problems."""
        reported: set[str] = set()
        # An error that a blank entity of this kind has too is not the fault of a property.
        always = self._fault(wanted.kind, old, {})
        chosen = {name: wanted.given.values[name] for name in CHOSEN_AT_CREATION if name in wanted.given.values}
        # These come first, because every check of another property fails with them.
        for name, value in {**chosen, **wanted.given.values}.items():
            # A detection key without detection is wrong, so it is checked together with the others.
            is_alone = name in chosen and name != "detection_key"
            fault = self._fault(wanted.kind, old, {name: value} if is_alone else {**chosen, name: value})
            if fault is not None and fault != always and fault not in reported:
                reported.add(fault)
                self._problems.add(wanted.place_of(name), fault)
        return reported

    def _is_expected(self, path: str) -> bool:
        """Return whether the entity at a path may be missing because of a problem that is already recorded."""
        return not self._is_complete or key_of_path(path) in self._failed

    def _fault(self, kind: EntityKind, old: Entity | None, values: dict[str, Any]) -> str | None:
        namespace = self.after.namespace
        occasion = limits.Occasion(namespace, "creating" if old is None else "updating", old)
        try:
            limits.check_entity(limits.fill_in(replace(blank(kind, "any", "any"), **values), namespace), occasion)
            if old is not None:
                limits.check_change(old, replace(old, **values))
        except OncebusError as error:
            return str(error)
        return None


def _plan_namespace_rules(
    wanted: Wanted, known: tuple[AuthorizationRule, ...], problems: Problems, *, may_change: bool
) -> tuple[AuthorizationRule, ...]:
    """Return the authorization rules that the namespace will have."""
    rules = {rule.name.lower(): rule for rule in known}
    for each in wanted.authorizations:
        if each.kind is not None:
            continue
        with problems.record_at(each.place):
            if not may_change:
                raise Fault("The authorization rules of the namespace cannot be changed here.")
            old = rules.get(each.given.name.lower())
            new = each.given.build(old)
            if old is None or new.rights != old.rights:
                rules[new.name.lower()] = new
            if len(rules) > MOST_RULES:
                raise Fault(f"The namespace would have {len(rules)} authorization rules; {MOST_RULES} is the limit.")
            is_manager = old is not None and Right.MANAGE in old.rights
            if is_manager and not any(Right.MANAGE in rule.rights for rule in rules.values()):
                raise Fault(
                    f"The authorization rule '{new.name}' is the last one with Manage. Give another rule Manage first."
                )
    return tuple(rules.values())
