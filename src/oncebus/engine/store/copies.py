"""An outbox entry as columns: the copies in it, with their stages and numbers.

All of it is computed on whole columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from oncebus.engine.store.records import Highest
from oncebus.engine.store.values import Kind, Place, Policy, Scheduled, Stage, SubQueue
from oncebus.model.entities.names import session_key
from oncebus.model.messages import PARTITION_SHIFT, TRANSACTION, Fate

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

LEAST_SHARED = 1024
"""Copies of a message share its content from this size on, see decision 0029."""


def integers(rows: pa.Table, name: str) -> Ints:
    """Return a column of numbers, with 0 for null."""
    column = rows.column(name)
    return np.asarray((column.fill_null(0) if column.null_count else column).to_numpy(), np.int64)


def present(rows: pa.Table, name: str) -> Flags:
    """Return, for each row, whether the column is not null."""
    column = rows.column(name)
    if column.null_count == len(column):
        return np.zeros(len(column), np.bool_)
    return np.asarray(column.is_valid().to_numpy(), np.bool_)


def find_requeued(rows: pa.Table) -> Flags:
    """Return a flag for each row: whether requeue appended it."""
    flags: Flags = present(rows, "origin_entity") & (integers(rows, "origin_entity") != TRANSACTION)
    return flags


def values(rows: pa.Table, name: str) -> list[Any]:
    """Return a column as Python values."""
    column = rows.column(name)
    if column.null_count == len(column):
        return [None] * len(column)
    if not pa.types.is_integer(column.type):
        return list(column.to_numpy().tolist())
    found: list[Any] = integers(rows, name).tolist()
    if column.null_count:
        for index in np.flatnonzero(~present(rows, name)).tolist():
            found[index] = None
    return found


def groups(*keys: Ints) -> tuple[Ints, Ints, Ints]:
    """Group rows with the same keys. Return (row indexes by group, start of each group, length of each group)."""
    order = np.lexsort(keys[::-1])
    changed = np.zeros(len(order), np.bool_)
    changed[:1] = True
    for key in keys:
        by_group = key[order]
        changed[1:] |= by_group[1:] != by_group[:-1]
    starts = np.flatnonzero(changed)
    return order, starts, np.diff(np.append(starts, len(order)))


def tally(keys: Ints) -> list[tuple[int, int]]:
    """Return each key with the number of its occurrences."""
    found, numbers = np.unique(keys, return_counts=True)
    return list(zip(found.tolist(), numbers.tolist(), strict=True))


def highest(entities: Ints, sequences: Ints, times: Ints) -> list[Highest]:
    """Return the highest number and time of each partition of each entity."""
    if not len(entities):
        return []
    partitions = sequences >> PARTITION_SHIFT
    order, starts, _ = groups(entities, partitions)
    first = order[starts]
    return [
        Highest(*row)
        for row in zip(
            entities[first].tolist(),
            partitions[first].tolist(),
            np.maximum.reduceat(sequences[order], starts).tolist(),
            np.maximum.reduceat(times[order], starts).tolist(),
            strict=True,
        )
    ]


@dataclass(slots=True)
class _Rules:
    """The policies of the destinations as columns, with one value for each destination."""

    subscription: list[bool] = field(default_factory=list)
    topic: list[bool] = field(default_factory=list)
    session: list[bool] = field(default_factory=list)
    forward: list[bool] = field(default_factory=list)
    forward_dead: list[bool] = field(default_factory=list)
    partitioned: list[bool] = field(default_factory=list)

    def add(self, policy: Policy) -> None:
        self.subscription.append(policy.kind is Kind.SUBSCRIPTION)
        self.topic.append(policy.kind is Kind.TOPIC)
        self.session.append(policy.requires_session)
        self.forward.append(policy.forward_to is not None)
        self.forward_dead.append(policy.forward_dead_letters_to is not None)
        self.partitioned.append(policy.partitioned)


class Copies:
    """The copies of an entry whose destination exists. All arrays and lists have one value for each copy."""

    def __init__(
        self, rows: pa.Table, policies: Mapping[int, Policy], last_number: Callable[[int, int], int | None]
    ) -> None:
        self._rows = rows
        self.count = rows.num_rows
        self.destination = integers(rows, "destination")
        found, inverse = np.unique(self.destination, return_inverse=True)
        rules = _Rules()
        for entity in found.tolist():
            rules.add(policies[entity])

        def each(flags: list[bool]) -> Flags:
            return np.array(flags, np.bool_)[inverse]

        dead = integers(rows, "fate") == Fate.DEAD_LETTERED
        # A requeued message has already waited for its time. Under a topic there are only waiting messages.
        waits = each(rules.topic) | (present(rows, "scheduled") & ~find_requeued(rows) & ~each(rules.subscription))
        leaves = np.where(dead, each(rules.forward_dead), each(rules.forward))
        self.sub_queue = np.where(dead, SubQueue.DEAD_LETTER, SubQueue.MAIN)
        self.stage = np.where(waits & ~dead, Stage.SCHEDULED, np.where(leaves, Stage.FORWARD, Stage.READY))
        self.sequence = integers(rows, "sequence").copy()
        self.numbered = each(rules.subscription)
        if self.numbered.any():
            self._number(np.flatnonzero(self.numbered), each(rules.partitioned), last_number)
        self._in_session = each(rules.session) & ~dead
        self.size = integers(rows, "size")

    def _number(self, copies: Ints, partitioned: Flags, last_number: Callable[[int, int], int | None]) -> None:
        """Number the copies for subscriptions, from 1 in each subscription and each partition that the topic chose."""
        partition = np.where(partitioned[copies], self.sequence[copies] >> PARTITION_SHIFT, 0)
        order, starts, lengths = groups(self.destination[copies], partition)
        first = order[starts]
        last = []
        for entity, part in zip(self.destination[copies][first].tolist(), partition[first].tolist(), strict=True):
            known = last_number(entity, part)
            last.append((part << PARTITION_SHIFT) if known is None else known)
        rank = np.arange(len(order)) - np.repeat(starts, lengths)
        self.sequence[copies[order]] = np.repeat(np.array(last, np.int64), lengths) + 1 + rank

    @cached_property
    def _sessions(self) -> list[str]:
        """Return each copy's session if its entity requires sessions, else an empty string."""
        if not self._in_session.any():
            return [""] * self.count
        sessions = values(self._rows, "session")
        return [
            (session or "") if matters else ""
            for session, matters in zip(sessions, self._in_session.tolist(), strict=True)
        ]

    def messages(self, first_id: int, contents: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of table `message`, for `MessageTable.insert`, with the ids of their contents."""
        rows = self._rows
        dead = self.sub_queue == SubQueue.DEAD_LETTER
        source: list[Any] = [None] * self.count
        for index in np.flatnonzero(dead).tolist():
            source[index] = int(self.destination[index])
        return zip(
            range(first_id, first_id + self.count),
            self.destination.tolist(),
            self.sub_queue.tolist(),
            self.stage.tolist(),
            map(session_key, self._sessions) if self._in_session.any() else self._sessions,
            self.sequence.tolist(),
            values(rows, "sequence"),
            values(rows, "time"),
            values(rows, "expires"),
            values(rows, "scheduled"),
            values(rows, "hops"),
            self.size.tolist(),
            values(rows, "reason"),
            values(rows, "description"),
            source,
            values(rows, "origin_entity"),
            values(rows, "body_file"),
            contents,
            strict=True,
        )

    def contents(self, first_id: int) -> tuple[list[int], Iterable[tuple[Any, ...]], list[tuple[int, int]]]:
        """Return the id of each copy's content, the rows of table `content`, and those of table `shared`.

        Copies of a message with the same content share it if it is large. Then the id is negative for all of them.
        """
        names = ("message_id", "session", "partition_key", "head", "body")
        columns = [values(self._rows, name) for name in names]
        ids = list(range(first_id, first_id + self.count))
        position = integers(self._rows, "position")
        # All copies of a message follow each other.
        is_next = np.append(position[1:] == position[:-1], False)
        can_share = (is_next | np.roll(is_next, 1)) & (self.size >= LEAST_SHARED)
        rows = zip(ids, *columns, strict=True)
        if not can_share.any():
            return ids, rows, []
        alike: dict[tuple[Any, ...], list[int]] = {}
        positions, all_rows = position.tolist(), list(rows)
        for index in np.flatnonzero(can_share).tolist():
            alike.setdefault((positions[index], *all_rows[index][1:]), []).append(index)
        shared: list[tuple[int, int]] = []
        again: set[int] = set()
        for copies in alike.values():
            if len(copies) > 1:
                content = ids[copies[0]]
                shared.append((content, len(copies)))
                again.update(copies[1:])
                for index in copies:
                    ids[index] = -content
        return ids, [row for index, row in enumerate(all_rows) if index not in again], shared

    def count_held(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield (entity, sub-queue, stage, copies, bytes) for each sub-queue and stage that gets copies."""
        place = self.sub_queue.astype(np.int64) * len(Stage) + self.stage
        order, starts, lengths = groups(self.destination, place)
        first = order[starts]
        return zip(
            self.destination[first].tolist(),
            self.sub_queue[first].tolist(),
            self.stage[first].tolist(),
            lengths.tolist(),
            np.add.reduceat(self.size[order], starts).tolist() if len(starts) else [],
            strict=True,
        )

    def find_places(self) -> set[Place]:
        """Return the places where messages can be received now."""
        ready = self.stage == Stage.READY
        pairs = zip(self.destination[ready].tolist(), self.sub_queue[ready].tolist(), strict=True)
        return {Place(entity, sub_queue) for entity, sub_queue in set(pairs)}

    def find_scheduled(self) -> list[Scheduled]:
        """Return the copies that wait for their scheduled time."""
        waiting = np.flatnonzero(self.stage == Stage.SCHEDULED)
        if not len(waiting):
            return []
        times = integers(self._rows, "scheduled")
        return [
            Scheduled(*row)
            for row in zip(
                self.destination[waiting].tolist(),
                self.sequence[waiting].tolist(),
                times[waiting].tolist(),
                strict=True,
            )
        ]

    def session_heads(self) -> tuple[list[tuple[int, str, int]], set[tuple[int, str]]]:
        """Return the first receivable message of each session, and the sessions that have no receivable message."""
        heads: dict[tuple[int, str], int] = {}
        others: set[tuple[int, str]] = set()
        # Messages that leave at once belong to no session here.
        indexes = np.flatnonzero(self._in_session & (self.stage != Stage.FORWARD))
        if len(indexes):
            entities, sequences = self.destination.tolist(), self.sequence.tolist()
            ready = (self.stage == Stage.READY).tolist()
            for index in indexes.tolist():
                key = entities[index], self._sessions[index]
                if ready[index]:
                    heads[key] = min(heads.get(key, sequences[index]), sequences[index])
                else:
                    others.add(key)
        return [(*key, sequence) for key, sequence in heads.items()], others
