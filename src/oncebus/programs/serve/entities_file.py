"""Reads the entities file of `--entities`: a JSON list of entities to create at the start.

    [{"type": "queue", "name": "orders", "requiresDuplicateDetection": true},
     {"type": "topic", "name": "prices"},
     {"type": "subscription", "topic": "prices", "name": "high",
      "rules": [{"name": "above", "sqlFilter": "price > 100", "action": "SET urgent = true"}]}]

Properties have the names of Azure's management API, in any letter case. Durations are ISO 8601 or .NET time spans. The
file may contain comments.
"""

from __future__ import annotations

from typing import Any

from oncebus.model.entities import Queue, Subscription, Topic
from oncebus.model.entities.descriptions import EntityKind
from oncebus.model.entities.names import DEFAULT_RULE, key_of_path
from oncebus.protocols.management.documents import Object, find, written_name
from oncebus.protocols.management.entity_file import FileReader
from oncebus.protocols.management.given import Given
from oncebus.protocols.management.problems import Problems, member
from oncebus.protocols.management.properties import PROPERTIES
from oncebus.protocols.management.reading import members_of, read_description
from oncebus.protocols.management.rules import read_rule
from oncebus.protocols.management.wanted import Wanted, WantedEntity, WantedRule

WHAT = "Entities file"

_KINDS: dict[str, EntityKind] = {"queue": Queue, "topic": Topic, "subscription": Subscription}
_PARTS = ("sqlfilter", "correlationfilter", "action")


def read_entities(content: Any, problems: Problems) -> Wanted:
    """Return the entities that a file's content describes. Adds each error to `problems` and skips the bad value."""
    return _Reader(problems).read(content)


class _Reader(FileReader):
    def read(self, content: Any) -> Wanted:
        entities: dict[str, WantedEntity] = {}
        warnings: list[str] = []
        if not isinstance(content, list):
            self._problems.add("", "It is not a list of entities.")
            content = []
        for place, written in self.items_of(content, ""):
            entity = self._entity(written, place)
            if entity is None:
                continue
            first = entities.setdefault(key_of_path(entity.path), entity)
            if first is not entity:
                warnings.append(f"{place}: '{entity.path}' is in the file twice. The first one is used: {first.place}.")
        return Wanted(entities=tuple(entities.values()), warnings=tuple(warnings), is_complete=not self._problems)

    def _entity(self, written: Object, place: str) -> WantedEntity | None:
        kind = _KINDS.get(str(find(written, "type") or "queue").lower())
        if kind is None:
            at = member(place, written_name(written, "type") or "type")
            self._problems.add(at, f"The value {find(written, 'type')!r} is not one of {', '.join(_KINDS)}.")
            return None
        own = ["type", "name", *(["topic", "rules"] if kind is Subscription else [])]
        known = {each.camel.lower(): each.camel for each in PROPERTIES[kind].values()}
        self.check_known(written, place, [*own, *known.values()])
        name = self.name_of(written, place, "name")
        topic = self.name_of(written, place, "topic") if kind is Subscription else ""
        values: dict[str, Any] = {}
        places: dict[str, str] = {}
        for each, value in written.items():
            if each.lower() in known:
                with self._problems.record_at(member(place, each)):
                    read = read_description(members_of({each: value}, "The property"), kind).values
                    values |= read
                    places |= dict.fromkeys(read, member(place, each))
        rules = None
        if kind is Subscription and find(written, "rules") is not None:
            rules = self._rules(written, place, topic, name)
        is_named = name and (topic or kind is not Subscription)
        return WantedEntity(place, kind, name, Given(values), places, topic, rules) if is_named else None

    def _rules(self, written: Object, place: str, topic: str, subscription: str) -> tuple[WantedRule, ...]:
        found: list[WantedRule] = []
        for at, each in self.objects_in(written, place, "rules"):
            self.check_known(each, at, ["name", "sqlFilter", "correlationFilter", "action"])
            name = self.name_of(each, at, "name") if written_name(each, "name") is not None else DEFAULT_RULE
            parts = {part: value for part, value in each.items() if part.lower() in _PARTS}
            # A plain string is short for an object with that SQL expression.
            parts = {
                part: {"sqlExpression": value} if isinstance(value, str) else value for part, value in parts.items()
            }
            with self._problems.record_at(at):
                rule = read_rule(members_of(parts, "The rule"), name)
                found.append(WantedRule(at, topic, subscription, rule))
        return tuple(found)
