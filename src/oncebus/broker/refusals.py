"""Refused requests by entity and reason. All are counted; the newest are recorded. Kept in memory since the start."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from oncebus.broker.clock import ClockLeapt
from oncebus.broker.errors import BrokerClosed, ServerBusy
from oncebus.broker.sending import MessageTooLarge
from oncebus.engine.inbox import InboxFull
from oncebus.engine.store import StoreFull
from oncebus.model.access import AccessRefused
from oncebus.model.entities import EntityDisabled, NotFound, QuotaExceeded
from oncebus.values.durations import SECOND
from oncebus.values.errors import OncebusError

log = logging.getLogger(__name__)

MOST_RECORDS = 50
"""How many records to keep for each entity."""
TOGETHER = 60 * SECOND
"""Requests refused for the same reason within this time make one record and one log line."""
_LONGEST_TEXT = 500

# The first match wins, so subclasses come before their bases.
_REASONS: tuple[tuple[type[Exception], str], ...] = (
    (AccessRefused, "unauthorized"),
    (ServerBusy, "busy"),
    (BrokerClosed, "stopping"),
    (ClockLeapt, "clock"),
    (InboxFull, "disk-full"),
    (StoreFull, "disk-full"),
    (MessageTooLarge, "too-large"),
    (EntityDisabled, "disabled"),
    (QuotaExceeded, "quota"),
    (NotFound, "not-found"),
    (OncebusError, "invalid"),
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Requests that were refused for the same reason. `text` is the error of the last one."""

    reason: str
    text: str
    first: int
    last: int
    count: int = 1


class Refusals:
    """Refusals by entity. Refusals for paths that have no entity are counted together, under None.

    `now` is the time in microseconds since 1970.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._counts: Counter[tuple[int | None, str]] = Counter()
        self._records: dict[int | None, deque[Refusal]] = {}

    def note(self, entity: int | None, path: str, error: Exception, times: int = 1) -> None:
        """Count requests for an entity that were refused with an error."""
        reason = reason_of(error)
        self._counts[entity, reason] += times
        records = self._records.setdefault(entity, deque(maxlen=MOST_RECORDS))
        now, text = self._now(), str(error)[:_LONGEST_TEXT]
        for at, record in enumerate(records):
            if record.reason == reason and 0 <= now - record.first < TOGETHER:
                records[at] = replace(record, text=text, last=now, count=record.count + times)
                return
        records.append(Refusal(reason, text, now, now, times))
        fields = {"entity": path if entity is not None else None, "reason": reason, "text": text}
        log.info("Requests are refused", extra={"fields": fields})

    def counts(self, entity: int | None) -> dict[str, int]:
        """Return how many requests for an entity were refused since the start, by reason."""
        return {reason: count for (each, reason), count in self._counts.items() if each == entity}

    def totals(self) -> dict[tuple[int | None, str], int]:
        """Return the counts of all entities, by (entity, reason)."""
        return dict(self._counts)

    def records(self, entity: int | None) -> Sequence[Refusal]:
        """Return the newest refusals of an entity, oldest first."""
        return list(self._records.get(entity, ()))

    def forget(self, entities: Iterable[int]) -> None:
        """Forget entities that were deleted."""
        for entity in entities:
            self._records.pop(entity, None)
            for reason in self.counts(entity):
                del self._counts[entity, reason]


def reason_of(error: Exception) -> str:
    """Return the reason for an error as one word; `failed` for an unexpected error."""
    return next((reason for kind, reason in _REASONS if isinstance(error, kind)), "failed")
