"""Sequence numbers: from 1 for each entity, or for each partition of one, with the partition in the top bits."""

from __future__ import annotations

from collections.abc import Container, Iterable

from oncebus.messages import PARTITION_SHIFT


class Numbers:
    """Gives each number once. Asked in the event loop only, right before the append: so numbers rise with the inbox."""

    def __init__(self, highest: Iterable[tuple[int, int, int]] = ()) -> None:
        """`highest` are (entity, partition, highest number given so far)."""
        self._last: dict[tuple[int, int], int] = {}
        for entity, partition, sequence in highest:
            self._last[entity, partition] = max(sequence, self._last.get((entity, partition), 0))

    def forget(self, entities: Container[int]) -> None:
        """These entities are deleted: nobody asks for a number of theirs again."""
        self._last = {key: last for key, last in self._last.items() if key[0] not in entities}

    def next(self, entity: int, partition: int = 0) -> int:
        """A number of an entity that was not given before."""
        last = self._last.get((entity, partition), partition << PARTITION_SHIFT)
        self._last[entity, partition] = last + 1
        return last + 1
