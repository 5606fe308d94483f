"""Authorization rules and their keys: the namespace's, which lie in the key file, and those of entities."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace

from oncebus.access import AuthorizationRule, KeyFile, NamespaceRules, Right, WhichKey, rule_named
from oncebus.access.scopes import host_of
from oncebus.arm import resources
from oncebus.arm.paths import Shape, Target
from oncebus.arm.resources import Owner, Resource
from oncebus.broker.broker import Broker
from oncebus.entities import Catalogue, NotFound, Queue, Topic
from oncebus.http.errors import Refused
from oncebus.http.requests import Asked
from oncebus.management.authorization import GivenRule

Rules = tuple[AuthorizationRule, ...]


class Authorization:
    """Looks at rules and changes them, wherever they lie."""

    def __init__(
        self, broker: Broker, namespace_rules: NamespaceRules, keys: KeyFile | None, amqp_port: int | None
    ) -> None:
        self._broker = broker
        self._namespace_rules = namespace_rules
        self._keys = keys
        self._amqp_port = amqp_port

    def list(self, target: Target) -> list[Resource]:
        """All rules of an owner, without keys."""
        owner = self._owner(target)
        return [resources.authorization_rule(rule, owner) for rule in self._rules(target)]

    def get(self, target: Target) -> Resource:
        """One rule, without keys."""
        return resources.authorization_rule(self._rule(target), self._owner(target))

    def keys(self, target: Target, request: Asked) -> Resource:
        """The keys of a rule."""
        return self._shown(self._rule(target), target, request)

    async def put(self, target: Target, rights: frozenset[Right]) -> Resource:
        """Give a rule these rights. One that is there keeps its keys."""
        if target.owner is Shape.NAMESPACE:
            await asyncio.to_thread(self._key_file(target).put, target.rule, rights)
        else:
            given = GivenRule(target.rule, rights)

            def change(rules: Rules, now: int) -> Rules:
                old = rule_named(rules, target.rule)
                new = given.made(old, now)
                return (*rules, new) if old is None else tuple(new if each is old else each for each in rules)

            await self._change(target, change)
        return self.get(target)

    async def delete(self, target: Target) -> bool:
        """Remove a rule: what its keys have signed is refused from now on. Whether there was one."""
        gone = rule_named(self._rules(target), target.rule)
        if gone is None:
            return False
        if target.owner is Shape.NAMESPACE:
            await asyncio.to_thread(self._key_file(target).remove, target.rule)
        else:
            await self._change(target, lambda rules, _: tuple(each for each in rules if each.name != gone.name))
        return True

    async def regenerate(self, target: Target, which: WhichKey, key: str | None, request: Asked) -> Resource:
        """Replace a key of a rule: what the old one has signed is refused from now on."""
        old = self._rule(target)
        if target.owner is Shape.NAMESPACE:
            await asyncio.to_thread(self._key_file(target).rotate, target.rule, which, key)
        else:

            def change(rules: Rules, now: int) -> Rules:
                return tuple(
                    replace(rule.rotated(which, key), modified_at=now) if rule.name == old.name else rule
                    for rule in rules
                )

            await self._change(target, change)
        return self.keys(target, request)

    def _rules(self, target: Target) -> Iterable[AuthorizationRule]:
        if target.owner is not Shape.NAMESPACE:
            return self._entity(self._broker.catalogue, target).authorization_rules
        return self._namespace_rules() if self._keys is None else self._keys.rules()

    def _rule(self, target: Target) -> AuthorizationRule:
        rule = rule_named(self._rules(target), target.rule)
        if rule is not None:
            return rule
        raise NotFound(f"{target.name or target.namespace}/authorizationRules/{target.rule}")

    def _owner(self, target: Target) -> Owner:
        if target.owner is Shape.NAMESPACE:
            return resources.namespace_owner(target)
        return resources.owner_of(self._entity(self._broker.catalogue, target), target)

    def _key_file(self, target: Target) -> KeyFile:
        if self._keys is None:
            raise Refused(
                405,
                f"The authorization rules of the namespace '{target.namespace}' cannot be changed.",
                {"allow": "GET"},
            )
        return self._keys

    async def _change(self, target: Target, change: Callable[[Rules, int], Rules]) -> None:
        def how(catalogue: Catalogue, now: int) -> Catalogue:
            entity = self._entity(catalogue, target)
            rules = change(entity.authorization_rules, now)
            return catalogue.updated(replace(entity, authorization_rules=rules), now)

        await self._broker.change(how)

    def _entity(self, catalogue: Catalogue, target: Target) -> Queue | Topic:
        return catalogue.queue(target.name) if target.owner is Shape.QUEUE else catalogue.topic(target.name)

    def _shown(self, rule: AuthorizationRule, target: Target, request: Asked) -> Resource:
        host = request.named_host or self._broker.catalogue.namespace.name
        entity = None if target.owner is Shape.NAMESPACE else self._entity(self._broker.catalogue, target).name
        is_plain = request.scope["scheme"] == "http"
        return resources.access_keys(rule, host_of(host), self._amqp_port, is_plain, entity)
