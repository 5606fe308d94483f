"""The official emulator's `Config.json`, as it is:

    {"UserConfig": {"Logging": {"Type": "File"}, "Namespaces": [{"Name": "sbemulatorns",
       "Queues": [{"Name": "orders", "Properties": {"LockDuration": "PT1M", "ForwardTo": "", …}}],
       "Topics": [{"Name": "prices", "Properties": {…}, "Subscriptions": [{"Name": "high", "Properties": {…},
          "Rules": [{"Name": "above", "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "price > 9"},
                                                     "Action": {"SqlExpression": "SET urgent = true"}}}]}]}]}]}}

It may hold comments, and names in any case of letters. What is left out has the emulator's default, not Azure's. How a
property is written is for `oncebus.management` to say: the names are the Resource Manager's.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Any

from oncebus.durations import HOUR, MINUTE, SECOND
from oncebus.entities import Queue, Rule, Subscription, Topic, iso_timespan
from oncebus.entities.descriptions import EntityKind
from oncebus.entities.limits import SHORTEST_WINDOW
from oncebus.entities.names import key_of_path
from oncebus.management.documents import Object, find, is_object, kind_of, written_name
from oncebus.management.given import Given
from oncebus.management.problems import Problems, item, member
from oncebus.management.properties import PROPERTIES, WINDOW
from oncebus.management.reading import members_of, read_description
from oncebus.management.rules import read_rule
from oncebus.management.wanted import Wanted, WantedEntity, WantedRule

EMULATORS_SHORTEST_WINDOW = 5 * SECOND

_TIME_TO_LIVE = {"default_message_time_to_live": HOUR}
_DELIVERY = {"max_delivery_count": 3, "lock_duration": MINUTE}
DEFAULTS: dict[EntityKind, dict[str, Any]] = {
    Queue: {**_TIME_TO_LIVE, **_DELIVERY, WINDOW: 20 * SECOND},
    Topic: {**_TIME_TO_LIVE, WINDOW: 20 * SECOND},
    Subscription: {**_TIME_TO_LIVE, **_DELIVERY},
}
"""What the emulator takes for what is left out."""

_FILTERS = {"correlation": "CorrelationFilter", "sql": "SqlFilter"}


def read_config(content: Any, problems: Problems) -> Wanted:
    """What a configuration asks for, as far as that can be said. What is wrong is noted."""
    return _Reader(problems).read(content)


class _Reader:
    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._entities: list[WantedEntity] = []
        self._rules: list[WantedRule] = []
        self._warnings: list[str] = []
        self._places: dict[str, str] = {}

    def read(self, content: Any) -> Wanted:
        root = self._object(content, "", "The configuration")
        self._check_known(root, "", ["UserConfig"])
        if is_object(content) and written_name(root, "UserConfig") is None:
            self._problems.add("", "The member 'UserConfig' is missing.")
        config, path = self._inner(root, "", "UserConfig")
        self._check_known(config, path, ["Namespaces", "Logging"])
        self._check_logging(config, path)
        is_right = not self._problems
        namespaces = list(self._list(config, path, "Namespaces"))
        if len(namespaces) > 1 or (not namespaces and is_right and not self._problems):
            count = len(namespaces)
            self._problems.add(member(path, "Namespaces"), f"There are {count} namespaces. A broker is exactly one.")
        for place, namespace in namespaces:
            self._namespace(namespace, place)
        name = find(namespaces[0][1], "Name") if namespaces else None
        return Wanted(
            name if isinstance(name, str) else None,
            entities=tuple(self._entities),
            rules=tuple(self._rules),
            warnings=tuple(self._warnings),
            is_complete=not self._problems,
        )

    def _check_logging(self, config: Object, path: str) -> None:
        """What is logged where is for our own settings to say; only its form is looked at."""
        written = written_name(config, "Logging")
        if written is not None:
            logging = self._object(config[written], member(path, written), "The member")
            self._check_known(logging, member(path, written), ["Type"])
            kind = find(logging, "Type")
            if kind is not None and not isinstance(kind, str):
                self._problems.add(member(member(path, written), "Type"), f"The value is {kind_of(kind)}. Not a text.")

    def _namespace(self, namespace: Object, path: str) -> None:
        self._check_known(namespace, path, ["Name", "Queues", "Topics"])
        self._name(namespace, path)
        for place, queue in self._list(namespace, path, "Queues"):
            self._check_known(queue, place, ["Name", "Properties"])
            self._entity(queue, place, Queue)
        for place, topic in self._list(namespace, path, "Topics"):
            self._check_known(topic, place, ["Name", "Properties", "Subscriptions"])
            name = self._entity(topic, place, Topic)
            for inner, subscription in self._list(topic, place, "Subscriptions"):
                self._check_known(subscription, inner, ["Name", "Properties", "Rules"])
                owner = self._entity(subscription, inner, Subscription, name)
                for at, rule in self._list(subscription, inner, "Rules"):
                    self._rule(rule, at, name, owner)

    def _entity(self, written: Object, place: str, kind: EntityKind, topic: str = "") -> str:
        name = self._name(written, place)
        properties, path = self._inner(written, place, "Properties")
        given: dict[str, Any] = dict(DEFAULTS[kind])
        places: dict[str, str] = {}
        known = [each.name for each in PROPERTIES[kind].values()]
        self._check_known(properties, path, known)
        for each, value in properties.items():
            if value is None or each.lower() not in map(str.lower, known):
                continue
            with self._problems.noted(member(path, each)):
                read = read_description(members_of({each: value}, "The property"), kind).values
                given |= read
                places |= dict.fromkeys(read, member(path, each))
        if WINDOW not in places and not given.get("requires_duplicate_detection"):
            # It would decide nothing.
            given.pop(WINDOW, None)
        self._raise_window(given, places)
        entity = WantedEntity(
            place, kind, name if topic or kind is not Subscription else "", Given(given), places, topic
        )
        if entity.name:
            key = key_of_path(entity.path)
            if key in self._places:
                self._problems.add(
                    member(place, "Name"), f"'{entity.path}' is in the file twice: see {self._places[key]}."
                )
            self._places.setdefault(key, place)
        self._entities.append(entity)
        return entity.name

    def _raise_window(self, given: dict[str, Any], places: dict[str, str]) -> None:
        window = given.get(WINDOW)
        if window is not None and EMULATORS_SHORTEST_WINDOW <= window < SHORTEST_WINDOW:
            given[WINDOW] = SHORTEST_WINDOW
            shortest = iso_timespan(SHORTEST_WINDOW)
            self._warnings.append(
                f"{places[WINDOW]}: The window {iso_timespan(window)} is raised to {shortest}, the shortest there is."
            )

    def _rule(self, written: Object, place: str, topic: str, subscription: str) -> None:
        self._check_known(written, place, ["Name", "Properties"])
        name = self._name(written, place)
        properties, path = self._inner(written, place, "Properties")
        self._check_known(properties, path, ["FilterType", "CorrelationFilter", "SqlFilter", "Action"])
        asked = find(properties, "FilterType")
        kind = _FILTERS.get(str(asked).lower().removesuffix("filter"))
        if kind is None:
            self._problems.add(member(path, "FilterType"), f"The value {asked!r} is not one of Correlation, Sql.")
            return
        content, inner = self._inner(properties, path, kind)
        if written_name(properties, kind) is None:
            self._problems.add(path, f"The member '{kind}' is missing.")
        action, beside = self._inner(properties, path, "Action")
        places = {"filter": inner, "action": beside}
        made = Rule(name)
        with self._problems.noted(inner):
            made = self._read_rule(name, {"filterType": kind, kind: _present(content)})
        with self._problems.noted(beside):
            changed = self._read_rule(name, {"action": _present(action)})
            made = Rule(name, made.filter, changed.action)
        if topic and subscription and name:
            self._rules.append(WantedRule(place, topic, subscription, made, places))

    @staticmethod
    def _read_rule(name: str, properties: Object) -> Rule:
        return read_rule(members_of(properties, "The rule"), name)

    # What the file is made of

    def _name(self, written: Object, path: str) -> str:
        name = find(written, "Name")
        if isinstance(name, str) and name:
            return name
        place = member(path, "Name")
        self._problems.add(place, "The name is missing." if name in (None, "") else f"The name {name!r} is not a text.")
        return ""

    def _inner(self, written: Object, path: str, name: str) -> tuple[Object, str]:
        """An object within an object, empty where it is left out, and its place."""
        as_written = written_name(written, name)
        if as_written is None:
            return {}, member(path, name)
        place = member(path, as_written)
        return self._object(written[as_written], place, "The member"), place

    def _list(self, written: Object, path: str, name: str) -> Iterator[tuple[str, Object]]:
        """The objects of a list within an object, none where it is left out, each with its place."""
        as_written = written_name(written, name)
        value = None if as_written is None else written[as_written]
        if value is None:
            return
        place = member(path, as_written or name)
        if not isinstance(value, list):
            self._problems.add(place, f"The member is {kind_of(value)}. Not a list.")
            return
        for at, each in enumerate(value):
            if is_object(each):
                yield item(place, at), each
            else:
                self._problems.add(item(place, at), f"The member is {kind_of(each)}. Not an object.")

    def _object(self, value: Any, path: str, what: str) -> Object:
        if is_object(value):
            return value
        if value is not None:
            self._problems.add(path, f"{what} is {kind_of(value)}. Not an object.")
        return {}

    def _check_known(self, written: Object, path: str, known: Iterable[str]) -> None:
        """Note what is not known: a misspelt property would be taken for one that is left out."""
        names = list(known)
        lowered = {name.lower() for name in names}
        for name in written:
            if name.lower() not in lowered and not name.startswith("$"):
                near = difflib.get_close_matches(name, names, n=1)
                hint = f" Did you mean '{near[0]}'?" if near else f" There are {', '.join(names)}."
                self._problems.add(member(path, name), f"The member is not known.{hint}")


def _present(part: Object) -> Object:
    """A part of a rule without what is empty; the emulator's files name all there could be."""
    renamed = {"Label" if name.lower() == "subject" else name: value for name, value in part.items()}
    return {name: value for name, value in renamed.items() if value not in ("", None)}
