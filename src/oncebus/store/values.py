"""What goes into the store and comes out of it: plain values, no SQL and no rules."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

MAX_HOPS = 4
"""So often may one message be forwarded."""


class Kind(enum.Enum):
    """What an entity is."""

    QUEUE = "queue"
    SUBSCRIPTION = "subscription"
    TOPIC = "topic"


@dataclass(frozen=True, slots=True)
class Policy:
    """What the store has to know of an entity. `forward_to` and `forward_dead_letters_to` are entities."""

    kind: Kind = Kind.QUEUE
    lock_duration: int = 60_000_000
    max_delivery_count: int = 10
    dead_letter_on_expiry: bool = False
    requires_session: bool = False
    forward_to: int | None = None
    forward_dead_letters_to: int | None = None
    partitioned: bool = False


class SubQueue(enum.IntEnum):
    """Where in its entity a message lies. The numbers are stored."""

    MAIN = 0
    DEAD_LETTER = 1
    TRANSFER_DEAD_LETTER = 2


class State(enum.IntEnum):
    """What a receiver is told of a message's state; a locked one is active."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


class Stage(enum.IntEnum):
    """Where a message stands in the store. The numbers are stored, and stand in the conditions of indexes."""

    READY = 0
    DEFERRED = 1
    SCHEDULED = 2
    LOCKED = 3
    # Decided to go elsewhere: neither received, cancelled nor expired any more.
    TRANSFER = 4
    DEFERRED_LOCKED = 5
    # Goes through the inbox to be enqueued in its own entity. Until it has left, it is shown and counted where it was.
    RETURN = 6


LEAVING = (Stage.TRANSFER, Stage.RETURN)
"""The pump appends these to the inbox."""

_STATES = {
    Stage.DEFERRED: State.DEFERRED,
    Stage.DEFERRED_LOCKED: State.DEFERRED,
    Stage.SCHEDULED: State.SCHEDULED,
}


class Copy(NamedTuple):
    """A message without its content. `lane` is its session where the entity requires sessions, else empty."""

    id: int
    entity: int
    sub_queue: int
    stage: int
    lane: str
    sequence: int
    enqueued: int
    expires: int | None
    scheduled: int | None
    deliveries: int
    hops: int
    size: int
    locked_until: int | None
    token: bytes | None
    blob: str | None


class Message(NamedTuple):
    """A message as a receiver sees it. `id` is the store's own and means nothing outside.

    `deliveries` counts the attempt that it was handed out with. `source` is the entity it was dead-lettered in,
    `origin` the one it was forwarded or re-sent from. `body` is None where `blob` names its file.
    """

    id: int
    entity: int
    sub_queue: int
    stage: int
    lane: str
    sequence: int
    enqueued: int
    expires: int | None
    scheduled: int | None
    deliveries: int
    hops: int
    size: int
    locked_until: int | None
    token: bytes | None
    blob: str | None
    enqueued_sequence: int
    reason: str | None
    description: str | None
    source: int | None
    origin: int | None
    message_id: str
    session: str | None
    partition_key: str | None
    head: bytes
    body: bytes | None

    @property
    def state(self) -> State:
        """Active, deferred or scheduled."""
        if self.stage == Stage.RETURN and self.sub_queue == SubQueue.MAIN:
            return State.SCHEDULED
        return _STATES.get(Stage(self.stage), State.ACTIVE)


class Mode(enum.Enum):
    """How a message is received."""

    PEEK_LOCK = "peek-lock"
    RECEIVE_AND_DELETE = "receive-and-delete"


class Action(enum.Enum):
    """What a receiver does with a message that it holds."""

    COMPLETE = "complete"
    # Puts it back; the attempt counts.
    ABANDON = "abandon"
    # Puts it back as if it had never been handed out.
    RELEASE = "release"
    DEFER = "defer"
    DEAD_LETTER = "dead-letter"


class Outcome(enum.Enum):
    """What became of one message of a request: done, or why not."""

    DONE = "done"
    MESSAGE_LOCK_LOST = "message-lock-lost"
    SESSION_LOCK_LOST = "session-lock-lost"
    MESSAGE_NOT_FOUND = "message-not-found"


@dataclass(frozen=True, slots=True)
class Settlement:
    """One message to settle, named by its lock token, and by its sequence number too where the caller has it.

    `head` replaces the message's own where the receiver changed its properties; `properties` are set among those that
    it has. Unless it is completed.
    """

    action: Action
    token: bytes
    sequence: int | None = None
    head: bytes | None = None
    reason: str | None = None
    description: str | None = None
    properties: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class SessionLock:
    """A session that is held, and until when."""

    entity: int
    session: str
    token: bytes
    locked_until: int


class Place(NamedTuple):
    """A sub-queue in which messages became available: somebody may be waiting there."""

    entity: int
    sub_queue: int


@dataclass(slots=True)
class Sweep:
    """What one bounded step of a sweep did. Where `more` is set, call again. `next` is when a lock ends or a
    message is due next.
    """

    handled: int = 0
    more: bool = False
    next: int | None = None
    arrived: set[Place] = field(default_factory=set)


class Scheduled(NamedTuple):
    """A message that waits for its time."""

    entity: int
    sequence: int
    time: int


@dataclass(slots=True)
class IngestReport:
    """What one outbox entry brought."""

    arrived: set[Place] = field(default_factory=set)
    scheduled: list[Scheduled] = field(default_factory=list)
    # Whether the requeue pump has something to do.
    transfers: bool = False
    # Rows whose origin had been taken before.
    repeated: int = 0
    # By entity, then by the names of `Counts`.
    counted: dict[int, dict[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Counts:
    """What an entity holds now, and what was counted since it was made."""

    active: int = 0
    dead_letter: int = 0
    scheduled: int = 0
    transfer: int = 0
    transfer_dead_letter: int = 0
    deferred: int = 0
    size: int = 0
    accepted: int = 0
    duplicates: int = 0
    delivered: int = 0
    dead_lettered: int = 0
    unrouted: int = 0
    discarded: int = 0
    quarantined: int = 0


class Highest(NamedTuple):
    """The highest sequence number and time ever seen of an entity's partition (0 where it has none)."""

    entity: int
    partition: int
    sequence: int
    time: int


class Drop(NamedTuple):
    """A duplicate that was dropped, and the message that won. `number` is the cursor for the next page."""

    entity: int
    number: int
    message_id: str
    time: int
    sequence: int
    original_sequence: int | None
    original_time: int | None


class Quarantined(NamedTuple):
    """A row that could not be processed. `number` is the cursor for the next page."""

    number: int
    entity: int
    position: int
    sequence: int
    time: int
    message_id: str
    session: str | None
    partition_key: str | None
    reason: str | None
    description: str | None
    size: int
    head: bytes
    body: bytes | None
    blob: str | None


class Errand(enum.Enum):
    """Why a message is appended to the inbox again."""

    FORWARD = "forward"
    FORWARD_DEAD_LETTER = "forward-dead-letter"
    # Fell due, was released from quarantine or resubmitted: judged already, to be routed and enqueued.
    DUE = "due"


class Transfer(NamedTuple):
    """A message to append for `target`, with the origin (message.entity, message.sequence) and these hops."""

    errand: Errand
    target: int
    hops: int
    message: Message
