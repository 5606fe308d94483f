"""Sequence numbers: from 1 for each entity, or for each partition of an entity, with the partition in the top bits."""

from __future__ import annotations

from collections.abc import Container, Iterable

from oncebus.messages import PARTITION_SHIFT


class Numbers:
    """Assigns sequence numbers, each once.

    Call it only in the event loop, right before the append: that way numbers increase in the order of the inbox.
    """

    def __init__(self, highest: Iterable[tuple[int, int, int]] = ()) -> None:
        """`highest` are triples (entity, partition, highest number assigned so far)."""
        self._last: dict[tuple[int, int], int] = {}
        for entity, partition, sequence in highest:
            self._last[entity, partition] = max(sequence, self._last.get((entity, partition), 0))

    def forget(self, entities: Container[int]) -> None:
        """Forget entities that were deleted. They never get a number again."""
        self._last = {key: last for key, last in self._last.items() if key[0] not in entities}

    def next(self, entity: int, partition: int = 0) -> int:
        """Return the next number of an entity, or of one of its partitions."""
        last = self._last.get((entity, partition), partition << PARTITION_SHIFT)
        self._last[entity, partition] = last + 1
        return last + 1
