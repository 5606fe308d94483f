"""What an expression can see: the deployment it is part of, the loops it stands in, and how much it may still cost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from oncebus.templates.problems import Fault

MOST_COST = 500_000
"""Steps, characters and members that all expressions of a template may make together: a second of work or so."""

SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
GROUP = "local"
LOCATION = "local"
_TENANT = "00000000-0000-0000-0000-000000000000"

Value = Any
"""What JSON has."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """What a template can ask about where it goes."""

    name: str = "template"
    subscription: str = SUBSCRIPTION
    group: str = GROUP

    @property
    def group_id(self) -> str:
        """The id of the resource group."""
        return f"/subscriptions/{self.subscription}/resourceGroups/{self.group}"

    def about_group(self) -> Value:
        """What `resourceGroup()` answers."""
        return {
            "id": self.group_id,
            "name": self.group,
            "type": "Microsoft.Resources/resourceGroups",
            "location": LOCATION,
            "tags": {},
            "properties": {"provisioningState": "Succeeded"},
        }

    def about_subscription(self) -> Value:
        """What `subscription()` answers."""
        return {
            "id": f"/subscriptions/{self.subscription}",
            "subscriptionId": self.subscription,
            "tenantId": _TENANT,
            "displayName": "Oncebus",
        }

    def about_itself(self) -> Value:
        """What `deployment()` answers."""
        return {"name": self.name, "properties": {"mode": "Incremental", "provisioningState": "Accepted"}}


@dataclass(slots=True)
class Loops:
    """The copy loops around what is evaluated: innermost last, the index of each."""

    _names: list[str] = field(default_factory=list)
    _indexes: list[int] = field(default_factory=list)

    @contextmanager
    def at(self, name: str, index: int) -> Iterator[None]:
        """Inside of the block, the loop of that name is at an index."""
        self._names.append(name.lower())
        self._indexes.append(index)
        try:
            yield
        finally:
            self._names.pop()
            self._indexes.pop()

    def index(self, name: str | None) -> int:
        """The index of a loop, or of the innermost."""
        if not self._names:
            raise Fault("The function 'copyIndex' is for what stands in a copy loop.")
        if name is None:
            return self._indexes[-1]
        for known, index in zip(reversed(self._names), reversed(self._indexes), strict=True):
            if known == name.lower():
                return index
        raise Fault(f"The function 'copyIndex' names the loop '{name}', but stands in {', '.join(self._names)}.")


class Budget:
    """How much may still be computed."""

    def __init__(self, most: int = MOST_COST) -> None:
        self._left = most

    def spend(self, value: Value) -> None:
        """Account for a value that was made."""
        self._left -= 1
        waiting = [value]
        while waiting and self._left > 0:
            each = waiting.pop()
            if isinstance(each, str):
                self._left -= len(each) // 8
            elif isinstance(each, list | dict):
                self._left -= 1 + len(each)
                waiting.extend(each.values() if isinstance(each, dict) else each)
        if self._left <= 0:
            raise Fault("The expressions of the template compute too much.")
