"""The context of an expression: the deployment, the copy loops, and the budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from oncebus.protocols.management.problems import AlreadyReported, Fault
from oncebus.protocols.management.writing import GROUP, LOCATION, SUBSCRIPTION, TENANT

MOST_COST = 2_000_000
"""The maximum cost of evaluating a template: about a second of work.

Each value that is visited costs one step. Each value that a function takes or returns costs one step for each value in
it, and one for every eight characters.
"""

_STEPS_BETWEEN_CHECKS = 1000

Value = Any
"""A JSON value."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """The deployment. Template functions return these facts about it."""

    name: str = "template"
    subscription: str = SUBSCRIPTION
    group: str = GROUP

    @property
    def group_id(self) -> str:
        """Return the id of the resource group."""
        return f"/subscriptions/{self.subscription}/resourceGroups/{self.group}"

    def about_group(self) -> Value:
        """Return the value of `resourceGroup()`."""
        return {
            "id": self.group_id,
            "name": self.group,
            "type": "Microsoft.Resources/resourceGroups",
            "location": LOCATION,
            "tags": {},
            "properties": {"provisioningState": "Succeeded"},
        }

    def about_subscription(self) -> Value:
        """Return the value of `subscription()`."""
        return {
            "id": f"/subscriptions/{self.subscription}",
            "subscriptionId": self.subscription,
            "tenantId": TENANT,
            "displayName": "Oncebus",
        }

    def about_itself(self) -> Value:
        """Return the value of `deployment()`."""
        return {"name": self.name, "properties": {"mode": "Incremental", "provisioningState": "Accepted"}}


@dataclass(slots=True)
class Loops:
    """The copy loops around the current expression, innermost last, with the index of each."""

    _names: list[str] = field(default_factory=list)
    _indexes: list[int] = field(default_factory=list)

    @contextmanager
    def at(self, name: str, index: int) -> Iterator[None]:
        """Set the index of a loop inside the block."""
        self._names.append(name.lower())
        self._indexes.append(index)
        try:
            yield
        finally:
            self._names.pop()
            self._indexes.pop()

    def index(self, name: str | None) -> int:
        """Return the index of a loop, or of the innermost one if `name` is None. Raises `Fault`."""
        if not self._names:
            raise Fault("The function 'copyIndex' works only in a copy loop.")
        if name is None:
            return self._indexes[-1]
        for known, index in zip(reversed(self._names), reversed(self._indexes), strict=True):
            if known == name.lower():
                return index
        raise Fault(f"The function 'copyIndex' names the loop '{name}', but is in {', '.join(self._names)}.")


class Context(NamedTuple):
    """What functions about the deployment look at."""

    deployment: Deployment
    loops: Loops


class StepBudget:
    """The steps that are left for evaluation. `is_late` returns whether the time is up."""

    def __init__(self, most: int = MOST_COST, is_late: Callable[[], bool] = lambda: False) -> None:
        self._left = most
        self._is_late = is_late
        self._check_below = most
        self._is_over = False

    def spend(self, value: Value) -> None:
        """Charge for everything in a value; a part that occurs twice costs twice.

        Raises the same errors as `spend_steps`.
        """
        self.spend_steps(_size_of(value, {}))

    def spend_steps(self, steps: int) -> None:
        """Charge for some steps. Raises `Fault` when none are left, and `AlreadyReported` from then on."""
        if self._is_over:
            raise AlreadyReported
        self._left -= steps
        if self._left < 0:
            self._is_over = True
            raise Fault("The expressions of the template need too much computation.")
        if self._left < self._check_below:
            self._check_below = self._left - _STEPS_BETWEEN_CHECKS
            if self._is_late():
                self._is_over = True
                raise Fault("The template takes too long to evaluate.")


def _size_of(value: Value, known: dict[int, int]) -> int:
    """Return the cost of a value.

    A part that occurs several times is visited once: `known` caches costs by object id.
    """
    if isinstance(value, str):
        return 1 + len(value) // 8
    if not isinstance(value, list | dict):
        return 1
    size = known.get(id(value))
    if size is None:
        inside = value.values() if isinstance(value, dict) else value
        size = known[id(value)] = 1 + sum(_size_of(each, known) for each in inside)
    return size
