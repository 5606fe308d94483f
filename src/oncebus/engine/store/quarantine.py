"""The quarantine: rows that the pipeline could not process, until somebody discards or releases them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oncebus.engine.store.base import StoreBase
from oncebus.engine.store.sql.tables import Tables
from oncebus.engine.store.values import Outcome, Policy, Quarantined, Stage, SubQueue
from oncebus.model.entities.session_ids import session_key


class Quarantine(StoreBase):
    """Operations on quarantined rows."""

    def quarantined(self, entity: int | None = None, limit: int = 100, after: int = 0) -> list[Quarantined]:
        """Return quarantined rows, oldest first. They stay until somebody discards or releases them."""
        return self._tables.records.quarantined(entity, limit, after)

    def discard_quarantined(self, numbers: Sequence[int]) -> list[Outcome]:
        """Delete quarantined rows for good. Return an outcome for each."""
        tables = self._change()
        return [_discard(tables, number) for number in numbers]

    def release_quarantined(self, numbers: Sequence[int], policies: Mapping[int, Policy], now: int) -> list[Outcome]:
        """Let quarantined rows fall due now. Return an outcome for each.

        They are routed by the current rules, and return to quarantine if they fail again.
        """
        tables = self._change()
        return [_release(tables, number, policies, now) for number in numbers]


def _discard(tables: Tables, number: int) -> Outcome:
    row = tables.records.quarantined_at(number)
    if row is None:
        return Outcome.MESSAGE_NOT_FOUND
    tables.records.forget_quarantined(row)
    tables.counters.count(row.entity, "size", -row.size)
    return Outcome.DONE


def _release(tables: Tables, number: int, policies: Mapping[int, Policy], now: int) -> Outcome:
    row = tables.records.quarantined_at(number)
    policy = policies.get(row.entity) if row is not None else None
    if row is None or policy is None:
        return Outcome.MESSAGE_NOT_FOUND
    tables.records.forget_quarantined(row, keep_body_file=True)
    session = (row.session or "") if policy.requires_session else ""
    # As if scheduled for now: a due message skips detection, is routed by the current rules, and arrives once.
    tables.messages.schedule(row, session_key(session), now)
    if policy.requires_session:
        tables.sessions.ensure([(row.entity, session)])
    # The size of the entity already includes it.
    tables.counters.hold(row.entity, SubQueue.MAIN, Stage.SCHEDULED, 1, 0)
    return Outcome.DONE
