"""Makes rows for an inbox."""

from __future__ import annotations

from oncebus.engine.inbox import Row
from oncebus.model.messages import key_of
from tests.pipeline.judged_rows import QUEUE


def rows(count: int, first: int = 1, entity: int = QUEUE, body: bytes = b"") -> list[Row]:
    """Return rows with the ids m1, m2 and so on, each with its key."""
    return [
        Row(
            entity=entity,
            sequence=number,
            time=number,
            key=key_of(1, f"m{number}", None),
            window=1_000_000,
            message_id=f"m{number}",
            hops=0,
            size=1,
            head=b"",
            body=body,
        )
        for number in range(first, first + count)
    ]
