"""Tracks the receivers of each entity, so that a dead consumer is visible. In memory, since the broker started."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from oncebus.values.durations import MINUTE

RECENT = MINUTE
"""A consumer over HTTP is not attached. It counts as polling for so long after it asked for messages."""


class Consumers:
    """The receivers that are attached to each entity now, and when somebody last asked for its messages.

    Receivers of dead letters are no consumers. `passed` is a monotonic clock.
    """

    def __init__(self, passed: Callable[[], int]) -> None:
        self._passed = passed
        self._attached: Counter[int] = Counter()
        self._asked: dict[int, int] = {}

    def attach(self, entity: int) -> None:
        """Record that a receiver stays attached to an entity, until `detach`."""
        self._attached[entity] += 1
        self.note(entity)

    def detach(self, entity: int) -> None:
        """Record that a receiver has left. It was attached until now."""
        self._attached[entity] -= 1
        if not self._attached[entity]:
            del self._attached[entity]

    def attached(self, entity: int) -> int:
        """Return how many receivers are attached to an entity."""
        return self._attached[entity]

    def note(self, entity: int) -> None:
        """Record that somebody asks for messages of an entity now."""
        self._asked[entity] = self._passed()

    def last_asked(self, entity: int) -> int | None:
        """Return when somebody last asked for messages, on the monotonic clock; None if never since the start."""
        return self._asked.get(entity)

    def is_polled(self, entity: int) -> bool:
        """Return whether nobody is attached to an entity, but somebody asked for its messages a short time ago."""
        asked = self._asked.get(entity)
        return not self._attached[entity] and asked is not None and self._passed() - asked < RECENT

    def forget(self, entities: Iterable[int]) -> None:
        """Forget entities that were deleted. Their receivers detach on their own."""
        for entity in entities:
            self._asked.pop(entity, None)
