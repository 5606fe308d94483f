"""Entities to have at the start, from a file: a list of descriptions by the service's property names.

    [{"type": "queue", "name": "orders", "requiresDuplicateDetection": true},
     {"type": "topic", "name": "prices"},
     {"type": "subscription", "topic": "prices", "name": "high",
      "rules": [{"name": "above", "sqlFilter": "price > 100", "action": "SET urgent = true"}]}]

Names of properties are those of Azure's management, in any case of letters; durations are ISO 8601 or .NET time spans.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from oncebus.entities import (
    Catalogue,
    CorrelationFilter,
    Entity,
    EntityStatus,
    Filter,
    Queue,
    Rule,
    SqlAction,
    SqlFilter,
    Subscription,
    Topic,
    TrueFilter,
    parse_timespan,
)
from oncebus.errors import OncebusError

_KINDS: dict[str, type[Entity]] = {"queue": Queue, "topic": Topic, "subscription": Subscription}
_NOT_GIVEN = {"id", "topic_id", "created_at", "updated_at", "accessed_at", "rules", "authorization_rules"}
_DURATIONS = {
    "lock_duration",
    "default_message_time_to_live",
    "duplicate_detection_history_time_window",
    "auto_delete_on_idle",
}


class EntitiesFileError(OncebusError, ValueError):
    """A file of entities cannot be used."""


class EntitiesFile:
    """The entities that a file describes, read and checked as far as they can be alone."""

    def __init__(self, path: Path, entities: list[tuple[Entity, list[Rule] | None]]) -> None:
        self.path = path
        self.entities = entities

    @classmethod
    def read(cls, path: Path) -> EntitiesFile:
        """Read a file. Raises `EntitiesFileError`."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise EntitiesFileError(f"Entities file '{path}' cannot be read: {error.strerror}.") from error
        except (ValueError, RecursionError) as error:
            raise EntitiesFileError(f"Entities file '{path}' is not JSON: {error}.") from error
        if not isinstance(content, list):
            raise EntitiesFileError(f"Entities file '{path}' is not a list of entities.")
        entities = []
        for number, written in enumerate(content, start=1):
            try:
                entities.append(_entity(written))
            except (ValueError, TypeError) as error:
                raise EntitiesFileError(f"Entities file '{path}', entity {number}: {_joined(error)}") from error
        return cls(path, entities)

    def added_to(self, catalogue: Catalogue, now: int) -> Catalogue:
        """The catalogue with those that are missing, as one version more; the same one if none is.

        What exists is left as it is, whatever the file says of it.
        """
        after = catalogue
        for entity, rules in self.entities:
            if after.find(entity.path) is not None:
                continue
            try:
                after = after.created(entity, now, rules)
            except OncebusError as error:
                raise EntitiesFileError(f"Entities file '{self.path}', '{entity.path}': {_joined(error)}") from error
        return after


def _entity(written: object) -> tuple[Entity, list[Rule] | None]:
    given = _object(written, "An entity")
    kind = _KINDS.get(str(given.pop("type", "queue")).lower())
    if kind is None:
        raise EntitiesFileError(f"Property 'type' is not one of {', '.join(_KINDS)}.")
    rules = given.pop("rules", None) if kind is Subscription else None
    values = _properties(given, kind)
    if rules is not None and not isinstance(rules, list):
        raise EntitiesFileError("Property 'rules' is not a list.")
    return kind(**values), None if rules is None else [_rule(each) for each in rules]


def _rule(written: object) -> Rule:
    given = _object(written, "A rule")
    name, action = given.pop("name", Rule().name), given.pop("action", None)
    sql, correlation = given.pop("sqlfilter", None), given.pop("correlationfilter", None)
    if given:
        raise EntitiesFileError(f"Property '{next(iter(given))}' of a rule is not known.")
    if sql is not None and correlation is not None:
        raise EntitiesFileError("A rule has a 'sqlFilter' or a 'correlationFilter', not both.")
    chosen: Filter = TrueFilter()
    if sql is not None:
        chosen = SqlFilter(_expression(sql))
    elif correlation is not None:
        chosen = _correlation(correlation)
    return Rule(_text("name", name), chosen, None if action is None else SqlAction(_expression(action)))


def _correlation(written: object) -> CorrelationFilter:
    given = _object(written, "A correlation filter")
    properties = given.pop("properties", {})
    if not isinstance(properties, dict):
        raise EntitiesFileError("Property 'properties' of a correlation filter is not an object.")
    return CorrelationFilter(**_properties(given, CorrelationFilter), properties=tuple(properties.items()))


def _expression(written: object) -> str:
    if isinstance(written, dict):
        return _text("sqlExpression", _object(written, "A filter").get("sqlexpression"))
    return _text("sqlExpression", written)


def _properties(given: Mapping[str, Any], kind: type[Entity] | type[CorrelationFilter]) -> dict[str, Any]:
    known = {each.name.replace("_", ""): each for each in fields(kind) if each.name not in _NOT_GIVEN}
    values = {}
    for name, value in given.items():
        if name not in known:
            raise EntitiesFileError(f"Property '{name}' is not known.")
        values[known[name].name] = _value(known[name].name, known[name].default, value)
    for name in ("topic", "name"):
        if name in known and name not in values and kind is not CorrelationFilter:
            raise EntitiesFileError(f"Property '{name}' is missing.")
    return values


def _value(field: str, default: object, value: object) -> object:
    name = _as_written(field)
    if field in _DURATIONS:
        return parse_timespan(_text(name, value), name)
    if isinstance(default, enum.StrEnum):
        for status in EntityStatus:
            if str(value).lower() == status.lower():
                return status
        raise EntitiesFileError(f"Property '{name}' has value {value!r}. Not one of {', '.join(EntityStatus)}.")
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise EntitiesFileError(f"Property '{name}' has value {value!r}. Not true or false.")
        return value
    if isinstance(default, int) or field == "max_message_size_in_kilobytes":
        if isinstance(value, bool) or not isinstance(value, int):
            raise EntitiesFileError(f"Property '{name}' has value {value!r}. Not a whole number.")
        return value
    return None if value is None and default is None else _text(name, value)


def _as_written(field: str) -> str:
    first, *rest = field.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise EntitiesFileError(f"Property '{name}' has value {value!r}. Not a text.")
    return value


def _object(written: object, what: str) -> dict[str, Any]:
    """The members of an object by their names in lower case; the filter's own properties keep theirs."""
    if not isinstance(written, dict):
        raise EntitiesFileError(f"{what} is not an object: {written!r}.")
    return {str(name).lower(): value for name, value in written.items()}


def _joined(error: BaseException) -> str:
    return " ".join(str(error).split())
