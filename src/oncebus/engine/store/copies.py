"""The copies in outbox entries, with their stages and numbers, as rows for the tables of the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from oncebus.engine.store.values import Kind, Place, Policy, Scheduled, Stage, SubQueue
from oncebus.model.entities.names import session_key
from oncebus.model.messages import PARTITION_SHIFT, TRANSACTION, Fate, LogRow, Result

# Plain numbers: these are compared and stored for each copy.
_MAIN, _DEAD_LETTER = int(SubQueue.MAIN), int(SubQueue.DEAD_LETTER)
_READY, _SCHEDULED, _FORWARD = int(Stage.READY), int(Stage.SCHEDULED), int(Stage.FORWARD)

LEAST_SHARED = 1024
"""Copies of a message share its content from this size on, see decision 0029."""


class Copies:
    """The copies of an entry whose destination exists, with ids from `first_id` on.

    `messages`, `contents` and `shared` are rows for `MessageTable.insert`. `held` counts copies and bytes by (entity,
    sub-queue, stage). `numbers` are the highest numbers given by (subscription, partition). `heads` has the first
    receivable message of each session, by (entity, session), and `others` the sessions without one.
    """

    def __init__(
        self,
        results: Sequence[Result],
        policies: Mapping[int, Policy],
        last_number: Callable[[int, int], int | None],
        first_id: int,
    ) -> None:
        self.messages: list[tuple[Any, ...]] = []
        self.contents: list[tuple[Any, ...]] = []
        self.held: dict[tuple[int, int, int], list[int]] = {}
        self.numbers: dict[tuple[int, int], int] = {}
        self.scheduled: list[Scheduled] = []
        self.heads: dict[tuple[int, str], int] = {}
        self.others: set[tuple[int, str]] = set()
        self._last_number = last_number
        shared = _contents_of(results, first_id)
        self.shared = [(content, copies) for content, copies in Counter(shared.values()).items()]
        for id_, result in enumerate(results, start=first_id):
            content = shared.get(id_, id_)
            row, destination = result.row, result.destination
            assert destination is not None
            if content == id_:
                self.contents.append((id_, row.message_id, row.session, row.partition_key, row.head, row.body))
            self._add(id_, result, destination, policies[destination], -content if id_ in shared else id_)

    def _add(self, id_: int, result: Result, destination: int, policy: Policy, content: int) -> None:
        row = result.row
        sequence, session, source = row.sequence, "", None
        sub_queue, stage = _MAIN, _READY
        if result.fate is Fate.DEAD_LETTERED:
            sub_queue, source = _DEAD_LETTER, destination
            if policy.forward_dead_letters_to is not None:
                stage = _FORWARD
        elif _waits(row, policy):
            stage = _SCHEDULED
            self.scheduled.append(Scheduled(destination, sequence, row.scheduled or 0))
        elif policy.forward_to is not None:
            stage = _FORWARD
        if policy.kind is Kind.SUBSCRIPTION:
            sequence = self._number(destination, sequence >> PARTITION_SHIFT if policy.partitioned else 0)
        if policy.requires_session and source is None:
            session = row.session or ""
            self._note_session((destination, session), sequence, stage)
        held = self.held.get((destination, sub_queue, stage))
        if held is None:
            held = self.held[destination, sub_queue, stage] = [0, 0]
        held[0] += 1
        held[1] += row.size
        self.messages.append(
            (
                id_,
                destination,
                sub_queue,
                stage,
                session_key(session) if session else session,
                sequence,
                row.sequence,
                row.time,
                row.expires,
                row.scheduled,
                row.hops,
                row.size,
                result.reason,
                result.description,
                source,
                row.origin_entity,
                row.body_file,
                content,
            )
        )

    @property
    def places(self) -> set[Place]:
        """Return the places where messages can be received now."""
        return {Place(entity, SubQueue(sub_queue)) for entity, sub_queue, stage in self.held if stage == _READY}

    @property
    def to_requeue(self) -> bool:
        """Return whether requeue has something to do."""
        return any(stage == _FORWARD for _, _, stage in self.held)

    def _number(self, subscription: int, partition: int) -> int:
        """Number a copy for a subscription, from 1 in each subscription and each partition that the topic chose."""
        key = subscription, partition
        last = self.numbers.get(key)
        if last is None:
            last = self._last_number(subscription, partition)
        if last is None:
            last = partition << PARTITION_SHIFT
        self.numbers[key] = last + 1
        return last + 1

    def _note_session(self, session: tuple[int, str], sequence: int, stage: int) -> None:
        if stage == _READY:
            self.heads[session] = min(self.heads.get(session, sequence), sequence)
        elif stage != _FORWARD:
            # Messages that leave at once belong to no session here.
            self.others.add(session)


def is_requeued(row: LogRow) -> bool:
    """Return whether requeue appended a row."""
    return row.origin_entity is not None and row.origin_entity != TRANSACTION


def _waits(row: LogRow, policy: Policy) -> bool:
    """Return whether a copy waits for its scheduled time. Under a topic there are only waiting messages."""
    if policy.kind is Kind.TOPIC:
        return True
    # A requeued message has already waited for its time.
    return row.scheduled is not None and policy.kind is not Kind.SUBSCRIPTION and not is_requeued(row)


def _contents_of(results: Sequence[Result], first_id: int) -> dict[int, int]:
    """Return the ids of copies that share their content, each with the id of the first copy that has it.

    Copies of a message with the same content share it if it is large. All copies of a message follow each other.
    """
    shared: dict[int, int] = {}
    alike: dict[tuple[Any, ...], int] = {}
    position = None
    for id_, result in enumerate(results, start=first_id):
        row = result.row
        if row.position != position:
            position = row.position
            alike.clear()
        if row.size >= LEAST_SHARED:
            content = row.message_id, row.session, row.partition_key, row.head, row.body
            first = alike.setdefault(content, id_)
            if first != id_:
                shared[first] = shared[id_] = first
    return shared
