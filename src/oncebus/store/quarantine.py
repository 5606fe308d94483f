"""Deciding about rows that could not be processed: to let them go, or to try again."""

from __future__ import annotations

from collections.abc import Mapping

from oncebus.store.sql.tables import Tables
from oncebus.store.values import Outcome, Policy, Stage, SubQueue


def discard(tables: Tables, number: int) -> Outcome:
    """See `Store.discard_quarantined`."""
    row = tables.records.quarantined_at(number)
    if row is None:
        return Outcome.MESSAGE_NOT_FOUND
    tables.records.forget_quarantined(row)
    tables.counters.count(row.entity, "size", -row.size)
    return Outcome.DONE


def release(tables: Tables, number: int, policies: Mapping[int, Policy], now: int) -> Outcome:
    """See `Store.release_quarantined`."""
    row = tables.records.quarantined_at(number)
    policy = policies.get(row.entity) if row is not None else None
    if row is None or policy is None:
        return Outcome.MESSAGE_NOT_FOUND
    tables.records.forget_quarantined(row, keep_blob=True)
    lane = (row.session or "") if policy.requires_session else ""
    # As if it had been scheduled for now: what falls due was judged, is routed by today's rules, and arrives once.
    tables.messages.schedule(row, lane, now)
    if lane:
        tables.sessions.ensure([(row.entity, lane)])
    # Its bytes count already.
    tables.counters.hold(row.entity, SubQueue.MAIN, Stage.SCHEDULED, 1, 0)
    return Outcome.DONE
