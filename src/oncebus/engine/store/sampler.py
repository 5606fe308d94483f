"""Takes samples of the counters, and keeps them for as long as their span."""

from __future__ import annotations

from collections.abc import Sequence

from oncebus.engine.store.samples import Samples, Span, samples_of
from oncebus.engine.store.sql.samples import SampleRow
from oncebus.engine.store.sql.tables import Tables
from oncebus.engine.store.values import NAMESPACE
from oncebus.values.durations import DAY, SECOND

MOST_ENTITIES = 1000
"""With more entities, those that were idle longest have no samples. An entity's samples take up to 60 KB."""
STILL_BUSY_SECONDS = 600
"""An entity that changed so recently keeps its samples, even if there are too many entities."""
PRUNE_SECONDS = 60
NOTE_SECONDS = 2
MOST_RUNS = 1000

_SHORT, _LONG = Span.TEN_MINUTES, Span.DAY


class Sampler:
    """Turns changes of the counters into samples. Without a change it writes nothing.

    A crash loses the changes since the last sample, a few seconds, from the samples; the counters themselves are exact.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._began: int | None = None
        self._noted = 0
        self._taken = 0
        self._pruned = 0
        # The entities that have samples, with the newest slot of each in the longest span.
        self._sampled: dict[int, int] = {}
        self._to_prune: set[int] = set()
        # The slot of the longest span in which no entity was idle long enough to make room for another.
        self._full_at: int | None = None

    def begin(self, now: int) -> None:
        """Begin to take samples: the broker runs from now on. Without this, nothing is sampled."""
        table = self._tables.for_change().samples
        table.forget_runs(now - DAY, MOST_RUNS)
        self._began = self._taken = self._pruned = now
        self._sampled = table.last_slots(_LONG.step)
        self._to_prune = set(self._sampled)
        self.note_run(now)

    def note_run(self, now: int) -> None:
        """Record that the broker still runs, unless that was done a moment ago.

        Call it where something is written anyway: it must not wake an idle disk.
        """
        if self._began is not None and now - self._noted >= NOTE_SECONDS * SECOND:
            self._tables.samples.note_run(self._began, now)
            self._noted = now

    def end(self, now: int) -> None:
        """Take the last sample, and record that the broker runs until now."""
        self.take(now)
        if self._began is not None:
            self._tables.samples.note_run(self._began, now)

    def take(self, now: int) -> None:
        """Write what has changed since the last call into its slots. Call it soon after each short slot has ended."""
        self._tables.for_change()
        if self._began is None:
            return
        # Just after the end of a slot, the changes belong to that slot.
        at = max(self._taken, _SHORT.slot(now) * _SHORT.step * SECOND - 1)
        self._taken = max(self._taken, now)
        rows: list[SampleRow] = []
        for entity, before, after in self._tables.counters.list_unsampled():
            changes = (
                after.new - before.new,
                after.duplicates - before.duplicates,
                after.outgoing - before.outgoing,
                after.completed - before.completed,
                after.dead_lettered - before.dead_lettered,
            )
            if (any(changes) or before.active != after.active) and self._has_room(entity, _LONG.slot(at)):
                held = (before.active, after.active)
                rows += [SampleRow(span.step, entity, span.slot(at), *changes, *held) for span in Span]
        if rows:
            self._tables.samples.add(rows)
            self.note_run(now)
            self._prune(now)

    def read(self, entity: int, span: Span, now: int, since: int = 0) -> Samples:
        """Return what changed in each slot of a span, for an entity that exists since a time, or for `NAMESPACE`.

        All are unknown if there are too many entities.
        """
        self.take(now)
        active = self._tables.counters.of(entity).active
        first = span.slot(now) - span.slots
        if entity not in self._sampled and len(self._sampled) >= MOST_ENTITIES:
            return samples_of(span, now, since, [], [], active)
        runs = self._tables.samples.runs(first * span.step * SECOND)
        if self._began is not None:
            runs = [*(run for run in runs if run[0] != self._began), (self._began, now)]
        rows = self._tables.samples.read(span.step, entity, first)
        return samples_of(span, now, since, rows, runs, active)

    def forget(self, entities: Sequence[int]) -> None:
        """Delete the samples of entities that were deleted."""
        self._tables.samples.delete([span.step for span in Span], entities)
        for entity in entities:
            self._sampled.pop(entity, None)

    def _has_room(self, entity: int, slot: int) -> bool:
        """Return whether an entity may have samples, and make room for it if possible."""
        if entity not in self._sampled and len(self._sampled) >= MOST_ENTITIES:
            if self._full_at == slot:
                return entity == NAMESPACE
            idlest = min((each for each in self._sampled if each != NAMESPACE), key=self._sampled.__getitem__)
            if slot - self._sampled[idlest] <= STILL_BUSY_SECONDS // _LONG.step:
                self._full_at = slot
                return entity == NAMESPACE
            self.forget([idlest])
        self._sampled[entity] = slot
        self._to_prune.add(entity)
        return True

    def _prune(self, now: int) -> None:
        """Delete samples that are too old, of entities that changed: those of idle ones do no harm."""
        if now - self._pruned >= PRUNE_SECONDS * SECOND:
            self._pruned = now
            for span in Span:
                self._tables.samples.prune(span.step, sorted(self._to_prune), span.slot(now) - span.slots)
            self._to_prune.clear()
