"""The outputs of a template: values that are evaluated once its resources are deployed.

    "outputs": {"connection": {"type": "string", "value": "[listKeys(resourceId(…), '2024-01-01').primaryKey]"}}

Only here, expressions may call `reference` and `listKeys`, which read the deployed resources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from oncebus.model.access import AuthorizationRule
from oncebus.model.entities import Catalogue, NotFound
from oncebus.protocols.arm import resources
from oncebus.protocols.arm.errors import ArmRefused
from oncebus.protocols.arm.paths import ResourceKind, ResourceName, resource_of
from oncebus.protocols.management.documents import Object, find, is_object, kind_of
from oncebus.protocols.management.problems import Fault, Problems, member
from oncebus.protocols.management.rules import rule_properties
from oncebus.protocols.management.writing import authorization_properties, entity_properties
from oncebus.protocols.templates.evaluation import Evaluator, is_whole
from oncebus.protocols.templates.functions import Function
from oncebus.protocols.templates.parameters import type_of
from oncebus.protocols.templates.scope import Value

MOST_OUTPUTS = 64
"""The maximum number of outputs of a template. It is the Resource Manager's limit."""

_TYPES = {"securestring": "SecureString", "secureobject": "SecureObject"}

KeysOf = Callable[[AuthorizationRule, str | None], Object]
"""Returns the keys and connection strings of a rule, in JSON. The name is that of its entity, or None."""


class Deployed:
    """The deployed resources: what `reference` and `listKeys` return."""

    def __init__(self, catalogue: Catalogue, rules: tuple[AuthorizationRule, ...], keys_of: KeysOf) -> None:
        self._catalogue = catalogue
        self._rules = rules
        self._keys_of = keys_of

    @property
    def functions(self) -> tuple[Function, ...]:
        """Return the functions that read deployed resources."""
        return (
            Function("reference", "string string? string?", self._reference),
            Function("listKeys", "string string", self._list_keys),
        )

    def _reference(self, id: str, _: str = "", full: str = "") -> Value:  # noqa: A002
        with _as_fault(id):
            target = _target(id)
            properties = self._properties(target)
            if full.lower() != "full":
                return properties
            return {"resourceId": id.removeprefix("/"), "properties": properties}

    def _properties(self, target: ResourceName) -> Value:
        match target.resource:
            case ResourceKind.NAMESPACE:
                return {"provisioningState": "Succeeded", "status": "Active"}
            case ResourceKind.ENTITY:
                return entity_properties(self._catalogue.get(target.path, type(target.blank)))
            case ResourceKind.RULE:
                return rule_properties(self._catalogue.rule(target.name, target.subscription, target.rule))
            case ResourceKind.AUTHORIZATION_RULE:
                return authorization_properties(self._rule(target))
        raise Fault("It is not a resource that can be read.")

    def _list_keys(self, id: str, _: str) -> Value:  # noqa: A002
        with _as_fault(id):
            target = _target(id)
            if target.resource is not ResourceKind.AUTHORIZATION_RULE:
                raise Fault("It is not an authorization rule.")
            entity = None if target.kind is None else self._catalogue.get(target.path, target.kind).name
            return self._keys_of(self._rule(target), entity)

    def _rule(self, target: ResourceName) -> AuthorizationRule:
        if target.kind is None:
            rules: tuple[AuthorizationRule, ...] = self._rules
        else:
            rules = tuple(self._catalogue.authorization_rules_of(target.path))
        for rule in rules:
            if rule.name.lower() == target.rule.lower():
                return rule
        raise NotFound(target.rule)


def evaluate_outputs(outputs: Value, evaluator: Evaluator, problems: Problems) -> Object:
    """Return the outputs with their types and values. Records each problem. Secure outputs have no value."""
    if outputs is None:
        return {}
    if not is_object(outputs):
        problems.add("outputs", f"The outputs are {kind_of(outputs)}. Not an object.")
        return {}
    if len(outputs) > MOST_OUTPUTS:
        problems.add("outputs", f"There are {len(outputs)} outputs; {MOST_OUTPUTS} is the limit.")
        return {}
    found: Object = {}
    for name, about in outputs.items():
        with problems.record_at(path := member("outputs", name)):
            made = _output(about, path, name, evaluator)
            if made is not None:
                found[name] = made
    return found


def _output(about: Value, path: str, name: str, evaluator: Evaluator) -> Object | None:
    kind = type_of(about) if is_object(about) else None
    if kind is None:
        raise Fault("An output is an object with the 'type' of a parameter.")
    condition = find(about, "condition")
    if condition is not None and evaluator.require_value(condition, member(path, "condition")) is False:
        return None
    loop, place = find(about, "copy"), member(path, "value")
    if is_object(loop):
        numbered = {**loop, "name": name}
        made: Value = [
            evaluator.require_value(find(loop, "input"), place)
            for _ in evaluator.copies(numbered, member(path, "copy"))
        ]
    else:
        made = evaluator.require_value(find(about, "value"), place)
    assert is_whole(made)
    written = {"type": _TYPES.get(kind, kind.capitalize())}
    return written if kind.startswith("secure") else {**written, "value": made}


def keys_in_json(host: str, port: int | None, is_plain: bool) -> KeysOf:
    """Return a function that writes the keys of a rule for clients of this host and port."""
    return lambda rule, entity: resources.access_keys(rule, host, port, is_plain, entity)


def _target(id: str) -> ResourceName:  # noqa: A002
    if not id.startswith("/"):
        raise Fault("Write its full id, as resourceId(…) returns it.")
    return resource_of(id.encode("utf-8", "replace"))


@contextmanager
def _as_fault(id: str) -> Iterator[None]:  # noqa: A002
    try:
        yield
    except Fault as error:
        raise Fault(f"The resource '{id[:200]}' cannot be read. {error}") from None
    except (ArmRefused, NotFound) as error:
        raise Fault(f"The resource '{id[:200]}' cannot be read: {error}") from None
