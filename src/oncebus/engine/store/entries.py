"""Ingests outbox entries, each once and as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from oncebus.engine.store.copies import Copies, Flags, Ints, highest, integers, present, tally, values
from oncebus.engine.store.duplicates import add_duplicates
from oncebus.engine.store.errors import EntryRefused
from oncebus.engine.store.forgets import add_forgets
from oncebus.engine.store.progress import CATALOGUE, JUDGED
from oncebus.engine.store.records import Quarantined
from oncebus.engine.store.requeues import remove_returned
from oncebus.engine.store.sampler import Sampler
from oncebus.engine.store.sql.counters import COPIES
from oncebus.engine.store.sql.tables import Tables
from oncebus.engine.store.values import IngestReport, Kind, Policy, Stage
from oncebus.model.messages import NOBODY, Fate

_BY_ENTITY = {Fate.DUPLICATE: "duplicates", Fate.UNROUTED: "unrouted", Fate.QUARANTINED: "quarantined"}


class OutboxEntries:
    """The outbox entries, which the store ingests in order."""

    def __init__(self, tables: Tables, sampler: Sampler, duplicates_kept: int, duplicates_age: int) -> None:
        self._tables = tables
        self._sampler = sampler
        self._duplicates_kept = duplicates_kept
        self._duplicates_age = duplicates_age

    def ingest(
        self, rows: pa.Table, first_commit: int, last_commit: int, policies: Mapping[int, Policy], now: int
    ) -> IngestReport:
        """Ingest an outbox entry.

        `rows` has `OUTBOX_SCHEMA`, is sorted by position, and comes from the commits first to last.

        Raises `EntryRefused` unless the entry begins at the store's position + 1. A row for an entity that is not in
        `policies` is discarded and counted. A row whose origin was ingested before is ignored.
        """
        tables = self._tables.for_change()
        position = tables.progress.position()
        if first_commit != position + 1 or last_commit < first_commit:
            raise EntryRefused(
                f"Entry of commits {first_commit} to {last_commit} does not continue at commit {position + 1}. "
                "Ingest the entries in order, each once."
            )
        report = IngestReport()
        entity, time = integers(rows, "entity"), integers(rows, "time")
        known = _flags(entity, policies.__contains__)
        tables.progress.raise_highest(highest(entity[known], integers(rows, "sequence")[known], time[known]))
        if not known.all():
            # A deleted entity leaves nothing but its time: stamps must not go back for the others.
            tables.progress.raise_time(int(time.max()))
        _note_marks(tables, rows, time)
        fresh = _not_repeated(tables, rows)
        body_files = _body_files_of(rows)
        if fresh is not None:
            report.repeated = int(np.count_nonzero(~fresh))
            rows = rows.filter(pa.array(fresh))
            entity, known = entity[fresh], known[fresh]
        fate = integers(rows, "fate")
        taken, gone = _destinations(rows, fate, policies)

        def count(name: str, entities: Ints) -> None:
            for key, number in tally(entities):
                tables.counters.count(key, name, number)
                report.counted.setdefault(key, {})[name] = number

        # A message that comes back to its own entity was counted before.
        is_back = present(rows, "origin_entity") & (integers(rows, "origin_entity") == entity)
        is_new = known & (fate != Fate.DUPLICATE) & (fate != Fate.FORGET) & ~is_back
        # A message counts once in its queue or topic, however many copies it has.
        _, first = np.unique(integers(rows, "position")[is_new], return_index=True)
        destination = integers(rows, "destination")
        # A message that waits under its topic has no copies yet.
        arrived = taken & ~_flags(destination, lambda each: each in policies and policies[each].kind is Kind.TOPIC)
        arrived &= ~(is_back & (destination == entity))
        count("new", entity[is_new][first])
        count(COPIES, destination[arrived & (destination != entity)])
        for kind, name in _BY_ENTITY.items():
            count(name, entity[known & (fate == kind)])
        count("dead_lettered", destination[arrived & (fate == Fate.DEAD_LETTERED)])
        for back in np.unique(entity[known & is_back]).tolist():
            # Nothing is counted, but the size of the entity has changed.
            report.counted.setdefault(back, {})
        lost = gone | (fate == Fate.DISCARDED) | (~known & (fate == Fate.QUARANTINED))
        # Counted for the topic if its subscription was deleted, and under NOBODY if the entity itself was deleted.
        count("discarded", np.where(known, entity, NOBODY)[lost])

        copies = Copies(rows if taken.all() else rows.filter(pa.array(taken)), policies, _last_number(tables))
        _insert(tables, copies, report)
        # A duplicate's number is the entity's count of duplicates, so this comes after the counting.
        dropped, quarantined = known & (fate == Fate.DUPLICATE), known & (fate == Fate.QUARANTINED)
        if dropped.any():
            add_duplicates(tables, rows.filter(pa.array(dropped)), now, self._duplicates_kept, self._duplicates_age)
        forgets = known & (fate == Fate.FORGET)
        if forgets.any():
            add_forgets(tables, rows.filter(pa.array(forgets)))
        if quarantined.any():
            _quarantine(tables, rows.filter(pa.array(quarantined)))
        if body_files:
            kept = Counter(name for name in values(rows.filter(pa.array(taken | quarantined)), "body_file") if name)
            tables.body_files.refer((name, kept[name]) for name in body_files)
        tables.progress.set_position(last_commit)
        # An idle pipeline gets pulses, so this also shows that an idle broker runs.
        self._sampler.note_run(now)
        tables.origins.forget_through(last_commit)
        return report


def _note_marks(tables: Tables, rows: pa.Table, time: Ints) -> None:
    """Record how new the ledger and the catalogue must be: the broker refuses to open with older copies of them."""
    if rows.num_rows:
        tables.progress.raise_mark(CATALOGUE, int(integers(rows, "catalogue").max()))
        judged = present(rows, "key")
        if judged.any():
            tables.progress.raise_mark(JUDGED, int(time[judged].max()))


def _insert(tables: Tables, copies: Copies, report: IngestReport) -> None:
    if not copies.count:
        return
    first_id = tables.messages.next_id()
    try:
        ids, contents, shared = copies.contents(first_id)
        tables.messages.insert(copies.messages(first_id, ids), contents, shared)
    except tables.conflict as error:
        raise EntryRefused(f"Entry has a sequence number that its entity already holds: {error}.") from error
    for place in copies.count_held():
        tables.counters.hold(*place)
    if copies.numbered.any():
        numbered = copies.numbered
        zeros = np.zeros(int(np.count_nonzero(numbered)), np.int64)
        tables.progress.raise_highest(highest(copies.destination[numbered], copies.sequence[numbered], zeros))
    heads, others = copies.session_heads()
    tables.sessions.arrive(heads)
    tables.sessions.ensure(others)
    report.arrived = copies.find_places()
    report.scheduled = copies.find_scheduled()
    report.to_requeue = bool((copies.stage == Stage.FORWARD).any())


def _last_number(tables: Tables) -> Callable[[int, int], int | None]:
    def last_number(entity: int, partition: int) -> int | None:
        known = tables.progress.highest(entity, partition)
        return None if known is None else known.sequence

    return last_number


def _destinations(rows: pa.Table, fate: Ints, policies: Mapping[int, Policy]) -> tuple[Flags, Flags]:
    """Return for each row whether it becomes a copy, and whether only a deleted destination prevents that."""
    copies = np.isin(fate, (Fate.DELIVERED, Fate.DEAD_LETTERED))
    known = _flags(integers(rows, "destination"), policies.__contains__) & present(rows, "destination")
    return copies & known, copies & ~known


def _flags(entities: Ints, is_so: Callable[[int], bool]) -> Flags:
    """Return the result of `is_so` for each entity. It is called once for each distinct entity."""
    found, inverse = np.unique(entities, return_inverse=True)
    return np.array([is_so(entity) for entity in found.tolist()], np.bool_)[inverse]


def _not_repeated(tables: Tables, rows: pa.Table) -> Flags | None:
    """Return which rows do not repeat an origin that was ingested before; None if no row repeats one.

    A message has a row for each of its copies, all with the same inbox position. The same origin at another position
    means that the message was appended twice.
    """
    has_origin = present(rows, "origin_entity") & present(rows, "origin_sequence")
    if not has_origin.any():
        return None
    indexes = np.flatnonzero(has_origin).tolist()
    entities, sequences = integers(rows, "origin_entity").tolist(), integers(rows, "origin_sequence").tolist()
    positions, targets = integers(rows, "position").tolist(), integers(rows, "entity").tolist()
    fresh = np.ones(rows.num_rows, np.bool_)
    taken_at: dict[tuple[int, int], int | None] = {}
    back: list[tuple[int, int]] = []
    for index in indexes:
        origin = entities[index], sequences[index]
        if origin not in taken_at:
            taken_at[origin] = None if tables.origins.is_taken(*origin) else positions[index]
            if entities[index] == targets[index]:
                back.append(origin)
        fresh[index] = taken_at[origin] == positions[index]
    tables.origins.take(origin for origin, position in taken_at.items() if position is not None)
    remove_returned(tables, back)
    return fresh


def _body_files_of(rows: pa.Table) -> set[str]:
    if rows.column("body_file").null_count == rows.num_rows:
        return set()
    return {name for name in values(rows, "body_file") if name is not None}


def _quarantine(tables: Tables, rows: pa.Table) -> None:
    for entity, size in zip(integers(rows, "entity").tolist(), integers(rows, "size").tolist(), strict=True):
        tables.counters.count(entity, "size", size)
    tables.quarantine.add(zip(*(values(rows, name) for name in Quarantined._fields[1:]), strict=True))
