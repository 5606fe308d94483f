"""What time does by itself: locks run out, messages expire, scheduled ones fall due. In steps of bounded length."""

from __future__ import annotations

from collections.abc import Mapping

from oncebus.messages import PARTITION_SHIFT
from oncebus.store import sessions
from oncebus.store.rules import expire, is_expired, policy_of, put_back
from oncebus.store.sql.tables import Tables
from oncebus.store.values import Allocate, Copy, Highest, Kind, Place, Policy, Stage, SubQueue, Sweep


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


def due(tables: Tables, policies: Mapping[int, Policy], allocate: Allocate, now: int, stamp: int, limit: int) -> Sweep:
    """See `Store.due`."""
    sweep = Sweep()
    copies = tables.messages.due(now, limit)
    for copy in copies:
        policy = policy_of(policies, copy.entity)
        if is_expired(copy, now):
            _note(sweep, expire(tables, copy, policy))
        elif policy.kind is Kind.TOPIC:
            tables.messages.set_stage(copy, Stage.TRANSFER)
        else:
            _note(sweep, enqueue(tables, copy, policy, allocate, copy.lane, stamp, copy.expires, keep=False))
    sweep.handled, sweep.more = len(copies), len(copies) == limit
    return sweep


def enqueue(
    tables: Tables,
    copy: Copy,
    policy: Policy,
    allocate: Allocate,
    lane: str,
    enqueued: int,
    expires: int | None,
    *,
    keep: bool,
) -> Place | None:
    """Give a message a new number and make it active; `keep` leaves it the number it was first enqueued under.

    A subscription counts its own copies; a queue's numbers are the caller's.
    """
    partition = copy.sequence >> PARTITION_SHIFT if policy.partitioned else 0
    if policy.kind is Kind.SUBSCRIPTION:
        known = tables.records.highest(copy.entity, partition)
        sequence = (known.sequence if known else partition << PARTITION_SHIFT) + 1
        enqueued_at = 0
    else:
        sequence = allocate(copy.entity, partition)
        enqueued_at = enqueued
    tables.records.raise_highest([Highest(copy.entity, partition, sequence, enqueued_at)])
    leaves = policy.forward_to is not None
    stage = Stage.TRANSFER if leaves else Stage.READY
    tables.messages.enqueue(copy, stage, lane, sequence, enqueued, expires, None if keep else sequence)
    if policy.requires_session and not leaves:
        tables.sessions.arrive([(copy.entity, lane, sequence)])
    return None if leaves else Place(copy.entity, SubQueue.MAIN)


def _note(sweep: Sweep, place: Place | None) -> None:
    if place is not None:
        sweep.arrived.add(place)
