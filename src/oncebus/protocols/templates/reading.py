"""Turns the resources of a template into `Wanted`.

Each property is read on its own, so that all problems are found. `oncebus.protocols.management` defines the format of
properties.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from oncebus.model.entities import Queue, Subscription, Topic
from oncebus.model.entities.descriptions import EntityKind
from oncebus.protocols.arm import reading as arm
from oncebus.protocols.management.authorization import GivenRule
from oncebus.protocols.management.documents import Object, find, is_object, kind_of, written_name
from oncebus.protocols.management.given import Given
from oncebus.protocols.management.problems import Problems, member
from oncebus.protocols.management.properties import PROPERTIES, ValueType
from oncebus.protocols.management.reading import RESOURCE_WINDOW, members_of, read_description
from oncebus.protocols.management.rules import read_rule
from oncebus.protocols.management.wanted import Wanted, WantedAuthorization, WantedEntity, WantedRule, WantedTier
from oncebus.protocols.templates.evaluation import is_whole
from oncebus.protocols.templates.resources import Resource
from oncebus.protocols.templates.scope import Value

PROVIDER = "microsoft.servicebus"
_DEPLOYMENTS = "microsoft.resources/deployments"
# Members that every resource may have. They have no effect here.
_COMMON = {"apiversion", "comments", "metadata", "scope", "zones", "plan", "existing", "asserts", "import", "kind"}
# Parts of a namespace in Azure that the broker lacks. Azure's exports contain many of them, so they are ignored with a
# warning.
_NOT_HERE = {
    "namespaces/networkrulesets",
    "namespaces/privateendpointconnections",
    "namespaces/disasterrecoveryconfigs",
    "namespaces/migrationconfigurations",
}
# Properties of a namespace that are ignored with a warning: security that the broker lacks, and old settings.
_LEFT_OUT = ("disablelocalauth", "encryption", "privateendpointconnections", "createacsnamespace", "namespacetype")
# A property of an entity in old templates. It repeats the name.
_PATH = "path"
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


class ResourceReader:
    """Turns resources into `Wanted`. It records each problem, and leaves out the bad value."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._namespaces: dict[str, str] = {}
        self._tier: WantedTier | None = None
        self._entities: list[WantedEntity] = []
        self._rules: list[WantedRule] = []
        self._authorizations: list[WantedAuthorization] = []
        self._warnings: list[str] = []
        self._readers: dict[str, Callable[[Resource], None]] = {
            "namespaces": self._namespace,
            "namespaces/authorizationrules": self._authorization,
            "namespaces/queues": lambda resource: self._entity(resource, Queue),
            "namespaces/queues/authorizationrules": self._authorization,
            "namespaces/topics": lambda resource: self._entity(resource, Topic),
            "namespaces/topics/authorizationrules": self._authorization,
            "namespaces/topics/subscriptions": lambda resource: self._entity(resource, Subscription),
            "namespaces/topics/subscriptions/rules": self._rule,
        }

    def read(self, resources: Iterable[Resource], *, is_complete: bool = True) -> Wanted:
        """Return everything that the resources ask for, in their order.

        Pass `is_complete=False` if some resources could not be read.
        """
        seen: dict[tuple[str, ...], str] = {}
        for resource in resources:
            if resource.provider != PROVIDER or "/providers/" in f"/{resource.kind}/":
                self._foreign(resource)
                continue
            if resource.names[0]:
                self._namespaces.setdefault(resource.names[0].lower(), resource.names[0])
            reader = self._readers.get(resource.kind)
            if resource.kind in _NOT_HERE:
                self._leave_out(resource)
            elif reader is None:
                known = ", ".join(self._readers)
                self._note(resource, "type", f"The type '{resource.type}' is unknown. Use one of {known}.")
            elif resource.is_deployed:
                identity = (resource.kind, *(name.lower() for name in resource.names))
                if identity in seen and resource.is_named:
                    name = "/".join(resource.names)
                    self._note(
                        resource, "name", f"The resource '{name}' is in the template twice: see {seen[identity]}."
                    )
                    continue
                seen[identity] = resource.path
                reader(resource)
        if len(self._namespaces) > 1:
            names = ", ".join(sorted(self._namespaces.values()))
            self._problems.add(
                "resources",
                f"The resources belong to several namespaces: {names}. A broker is exactly one namespace.",
            )
        return Wanted(
            next(iter(self._namespaces.values()), None),
            self._tier,
            tuple(self._entities),
            tuple(self._rules),
            tuple(self._authorizations),
            tuple(self._warnings),
            has_tildes=True,
            is_complete=is_complete,
        )

    def _note(self, resource: Resource, name: str, text: str) -> None:
        self._problems.add(member(resource.path, name), text)

    def _foreign(self, resource: Resource) -> None:
        if resource.type.lower() == _DEPLOYMENTS:
            self._note(
                resource,
                "type",
                "A template within a template is not supported. Deploy the inner template on its own.",
            )
        else:
            self._leave_out(resource)

    def _leave_out(self, resource: Resource) -> None:
        if resource.is_deployed:
            name = "/".join(resource.names)
            self._warnings.append(
                f"{resource.path}: '{name}' is left out: {resource.type} is not a resource of this broker."
            )

    def _namespace(self, resource: Resource) -> None:
        members = {name: value for name, value in resource.members.items() if name.lower() not in _COMMON}
        if not is_whole(members):
            return
        properties = written_name(members, "properties")
        if properties is not None and is_object(members[properties]):
            place = member(resource.path, properties)
            members[properties] = self._without(members[properties], place)
        with self._problems.record_at(resource.path):
            tier = arm.read_tier(members_of(members, "The resource"))
            if tier is not None:
                self._tier = WantedTier(member(resource.path, written_name(members, "sku") or ""), tier)

    def _without(self, properties: Object, place: str) -> Object:
        """Return the properties of a namespace that have an effect here. Adds a warning for each other property."""
        kept = {}
        for name, value in properties.items():
            if name.lower() not in _LEFT_OUT:
                kept[name] = value
            elif value:
                self._warnings.append(f"{member(place, name)}: The property is ignored: it has no effect here.")
        return kept

    def _entity(self, resource: Resource, kind: EntityKind) -> None:
        properties, path = self._properties(resource)
        given: dict[str, Value] = {}
        places: dict[str, str] = {}
        known = {each.camel.lower(): each.type for each in PROPERTIES[kind].values()}
        for name, value in properties.items():
            if value is None or not is_whole(value) or name.lower() == _PATH:
                continue
            place = member(path, name)
            if kind is Subscription and name.lower() == RESOURCE_WINDOW.lower():
                # Azure's exports contain it, but it has no effect.
                self._warnings.append(
                    f"{place}: The property is ignored: the window of a subscription is that of its topic."
                )
                continue
            with self._problems.record_at(place):
                converted = {name: _convert(value, known.get(name.lower()))}
                read = read_description(members_of(converted, "The property"), kind).values
                given |= read
                places |= dict.fromkeys(read, place)
        topic = resource.names[1] if kind is Subscription else ""
        name = resource.names[-1] if resource.is_named else ""
        self._entities.append(WantedEntity(resource.path, kind, name, Given(given), places, topic))

    def _rule(self, resource: Resource) -> None:
        properties, path = self._properties(resource)
        if not is_whole(properties):
            return
        _, topic, subscription, name = resource.names if resource.is_named else ("", "", "", "")
        converted = {each: _convert_part(value) if is_object(value) else value for each, value in properties.items()}
        if written_name(converted, "filter") is not None and find(converted, "sqlFilter") is None:
            # The old format of rules.
            converted["sqlFilter"] = converted.pop(written_name(converted, "filter") or "")
        places = {"filter": _place_of_filter(properties, path), "action": _within(properties, path, "action")}
        with self._problems.record_at(path):
            rule = read_rule(members_of(converted, "The member 'properties'"), name)
            self._rules.append(WantedRule(resource.path, topic, subscription, rule, places))

    def _authorization(self, resource: Resource) -> None:
        properties, path = self._properties(resource)
        if not is_whole(properties):
            return
        kinds: dict[str, EntityKind] = {"queues": Queue, "topics": Topic}
        with self._problems.record_at(path):
            rights = arm.read_rule_rights(members_of({"properties": properties}, "The resource"))
            *_, owner, _ = resource.kind.split("/")
            kind = kinds.get(owner)
            name = resource.names[1] if kind is not None else ""
            if resource.is_named:
                given = GivenRule(resource.names[-1], rights)
                self._authorizations.append(WantedAuthorization(resource.path, given, kind, name))

    def _properties(self, resource: Resource) -> tuple[Object, str]:
        """Return the properties of a resource and their location. Records unknown members as problems."""
        others = {name: None if value is None else True for name, value in resource.members.items()}
        with self._problems.record_at(resource.path):
            checked = {name: value for name, value in others.items() if name.lower() not in (*_COMMON, "properties")}
            arm.properties_of(members_of(checked, "The resource"))
        place = member(resource.path, written_name(resource.members, "properties") or "properties")
        properties = find(resource.members, "properties")
        if properties is None or not is_object(properties):
            if properties is not None and is_whole(properties):
                self._problems.add(place, f"The properties are {kind_of(properties)}. Not an object.")
            return {}, place
        return properties, place


def _convert(value: Value, kind: ValueType | None) -> Value:
    """Return a value. If it is a string where a number or a truth value belongs, return the converted value."""
    if isinstance(value, str):
        text = value.strip().lower()
        if kind is ValueType.FLAG and text in ("true", "false"):
            return text == "true"
        if kind is ValueType.NUMBER and _INTEGER.fullmatch(text):
            return int(text)
    return value


def _convert_part(part: Object) -> Object:
    kinds = {"requirespreprocessing": ValueType.FLAG, "compatibilitylevel": ValueType.NUMBER}
    return {name: _convert(value, kinds.get(name.lower())) for name, value in part.items()}


def _place_of_filter(properties: Object, path: str) -> str:
    is_correlated = str(find(properties, "filterType")).lower() == "correlationfilter"
    names = ["correlationFilter"] if is_correlated else ["sqlFilter", "filter", "correlationFilter"]
    return _within(properties, path, next((name for name in names if find(properties, name) is not None), names[0]))


def _within(properties: Object, path: str, part: str) -> str:
    """Return the location of the SQL expression in a rule's filter or action, or of the filter or action itself."""
    name = written_name(properties, part)
    if name is None:
        return path
    inner = properties[name]
    expression = written_name(inner, "sqlExpression") if is_object(inner) else None
    return member(path, name) if expression is None else member(member(path, name), expression)
