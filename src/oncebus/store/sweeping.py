"""What time does by itself: locks run out, messages expire, scheduled ones fall due. In steps of bounded length."""

from __future__ import annotations

from collections.abc import Mapping

from oncebus.messages import PARTITION_SHIFT
from oncebus.store import sessions
from oncebus.store.rules import expire, is_expired, policy_of, put_back
from oncebus.store.sql.tables import Tables
from oncebus.store.values import Copy, Highest, Kind, Place, Policy, Stage, Sweep


def expire_locks(tables: Tables, policies: Mapping[int, Policy], now: int, limit: int) -> Sweep:
    """See `Store.expire_locks`."""
    sweep = Sweep()
    copies = tables.messages.run_out(now, limit)
    for copy in copies:
        _note(sweep, put_back(tables, copy, policy_of(policies, copy.entity)))
    rows = tables.sessions.run_out(now, limit)
    for row in rows:
        sweep.arrived |= sessions.give_back(tables, row, policy_of(policies, row.entity))
    sweep.handled = len(copies) + len(rows)
    sweep.more = limit in (len(copies), len(rows))
    return sweep


def expire_messages(tables: Tables, policies: Mapping[int, Policy], now: int, limit: int) -> Sweep:
    """See `Store.expire`."""
    sweep = Sweep()
    copies = tables.messages.expired(now, limit)
    for copy in copies:
        _note(sweep, expire(tables, copy, policy_of(policies, copy.entity)))
    sweep.handled, sweep.more = len(copies), len(copies) == limit
    return sweep


def due(tables: Tables, policies: Mapping[int, Policy], now: int, limit: int) -> Sweep:
    """See `Store.due`."""
    sweep = Sweep()
    copies = tables.messages.due(now, limit)
    for copy in copies:
        policy = policy_of(policies, copy.entity)
        if is_expired(copy, now):
            _note(sweep, expire(tables, copy, policy))
        else:
            tables.messages.send_back(copy, copy.expires)
    sweep.handled, sweep.more = len(copies), len(copies) == limit
    sweep.next = tables.messages.next_due(now)
    return sweep


def resubmit(tables: Tables, copy: Copy, policy: Policy, now: int, expires: int | None) -> None:
    """Make a dead letter a new message of its entity."""
    if policy.kind is not Kind.SUBSCRIPTION:
        # Others with lower numbers may be on their way: it takes its place behind them.
        tables.messages.send_back(copy, expires)
        return
    # A subscription numbers its copies as they arrive, so all that are on their way get higher numbers than this one.
    lane = (tables.messages.full(copy.id).session or "") if policy.requires_session else ""
    partition = copy.sequence >> PARTITION_SHIFT if policy.partitioned else 0
    known = tables.records.highest(copy.entity, partition)
    sequence = (known.sequence if known else partition << PARTITION_SHIFT) + 1
    tables.records.raise_highest([Highest(copy.entity, partition, sequence, 0)])
    # It bears this time, and no row of the inbox does.
    tables.records.raise_time(now)
    leaves = policy.forward_to is not None
    tables.messages.enqueue(copy, Stage.TRANSFER if leaves else Stage.READY, lane, sequence, now, expires)
    if policy.requires_session and not leaves:
        tables.sessions.arrive([(copy.entity, lane, sequence)])


def _note(sweep: Sweep, place: Place | None) -> None:
    if place is not None:
        sweep.arrived.add(place)
