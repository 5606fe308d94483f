"""Reads and changes authorization rules: those of the namespace, in the key file, and those of queues and topics."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from oncebus.broker.broker import Broker
from oncebus.model.access import AuthorizationRule, KeyFile, KeyFileError, NamespaceRules, WhichKey, rule_named
from oncebus.model.entities import Catalogue, NotFound, Queue, Topic
from oncebus.protocols.management.authorization import GivenRule, Rules
from oncebus.values.errors import OncebusError


class RulesOwner(NamedTuple):
    """A queue or a topic that has authorization rules of its own."""

    kind: type[Queue] | type[Topic]
    name: str


class RulesFixed(OncebusError):
    """The rules of the namespace cannot be changed, because they are not in a key file."""

    def __init__(self, namespace: str) -> None:
        super().__init__(f"The authorization rules of the namespace '{namespace}' cannot be changed.")


class AuthorizationRules:
    """Reads and changes rules, wherever they are stored. The owner is None for the namespace.

    Without `keys` the rules of the namespace are read-only; changing one raises `RulesFixed`.
    """

    def __init__(self, broker: Broker, namespace_rules: NamespaceRules, keys: KeyFile | None) -> None:
        self._broker = broker
        self._namespace_rules = namespace_rules
        self._keys = keys

    def of(self, owner: RulesOwner | None) -> Sequence[AuthorizationRule]:
        """Return all rules of an owner. Raises `NotFound` if there is no such entity."""
        if owner is not None:
            return _entity(self._broker.catalogue, owner).authorization_rules
        return tuple(self._namespace_rules() if self._keys is None else self._keys.rules())

    def get(self, owner: RulesOwner | None, name: str) -> AuthorizationRule:
        """Return the rule called `name`. Raises `NotFound`."""
        rule = rule_named(self.of(owner), name)
        if rule is not None:
            return rule
        whose = self._broker.catalogue.namespace.name if owner is None else owner.name
        raise NotFound(f"{whose}/authorizationRules/{name}")

    def changeable(self) -> Sequence[AuthorizationRule] | None:
        """Return the rules of the namespace; None if they cannot be changed."""
        return None if self._keys is None else tuple(self._keys.rules())

    async def put(self, owner: RulesOwner | None, given: GivenRule) -> None:
        """Create a rule, or change its rights. An existing rule of the namespace keeps its keys."""
        if owner is None:
            await self._broker.threads.run(self._key_file().put, given.name, given.rights)
        else:
            await self._change(owner, given.put_into)

    async def delete(self, owner: RulesOwner | None, name: str) -> bool:
        """Remove a rule, and return whether it existed. Tokens signed with its keys become invalid."""
        removed = rule_named(self.of(owner), name)
        if removed is None:
            return False
        if owner is None:
            await self._broker.threads.run(self._key_file().remove, name)
        else:
            await self._change(owner, lambda rules: tuple(each for each in rules if each.name != removed.name))
        return True

    async def regenerate(self, owner: RulesOwner | None, name: str, which: WhichKey, key: str | None) -> None:
        """Replace a key of a rule with `key`, or with a random one if `key` is None.

        Tokens signed with the old key become invalid.
        """
        old = self.get(owner, name)
        if owner is None:
            await self._broker.threads.run(self._key_file().rotate, name, which, key)
            return

        def change(rules: Rules) -> Rules:
            return tuple(rule.rotate_key(which, key) if rule.name == old.name else rule for rule in rules)

        await self._change(owner, change)

    async def put_all(self, rules: Iterable[AuthorizationRule]) -> None:
        """Write the rights of these namespace rules to the key file, all in one step."""
        rights = {rule.name: rule.rights for rule in rules}
        if rights:
            await self._broker.threads.run(self._key_file().put_all, rights)

    async def take_back(self, rules: Iterable[AuthorizationRule], before: Iterable[AuthorizationRule]) -> None:
        """Undo `put_all`: give the namespace's rules their rights in `before`, and remove those that are new.

        Does nothing if the key file cannot be written.
        """
        if self._keys is None:
            return
        known = {rule.name: rule.rights for rule in before}
        with contextlib.suppress(KeyFileError):
            await self._broker.threads.run(
                self._keys.put_all, {rule.name: known[rule.name] for rule in rules if rule.name in known}
            )
            for rule in rules:
                if rule.name not in known:
                    await self._broker.threads.run(self._keys.remove, rule.name)

    def _key_file(self) -> KeyFile:
        if self._keys is None:
            raise RulesFixed(self._broker.catalogue.namespace.name)
        return self._keys

    async def _change(self, owner: RulesOwner, change: Callable[[Rules], Rules]) -> None:
        def how(catalogue: Catalogue, now: int) -> Catalogue:
            entity = _entity(catalogue, owner)
            return catalogue.update(replace(entity, authorization_rules=change(entity.authorization_rules)), now)

        await self._broker.change(how)


def _entity(catalogue: Catalogue, owner: RulesOwner) -> Queue | Topic:
    return catalogue.get(owner.name, owner.kind)
