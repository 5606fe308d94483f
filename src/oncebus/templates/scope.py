"""What an expression can see: the deployment it is part of, the loops it stands in, and how much it may still cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from oncebus.management.problems import Fault, Told

MOST_COST = 2_000_000
"""What all of a template may cost to evaluate: a second of work or so. Each value that is looked at costs a step, and
each value that is made or given to a function costs its members, and its characters by eight."""

_STEPS_BETWEEN_LOOKS = 1000

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
    """How much may still be computed. `is_late` says whether there is no time left."""

    def __init__(self, most: int = MOST_COST, is_late: Callable[[], bool] = lambda: False) -> None:
        self._left = most
        self._is_late = is_late
        self._look_below = most
        self._is_over = False

    def spend(self, value: Value) -> None:
        """Charge for all that is in a value, each time that it is in it. Raises as `spend_steps` does."""
        self.spend_steps(_size_of(value, {}))

    def spend_steps(self, steps: int) -> None:
        """Charge for some steps. Raises `Fault` when there are none left, and from then on `Told`."""
        if self._is_over:
            raise Told
        self._left -= steps
        if self._left < 0:
            self._is_over = True
            raise Fault("The expressions of the template compute too much.")
        if self._left < self._look_below:
            self._look_below = self._left - _STEPS_BETWEEN_LOOKS
            if self._is_late():
                self._is_over = True
                raise Fault("The template takes too long to evaluate.")


def _size_of(value: Value, known: dict[int, int]) -> int:
    """What a value costs. What is in it several times is looked at once: `known` has its size by its identity."""
    if isinstance(value, str):
        return 1 + len(value) // 8
    if not isinstance(value, list | dict):
        return 1
    size = known.get(id(value))
    if size is None:
        inside = value.values() if isinstance(value, dict) else value
        size = known[id(value)] = 1 + sum(_size_of(each, known) for each in inside)
    return size
