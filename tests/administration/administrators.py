"""The official administration clients for Python behind one interface: they differ mostly in names.

Properties have the service's names. Both clients write them in snake case, and accept durations as text or timedelta.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

from azure.mgmt.servicebus import ServiceBusManagementClient, models
from azure.servicebus.management import ServiceBusAdministrationClient, SqlRuleAction, SqlRuleFilter

_GROUP, _NAMESPACE = "group", "oncebus"
_INNER_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


class Place(NamedTuple):
    """The kind of an entity, and its names from the top."""

    kind: str
    names: tuple[str, ...]

    @classmethod
    def of(cls, kind: str, *names: str) -> Place:
        return cls(kind, names)

    @property
    def word(self) -> str:
        """Return the word for it in the names of methods."""
        return self.kind.lower()

    @property
    def words(self) -> str:
        return f"{self.word}s"

    @property
    def above(self) -> tuple[str, ...]:
        return self.names[:-1]


def in_snake_case(values: Mapping[str, Any]) -> dict[str, Any]:
    return {_INNER_CAPITAL.sub("_", name).lower(): value for name, value in values.items()}


class Administrator(ABC):
    """Manages entities of one broker."""

    is_strict: bool
    """Whether changing or deleting something that does not exist is an error."""

    @abstractmethod
    def create(self, place: Place, values: Mapping[str, Any] | None = None) -> None:
        """Create something new."""

    @abstractmethod
    def find(self, place: Place) -> Any:
        """Return something as the client's object, to be sent back."""

    @abstractmethod
    def send_back(self, place: Place, found: Any, values: Mapping[str, Any]) -> None:
        """Update something that `find` returned."""

    @abstractmethod
    def properties(self, found: Any) -> Any:
        """Return the object that has the properties as attributes."""

    @abstractmethod
    def names(self, place: Place) -> list[str]:
        """Return the names of all its siblings, itself included."""

    @abstractmethod
    def delete(self, place: Place) -> None: ...

    @abstractmethod
    def held(self, place: Place) -> int:
        """Return the number of active messages; for a topic, which holds none, the bytes in its subscriptions."""

    @abstractmethod
    def cannot_be_made_too(self, place: Place) -> Place | None:
        """Return something that cannot be created because `place` exists; None if there is no such thing."""

    @abstractmethod
    def rule(self, condition: str, action: str) -> dict[str, Any]:
        """Return the values of a rule."""

    @abstractmethod
    def rule_at(self, place: Place) -> tuple[str, str]:
        """Return the condition and the action of a rule."""

    def change(self, place: Place, values: Mapping[str, Any]) -> None:
        """Read an object, change it and send it back, as users do."""
        self.send_back(place, self.find(place), values)

    def values(self, place: Place, names: Mapping[str, Any]) -> dict[str, Any]:
        """Return the current values of these properties."""
        shown = self.properties(self.find(place))
        return {name: getattr(shown, snake) for name, snake in zip(names, in_snake_case(names), strict=True)}


class Atom(Administrator):
    """ServiceBusAdministrationClient of azure-servicebus."""

    is_strict = True

    def __init__(self, client: ServiceBusAdministrationClient) -> None:
        self._client = client

    def create(self, place: Place, values: Mapping[str, Any] | None = None) -> None:
        made = self._call("create_{}", place.word)(*place.names, **in_snake_case(values or {}))
        assert made.name == place.names[-1]

    def find(self, place: Place) -> Any:
        return self._call("get_{}", place.word)(*place.names)

    def send_back(self, place: Place, found: Any, values: Mapping[str, Any]) -> None:
        self._call("update_{}", place.word)(*place.above, found, **in_snake_case(values))

    def properties(self, found: Any) -> Any:
        return found

    def names(self, place: Place) -> list[str]:
        return [each.name for each in self._call("list_{}", place.words)(*place.above)]

    def delete(self, place: Place) -> None:
        self._call("delete_{}", place.word)(*place.names)

    def held(self, place: Place) -> int:
        found = self._call("get_{}_runtime_properties", place.word)(*place.names)
        count: int = found.size_in_bytes if place.kind == "Topic" else found.active_message_count
        return count

    def cannot_be_made_too(self, place: Place) -> Place:
        return place

    def rule(self, condition: str, action: str) -> dict[str, Any]:
        return {"Filter": SqlRuleFilter(condition), "Action": SqlRuleAction(action)}

    def rule_at(self, place: Place) -> tuple[str, str]:
        found = self.find(place)
        return found.filter.sql_expression, found.action.sql_expression

    def _call(self, method: str, word: str) -> Any:
        return getattr(self._client, method.format(word))


class ResourceManager(Administrator):
    """ServiceBusManagementClient of azure-mgmt-servicebus. It creates and updates with the same request."""

    is_strict = False

    _MODELS: Mapping[str, tuple[Any, Any]] = {
        "Queue": (models.SBQueue, models.SBQueueProperties),
        "Topic": (models.SBTopic, models.SBTopicProperties),
        "Subscription": (models.SBSubscription, models.SBSubscriptionProperties),
        "Rule": (models.Rule, models.Ruleproperties),
    }
    _LISTS: Mapping[str, str] = {
        "Queue": "list_by_namespace",
        "Topic": "list_by_namespace",
        "Subscription": "list_by_topic",
        "Rule": "list_by_subscriptions",
    }

    def __init__(self, client: ServiceBusManagementClient) -> None:
        self._client = client

    def create(self, place: Place, values: Mapping[str, Any] | None = None) -> None:
        resource, properties = self._MODELS[place.kind]
        self._put(place, resource(properties=properties(**in_snake_case(values or {}))))

    def find(self, place: Place) -> Any:
        return self._of(place).get(_GROUP, _NAMESPACE, *place.names)

    def send_back(self, place: Place, found: Any, values: Mapping[str, Any]) -> None:
        for name, value in in_snake_case(values).items():
            setattr(found.properties, name, value)
        self._put(place, found)

    def properties(self, found: Any) -> Any:
        return found.properties

    def names(self, place: Place) -> list[str]:
        return [each.name for each in getattr(self._of(place), self._LISTS[place.kind])(*self._above(place))]

    def delete(self, place: Place) -> None:
        self._of(place).delete(_GROUP, _NAMESPACE, *place.names)

    def held(self, place: Place) -> int:
        found = self.find(place).properties
        count: int = found.size_in_bytes if place.kind == "Topic" else found.count_details.active_message_count
        return count

    def cannot_be_made_too(self, place: Place) -> Place | None:
        other = {"Queue": "Topic", "Topic": "Queue"}.get(place.kind)
        return None if other is None else Place(other, place.names)

    def rule(self, condition: str, action: str) -> dict[str, Any]:
        return {
            "SqlFilter": models.SqlFilter(sql_expression=condition),
            "Action": models.Action(sql_expression=action),
        }

    def rule_at(self, place: Place) -> tuple[str, str]:
        found = self.find(place).properties
        return found.sql_filter.sql_expression, found.action.sql_expression

    def _put(self, place: Place, resource: Any) -> None:
        made = self._of(place).create_or_update(_GROUP, _NAMESPACE, *place.names, resource)
        assert made.name == place.names[-1]

    def _of(self, place: Place) -> Any:
        return getattr(self._client, place.words)

    def _above(self, place: Place) -> tuple[str, ...]:
        return (_GROUP, _NAMESPACE, *place.above)
