"""The quarantine: rows that the pipeline could not process, until somebody discards or releases them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oncebus.engine.store.records import Quarantined
from oncebus.engine.store.sql.tables import Tables
from oncebus.engine.store.values import Outcome, Policy, Stage, SubQueue
from oncebus.model.entities.names import session_key


class Quarantine:
    """Quarantined rows. They stay until somebody discards or releases them."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def page(self, entity: int | None = None, limit: int = 100, after: int = 0) -> list[Quarantined]:
        """Return quarantined rows, oldest first."""
        return self._tables.quarantine.page(entity, limit, after)

    def search(self, message_id: str, most_read: int) -> list[int]:
        """Return the entities that the newest quarantined rows with this id were sent to, newest first."""
        return self._tables.quarantine.search(message_id, most_read)

    def discard(self, numbers: Sequence[int]) -> list[Outcome]:
        """Delete quarantined rows for good. Return an outcome for each."""
        tables = self._tables.for_change()
        return [_discard(tables, number) for number in numbers]

    def release(self, numbers: Sequence[int], policies: Mapping[int, Policy], now: int) -> list[Outcome]:
        """Let quarantined rows fall due now. Return an outcome for each.

        They are routed by the current rules, and return to quarantine if they fail again.
        """
        tables = self._tables.for_change()
        return [_release(tables, number, policies, now) for number in numbers]


def _discard(tables: Tables, number: int) -> Outcome:
    row = tables.quarantine.at(number)
    if row is None:
        return Outcome.MESSAGE_NOT_FOUND
    tables.quarantine.remove(row)
    tables.counters.count(row.entity, "size", -row.size)
    return Outcome.DONE


def _release(tables: Tables, number: int, policies: Mapping[int, Policy], now: int) -> Outcome:
    row = tables.quarantine.at(number)
    policy = policies.get(row.entity) if row is not None else None
    if row is None or policy is None:
        return Outcome.MESSAGE_NOT_FOUND
    tables.quarantine.remove(row, keep_body_file=True)
    session = (row.session or "") if policy.requires_session else ""
    # As if scheduled for now: a due message skips detection, is routed by the current rules, and arrives once.
    tables.messages.schedule(row, session_key(session), now)
    if policy.requires_session:
        tables.sessions.ensure([(row.entity, session)])
    # The size of the entity already includes it.
    tables.counters.hold(row.entity, SubQueue.MAIN, Stage.SCHEDULED, 1, 0)
    return Outcome.DONE
