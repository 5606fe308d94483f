"""What some dropped duplicates have in common: the ids that repeat most, and how late they came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from oncebus.engine.store import Duplicate


@dataclass(frozen=True, slots=True)
class Tally:
    """The tally of some duplicates.

    `ids` are pairs of an entity and a MessageId with the number of duplicates. `median` and `longest` are times from
    the original to its duplicate; None if no original is known.
    """

    count: int
    ids: list[tuple[tuple[int, str], int]]
    median: int | None
    longest: int | None


def tally(duplicates: Sequence[Duplicate], most_ids: int) -> Tally:
    """Return the tally of duplicates, with the ids that repeat most."""
    counts = Counter((each.entity, each.message_id) for each in duplicates)
    late = sorted(each for each in map(lateness, duplicates) if each is not None)
    return Tally(
        len(duplicates),
        counts.most_common(most_ids),
        late[len(late) // 2] if late else None,
        late[-1] if late else None,
    )


def lateness(duplicate: Duplicate) -> int | None:
    """Return how long after the original a duplicate was accepted; None if the original's time is unknown."""
    return None if duplicate.original_time is None else max(duplicate.time - duplicate.original_time, 0)
