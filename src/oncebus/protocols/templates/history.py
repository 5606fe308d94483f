"""The deployments that were made, newest last, as far as they fit. They are in memory: a restart forgets them."""

from __future__ import annotations

import json
from typing import NamedTuple

from oncebus.protocols.management.documents import Object
from oncebus.protocols.templates.scope import Value

MOST = 800
"""The maximum number of deployments. It is the Resource Manager's limit for a group."""
MOST_BYTES = 32 << 20
"""The total size of what is kept of them, which may be far more than the requests that made them."""


class Made(NamedTuple):
    """A deployment, in JSON: what its answer said, its template, and a list of its operations.

    As objects, the same would take many times the memory.
    """

    answer: bytes
    template: bytes
    operations: bytes

    @property
    def size(self) -> int:
        """Return the number of bytes that it takes."""
        return sum(map(len, self))


class History:
    """Deployments by group and name, whatever the case."""

    def __init__(self, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._made: dict[tuple[str, str], Made] = {}
        self._bytes = 0

    def add(self, group: str, name: str, answer: Object, template: Value, operations: list[Object]) -> Made:
        """Keep a deployment in place of an earlier one with its name, and return it.

        The oldest go if there are too many.
        """
        # ASCII, so that half of a surrogate pair in a text does not fail.
        made = Made(*(json.dumps(each).encode() for each in (answer, template, operations)))
        self.remove(group, name)
        self._made[_key(group, name)] = made
        self._bytes += made.size
        while len(self._made) > self._most or (self._bytes > self._most_bytes and len(self._made) > 1):
            self._drop(next(iter(self._made)))
        return made

    def get(self, group: str, name: str) -> Made | None:
        """Return a deployment, or None."""
        return self._made.get(_key(group, name))

    def of(self, group: str) -> list[Made]:
        """Return the deployments to a group, the newest first."""
        return [made for (each, _), made in reversed(self._made.items()) if each == group.lower()]

    def remove(self, group: str, name: str) -> bool:
        """Forget a deployment, and return whether it was there."""
        key = _key(group, name)
        is_there = key in self._made
        if is_there:
            self._drop(key)
        return is_there

    def _drop(self, key: tuple[str, str]) -> None:
        self._bytes -= self._made.pop(key).size


def _key(group: str, name: str) -> tuple[str, str]:
    return group.lower(), name.lower()
