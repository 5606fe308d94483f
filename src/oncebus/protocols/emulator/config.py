"""The official emulator's `Config.json`, unchanged:

    {"UserConfig": {"Logging": {"Type": "File"}, "Namespaces": [{"Name": "sbemulatorns",
       "Queues": [{"Name": "orders", "Properties": {"LockDuration": "PT1M", "ForwardTo": "", …}}],
       "Topics": [{"Name": "prices", "Properties": {…}, "Subscriptions": [{"Name": "high", "Properties": {…},
          "Rules": [{"Name": "above", "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "price > 9"},
                                                     "Action": {"SqlExpression": "SET urgent = true"}}}]}]}]}]}}

It may contain comments and trailing commas, and names in any letter case. A missing property gets the emulator's
default, not Azure's.
Names and formats of properties are the Resource Manager's, so `oncebus.protocols.management` reads them.
"""

from __future__ import annotations

from typing import Any

from oncebus.model.entities import Queue, Rule, Subscription, Topic, iso_timespan
from oncebus.model.entities.descriptions import EntityKind
from oncebus.model.entities.limits import SHORTEST_WINDOW
from oncebus.model.entities.names import key_of_path
from oncebus.protocols.management.documents import Object, find, is_object, kind_of, written_name
from oncebus.protocols.management.entity_file import FileReader
from oncebus.protocols.management.given import Given
from oncebus.protocols.management.problems import Problems, member
from oncebus.protocols.management.properties import PROPERTIES, WINDOW
from oncebus.protocols.management.reading import members_of, read_description
from oncebus.protocols.management.rules import read_rule
from oncebus.protocols.management.wanted import Wanted, WantedEntity, WantedRule
from oncebus.values.durations import HOUR, MINUTE, SECOND

EMULATORS_SHORTEST_WINDOW = 5 * SECOND

_TIME_TO_LIVE = {"default_message_time_to_live": HOUR}
_DELIVERY = {"max_delivery_count": 3, "lock_duration": MINUTE}
DEFAULTS: dict[EntityKind, dict[str, Any]] = {
    Queue: {**_TIME_TO_LIVE, **_DELIVERY, WINDOW: 20 * SECOND},
    Topic: {**_TIME_TO_LIVE, WINDOW: 20 * SECOND},
    Subscription: {**_TIME_TO_LIVE, **_DELIVERY},
}
"""The emulator's defaults for properties that are left out."""

WHAT = "Configuration file"

_FILTERS = {"correlation": "CorrelationFilter", "sql": "SqlFilter"}


def read_config(content: Any, problems: Problems) -> Wanted:
    """Return the entities and rules of a configuration, as far as they can be read. Adds each problem to `problems`."""
    return _Reader(problems).read(content)


class _Reader(FileReader):
    def __init__(self, problems: Problems) -> None:
        super().__init__(problems)
        self._entities: list[WantedEntity] = []
        self._rules: list[WantedRule] = []
        self._warnings: list[str] = []
        self._places: dict[str, str] = {}

    def read(self, content: Any) -> Wanted:
        root = self.object_of(content, "", "The configuration")
        self.check_known(root, "", ["UserConfig"])
        if is_object(content) and written_name(root, "UserConfig") is None:
            self._problems.add("", "The member 'UserConfig' is missing.")
        config, path = self.inner(root, "", "UserConfig")
        self.check_known(config, path, ["Namespaces", "Logging"])
        self._check_logging(config, path)
        is_right = not self._problems
        namespaces = list(self.objects_in(config, path, "Namespaces"))
        if len(namespaces) > 1 or (not namespaces and is_right and not self._problems):
            count = len(namespaces)
            self._problems.add(
                member(path, "Namespaces"), f"The file has {count} namespaces. A broker is exactly one namespace."
            )
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
        """Check the form of the logging settings. They have no effect: the broker has its own settings for logs."""
        written = written_name(config, "Logging")
        if written is not None:
            logging = self.object_of(config[written], member(path, written), "The member")
            self.check_known(logging, member(path, written), ["Type"])
            kind = find(logging, "Type")
            if kind is not None and not isinstance(kind, str):
                self._problems.add(member(member(path, written), "Type"), f"The value is {kind_of(kind)}. Not a text.")

    def _namespace(self, namespace: Object, path: str) -> None:
        self.check_known(namespace, path, ["Name", "Queues", "Topics"])
        self.name_of(namespace, path)
        for place, queue in self.objects_in(namespace, path, "Queues"):
            self.check_known(queue, place, ["Name", "Properties"])
            self._entity(queue, place, Queue)
        for place, topic in self.objects_in(namespace, path, "Topics"):
            self.check_known(topic, place, ["Name", "Properties", "Subscriptions"])
            name = self._entity(topic, place, Topic)
            for inner, subscription in self.objects_in(topic, place, "Subscriptions"):
                self.check_known(subscription, inner, ["Name", "Properties", "Rules"])
                owner = self._entity(subscription, inner, Subscription, name)
                for at, rule in self.objects_in(subscription, inner, "Rules"):
                    self._rule(rule, at, name, owner)

    def _entity(self, written: Object, place: str, kind: EntityKind, topic: str = "") -> str:
        name = self.name_of(written, place)
        properties, path = self.inner(written, place, "Properties")
        given: dict[str, Any] = dict(DEFAULTS[kind])
        places: dict[str, str] = {}
        known = [each.name for each in PROPERTIES[kind].values() if not each.is_extension]
        self.check_known(properties, path, known)
        for each, value in properties.items():
            if value is None or each.lower() not in map(str.lower, known):
                continue
            with self._problems.record_at(member(path, each)):
                read = read_description(members_of({each: value}, "The property"), kind).values
                given |= read
                places |= dict.fromkeys(read, member(path, each))
        if WINDOW not in places and not given.get("requires_duplicate_detection"):
            # Without duplicate detection a default window has no effect.
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
                f"{places[WINDOW]}: The window {iso_timespan(window)} is raised to {shortest}, the shortest allowed."
            )

    def _rule(self, written: Object, place: str, topic: str, subscription: str) -> None:
        self.check_known(written, place, ["Name", "Properties"])
        name = self.name_of(written, place)
        properties, path = self.inner(written, place, "Properties")
        self.check_known(properties, path, ["FilterType", "CorrelationFilter", "SqlFilter", "Action"])
        given = find(properties, "FilterType")
        kind = _FILTERS.get(str(given).lower().removesuffix("filter"))
        if kind is None:
            self._problems.add(member(path, "FilterType"), f"The value {given!r} is not one of Correlation, Sql.")
            return
        content, inner = self.inner(properties, path, kind)
        if written_name(properties, kind) is None:
            self._problems.add(path, f"The member '{kind}' is missing.")
        action, beside = self.inner(properties, path, "Action")
        places = {"filter": inner, "action": beside}
        made = Rule(name)
        with self._problems.record_at(inner):
            made = self._read_rule(name, {"filterType": kind, kind: _present(content)})
        with self._problems.record_at(beside):
            changed = self._read_rule(name, {"action": _present(action)})
            made = Rule(name, made.filter, changed.action)
        if topic and subscription and name:
            self._rules.append(WantedRule(place, topic, subscription, made, places))

    @staticmethod
    def _read_rule(name: str, properties: Object) -> Rule:
        return read_rule(members_of(properties, "The rule"), name)


def _present(part: Object) -> Object:
    """Return a rule's filter or action without empty values: the emulator's files list every possible member."""
    renamed = {"Label" if name.lower() == "subject" else name: value for name, value in part.items()}
    return {name: value for name, value in renamed.items() if value not in ("", None)}
