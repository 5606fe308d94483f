"""The JSON format of a catalogue.

    {"format": "oncebus catalogue 1", "version": 12, "namespace": "oncebus", "tier": "Standard", "next_id": 8,
     "entities": [{"is": "queue", "name": "orders", "id": 1, …}, {"is": "subscription", …, "rules": [
         {"name": "$Default", "filter": {"is": "true"}, "action": null, "created_at": 1731700000000000}]}]}

Every property is written, even if it has its default, so that a version keeps its meaning when defaults change. Filter
values of types that JSON does not have are objects with one member, which is named after the type in XML Schema:
{"dateTime": "2026-01-01T00:00:00.1234567Z"}, {"duration": "PT1S"}, {"guid": "…"}, {"long": "12"}, {"double": "NaN"}.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

from oncebus.model.access import AuthorizationRule, Right, Rights
from oncebus.model.entities.catalogue import Catalogue
from oncebus.model.entities.descriptions import (
    CorrelationFilter,
    Entity,
    EntityStatus,
    FalseFilter,
    Filter,
    Namespace,
    Queue,
    Rule,
    SqlAction,
    SqlFilter,
    Subscription,
    Tier,
    Topic,
    TrueFilter,
)
from oncebus.model.entities.errors import BadRequest
from oncebus.model.entities.filter_values import PARSERS, FilterValue, Parameters, type_and_text
from oncebus.model.entities.names import key_of_path
from oncebus.values.errors import OncebusError

FORMAT = "oncebus catalogue 1"

_ENTITIES: dict[str, type[Entity]] = {"queue": Queue, "topic": Topic, "subscription": Subscription}
_FILTERS: dict[str, type[Filter]] = {
    "sql": SqlFilter,
    "true": TrueFilter,
    "false": FalseFilter,
    "correlation": CorrelationFilter,
}
_NAMES = {kind: name for name, kind in [*_ENTITIES.items(), *_FILTERS.items()]}
_NAMES_OF_FIELDS = {
    kind: tuple(each.name for each in fields(kind))
    for kind in (*_ENTITIES.values(), *_FILTERS.values(), SqlAction, Rule, AuthorizationRule)
}

_Object = dict[str, Any]
_T = TypeVar("_T")


class BadCatalogue(OncebusError, ValueError):
    """A text is not a valid catalogue. The message never quotes the text, which may contain keys."""


def catalogue_to_json(catalogue: Catalogue) -> str:
    """Return the text of a catalogue, one line per entity. Equal catalogues have equal texts."""
    head = {
        "format": FORMAT,
        "version": catalogue.version,
        "namespace": catalogue.namespace.name,
        "tier": catalogue.namespace.tier,
        "next_id": catalogue.next_id,
    }
    if catalogue.namespace.tags:
        head["tags"] = dict(catalogue.namespace.tags)
    lines = ",\n".join(json.dumps(_write(entity)) for entity in catalogue.entities.values())
    return f'{json.dumps(head)[:-1]}, "entities": [\n{lines}\n]}}\n'


def catalogue_from_json(text: str | bytes) -> Catalogue:
    """Parse the text of a catalogue. Raises `BadCatalogue`."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadCatalogue("it is not complete JSON") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise BadCatalogue(f"its format is not '{FORMAT}'")
    try:
        entities = [_read(each, _ENTITIES[each["is"]]) for each in document["entities"]]
        catalogue = Catalogue(
            int(document["version"]),
            Namespace(str(document["namespace"]), Tier(document["tier"]), tags=_read_tags(document.get("tags", {}))),
            int(document["next_id"]),
            {key_of_path(entity.path): entity for entity in entities},
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise BadCatalogue("a part is missing, or has an unknown name or value") from error
    ids = {entity.id for entity in entities}
    if len(ids) < len(entities) or len(catalogue.entities) < len(entities) or max(ids, default=0) >= catalogue.next_id:
        raise BadCatalogue("an id or a path is used twice, or an id is not below 'next_id'")
    return catalogue


def _read_tags(tags: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((str(name), str(value)) for name, value in tags.items())


def check_stored_form(entity: Entity) -> None:
    """Raise `BadRequest` unless an entity can be read back as it is written.

    A catalogue file that cannot be read would stop the pipeline, and the broker at its next start.
    """
    try:
        _read(json.loads(json.dumps(_write(entity))), type(entity))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise BadRequest(f"The description of '{entity.path}' cannot be stored: {error}") from error


def _write(value: Entity | Filter | SqlAction | Rule | AuthorizationRule) -> _Object:
    kind = type(value)
    written: _Object = {"is": _NAMES[kind]} if kind in _NAMES else {}
    for name in _NAMES_OF_FIELDS[kind]:
        written[name] = _write_field(name, getattr(value, name))
    return written


def _write_field(name: str, value: Any) -> Any:
    if name in ("parameters", "properties"):
        return [[key, _write_value(each)] for key, each in value]
    if name in ("rules", "authorization_rules"):
        return [_write(each) for each in value]
    if name == "rights":
        return list(Rights(value).order)
    if name == "filter" or (name == "action" and value is not None):
        return _write(value)
    return value


def _write_value(value: FilterValue) -> Any:
    is_json = type(value) in (str, bool, int) or (type(value) is float and math.isfinite(value))
    return value if is_json else dict([type_and_text(value)])


def _read(written: _Object, kind: type[_T]) -> _T:
    values = {name: _READERS[name](value) if name in _READERS else value for name, value in written.items()}
    values.pop("is", None)
    return kind(**values)


def _read_parameters(written: list[list[Any]]) -> Parameters:
    return tuple((name, _read_value(value)) for name, value in written)


def _read_value(written: Any) -> FilterValue:
    if isinstance(written, dict):
        ((kind, text),) = written.items()
        return PARSERS[kind](text)
    value: FilterValue = written
    return value


_READERS: dict[str, Callable[[Any], Any]] = {
    "status": EntityStatus,
    "rights": lambda rights: Rights(map(Right, rights)),
    "authorization_rules": lambda rules: tuple(_read(each, AuthorizationRule) for each in rules),
    "rules": lambda rules: tuple(_read(each, Rule) for each in rules),
    "filter": lambda given: _read(given, _FILTERS[given["is"]]),
    "action": lambda action: action and _read(action, SqlAction),
    "parameters": _read_parameters,
    "properties": _read_parameters,
}
"""How the fields are read that are not as JSON has them."""
