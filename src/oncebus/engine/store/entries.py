"""Ingests outbox entries, each once and as a whole."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from oncebus.engine.store.copies import Copies
from oncebus.engine.store.duplicates import add_duplicates
from oncebus.engine.store.errors import EntryRefused
from oncebus.engine.store.forgets import add_forgets
from oncebus.engine.store.progress import CATALOGUE, JUDGED
from oncebus.engine.store.records import Highest
from oncebus.engine.store.requeues import remove_returned
from oncebus.engine.store.sampler import Sampler
from oncebus.engine.store.sql.counters import COPIES
from oncebus.engine.store.sql.tables import Tables
from oncebus.engine.store.values import IngestReport, Kind, Policy
from oncebus.model.messages import NOBODY, PARTITION_SHIFT, Fate, Result

_BY_ENTITY = {Fate.DUPLICATE: "duplicates", Fate.UNROUTED: "unrouted", Fate.QUARANTINED: "quarantined"}


class OutboxEntries:
    """The outbox entries, which the store ingests in order."""

    def __init__(self, tables: Tables, sampler: Sampler, duplicates_kept: int, duplicates_age: int) -> None:
        self._tables = tables
        self._sampler = sampler
        self._duplicates_kept = duplicates_kept
        self._duplicates_age = duplicates_age

    def ingest(
        self,
        results: Sequence[Result],
        first_commit: int,
        last_commit: int,
        policies: Mapping[int, Policy],
        now: int,
    ) -> IngestReport:
        """Ingest an outbox entry.

        `results` are in the order of `place_of`, and come from the commits first to last.

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
        _note_marks(tables, results, policies)
        fresh = _without_repeated(tables, results)
        report.repeated = len(results) - len(fresh)
        taken: list[Result] = []
        by_fate: dict[Fate, list[Result]] = {Fate.DUPLICATE: [], Fate.FORGET: [], Fate.QUARANTINED: []}
        for name, entity, number in _tally(fresh, policies, taken, by_fate):
            if number:
                tables.counters.count(entity, name, number)
                report.counted.setdefault(entity, {})[name] = number
            else:
                # Nothing is counted, but the size of the entity has changed.
                report.counted.setdefault(entity, {})
        _insert(tables, Copies(taken, policies, _last_number(tables), tables.messages.next_id()), report)
        # A duplicate's number is the entity's count of duplicates, so this comes after the counting.
        if dropped := by_fate[Fate.DUPLICATE]:
            add_duplicates(tables, dropped, now, self._duplicates_kept, self._duplicates_age)
        if forgets := by_fate[Fate.FORGET]:
            add_forgets(tables, forgets)
        quarantined = by_fate[Fate.QUARANTINED]
        if quarantined:
            _quarantine(tables, quarantined)
        if body_files := {row.body_file for row, *_ in results if row.body_file is not None}:
            kept = Counter(row.body_file for row, *_ in (*taken, *quarantined) if row.body_file is not None)
            tables.body_files.refer((name, kept[name]) for name in body_files)
        tables.progress.set_position(last_commit)
        # An idle pipeline gets pulses, so this also shows that an idle broker runs.
        self._sampler.note_run(now)
        tables.origins.forget_through(last_commit)
        return report


def _note_marks(tables: Tables, results: Sequence[Result], policies: Mapping[int, Policy]) -> None:
    """Record the highest numbers and times, and how new the ledger and the catalogue must be.

    The broker refuses to open with older copies of those.
    """
    highest: dict[tuple[int, int], list[int]] = {}
    time = catalogue = judged = 0
    has_unknown, last = False, None
    for result in results:
        row = result.row
        if row is last:
            continue
        last = row
        at, sequence = row.time, row.sequence
        if at > time:
            time = at
        if at > judged and row.key is not None:
            judged = at
        if row.catalogue > catalogue:
            catalogue = row.catalogue
        if row.entity not in policies:
            has_unknown = True
            continue
        known = highest.get((row.entity, sequence >> PARTITION_SHIFT))
        if known is None:
            highest[row.entity, sequence >> PARTITION_SHIFT] = [sequence, at]
            continue
        if sequence > known[0]:
            known[0] = sequence
        if at > known[1]:
            known[1] = at
    tables.progress.raise_highest(Highest(*key, *values) for key, values in highest.items())
    if has_unknown:
        # A deleted entity leaves nothing but its time: stamps must not go back for the others.
        tables.progress.raise_time(time)
    if results:
        tables.progress.raise_mark(CATALOGUE, catalogue)
    if judged:
        tables.progress.raise_mark(JUDGED, judged)


def _tally(
    results: Sequence[Result],
    policies: Mapping[int, Policy],
    taken: list[Result],
    by_fate: Mapping[Fate, list[Result]],
) -> Iterable[tuple[str, int, int]]:
    """Return (count, entity, number) for everything that results change, and sort the results.

    Those that become copies go to `taken`, and those of known entities that get a record to `by_fate`. A number is 0
    if the entity has changed and nothing is counted.
    """
    counts: dict[tuple[str, int], int] = defaultdict(int)
    counted_at = None
    for result in results:
        row, fate, destination = result.row, result.fate, result.destination
        entity = row.entity
        is_known, is_back = entity in policies, row.origin_entity == entity
        is_copy = fate is Fate.DELIVERED or fate is Fate.DEAD_LETTERED
        is_taken = is_copy and destination in policies
        if is_known:
            if is_back:
                counts["", entity] = 0
            elif fate is not Fate.DUPLICATE and fate is not Fate.FORGET and row.position != counted_at:
                # A message counts once in its queue or topic, however many copies it has. One that comes back to its
                # own entity was counted before.
                counts["new", entity] += 1
                counted_at = row.position
            if fate in _BY_ENTITY:
                counts[_BY_ENTITY[fate], entity] += 1
            if fate in by_fate:
                by_fate[fate].append(result)
        if is_taken:
            assert destination is not None
            taken.append(result)
            # A message that waits under its topic has no copies yet.
            if policies[destination].kind is not Kind.TOPIC and not (is_back and destination == entity):
                if destination != entity:
                    counts[COPIES, destination] += 1
                if fate is Fate.DEAD_LETTERED:
                    counts["dead_lettered", destination] += 1
        elif is_copy or fate is Fate.DISCARDED or (fate is Fate.QUARANTINED and not is_known):
            # Counted for the topic if its subscription was deleted, and under NOBODY if the entity itself was deleted.
            counts["discarded", entity if is_known else NOBODY] += 1
    return [(name, entity, number) for (name, entity), number in counts.items()]


def _insert(tables: Tables, copies: Copies, report: IngestReport) -> None:
    if not copies.messages:
        return
    try:
        tables.messages.insert(copies.messages, copies.contents, copies.shared)
    except tables.conflict as error:
        raise EntryRefused(f"Entry has a sequence number that its entity already holds: {error}.") from error
    for place, held in copies.held.items():
        tables.counters.hold(*place, *held)
    if copies.numbers:
        tables.progress.raise_highest(Highest(*key, number, 0) for key, number in copies.numbers.items())
    tables.sessions.arrive([(*session, sequence) for session, sequence in copies.heads.items()])
    tables.sessions.ensure(copies.others)
    report.arrived = copies.places
    report.scheduled = copies.scheduled
    report.to_requeue = copies.to_requeue


def _last_number(tables: Tables) -> Callable[[int, int], int | None]:
    def last_number(entity: int, partition: int) -> int | None:
        known = tables.progress.highest(entity, partition)
        return None if known is None else known.sequence

    return last_number


def _without_repeated(tables: Tables, results: Sequence[Result]) -> Sequence[Result]:
    """Return the results without those whose origin was ingested before.

    A message has a result for each of its copies, all with the same inbox position. The same origin at another position
    means that the message was appended twice.
    """
    taken_at: dict[tuple[int, int], int | None] = {}
    back: list[tuple[int, int]] = []
    fresh: list[Result] = []
    for result in results:
        row = result.row
        if row.origin_entity is not None and row.origin_sequence is not None:
            origin = row.origin_entity, row.origin_sequence
            if origin not in taken_at:
                taken_at[origin] = None if tables.origins.is_taken(*origin) else row.position
                if row.origin_entity == row.entity:
                    back.append(origin)
            if taken_at[origin] != row.position:
                continue
        fresh.append(result)
    if taken_at:
        tables.origins.take(origin for origin, position in taken_at.items() if position is not None)
        remove_returned(tables, back)
    return fresh


def _quarantine(tables: Tables, results: Sequence[Result]) -> None:
    for row, *_ in results:
        tables.counters.count(row.entity, "size", row.size)
    tables.quarantine.add(
        (
            row.entity,
            row.position,
            row.sequence,
            row.time,
            row.message_id,
            row.session,
            row.partition_key,
            reason,
            description,
            row.size,
            row.head,
            row.body,
            row.body_file,
        )
        for row, _, _, reason, description, *_ in results
    )
