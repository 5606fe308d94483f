"""The messages in a history: attempts, deliveries and what became of them. All functions are pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from .entities import CHANGING, COLOURS, DEAD_LETTERS, OUTLETS, RECREATED, RULES, SINKS, WINDOW, WINDOWS, Sink, uid_of
from .history import FAILED, NEVER, OK, History, Operation

MILLISECOND, SECOND = 1000, 1_000_000


def partition_of(number: int) -> int:
    """Return the partition in a sequence number. Numbers of two partitions cannot be compared."""
    return number >> 48


@dataclass(frozen=True)
class Attempt:
    """One message of one send. `at` is its index in the batch, `due` a wall time, `number` the answer to scheduling."""

    uid: str
    id: str
    sink: Sink
    incarnation: int
    colour: str
    session: str | None
    due: int | None
    at: int
    number: int | None
    operation: Operation

    @property
    def is_sure(self) -> bool:
        """Return whether the broker has answered that it accepted the message."""
        return self.operation.outcome == OK

    @property
    def is_possible(self) -> bool:
        """Return whether it may have been accepted."""
        return self.operation.outcome != FAILED

    def is_before(self, other: Attempt) -> bool:
        """Return whether the attempt has its place in the inbox before the other, if both have one.

        The messages of a transaction that also settles may come into the inbox after its answer, but together.
        """
        if self.operation is other.operation:
            return self.at < other.at
        return not self.operation.args.get("settles") and self.operation.is_before(other.operation)

    @property
    def key(self) -> tuple[str, int, str]:
        """Return the key for duplicate detection. Without detection, each message has a unique one."""
        return self.sink.name, self.incarnation, self.id if self.sink.detects else f"uid {self.uid}"


@dataclass(frozen=True)
class Delivery:
    """One delivery of a message to a receiver. It was enqueued between `earliest` and `latest`."""

    place: str
    uid: str
    number: int
    origin: int | None
    count: int
    session: str | None
    earliest: int
    latest: int
    operation: Operation


@dataclass(frozen=True)
class Drop:
    """A record of a dropped duplicate."""

    entity: str
    id: str
    number: int
    time: int
    original: int
    original_time: int


Copy = tuple[str, str, int]
"""A place, a uid and a sequence number. They identify one copy of a message, which may be delivered several times."""


class Model:
    """The messages of a history, indexed for the rules."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.attempts = {attempt.uid: attempt for attempt in _attempts(history)}
        self.deliveries = list(_deliveries(history))
        self.settlements: dict[Copy, list[Operation]] = defaultdict(list)
        for settle in history.of("settle"):
            self.settlements[settle.args["place"], settle.args["uid"], settle.args["number"]].append(settle)
        self.cancels = {cancel.args["uid"]: cancel for cancel in history.of("cancel")}
        self.resubmits: dict[tuple[str, str], list[Operation]] = defaultdict(list)
        for resubmit in history.of("resubmit"):
            for uid in resubmit.args["uids"]:
                self.resubmits[resubmit.args["place"], uid].append(resubmit)
        self.forgets: dict[tuple[str, str], list[Operation]] = defaultdict(list)
        for forget in history.of("forget"):
            if forget.outcome != FAILED:
                self.forgets[forget.args["entity"], forget.args["id"]].append(forget)
        ends = history.of("end")
        if not ends:
            raise ValueError("The history has no end: its run was cut short, so we cannot tell what is missing.")
        self.end = ends[-1]

    @cached_property
    def by_key(self) -> dict[tuple[str, int, str], list[Attempt]]:
        found = defaultdict(list)
        for attempt in self.attempts.values():
            found[attempt.key].append(attempt)
        return found

    @cached_property
    def copies(self) -> dict[Copy, list[Delivery]]:
        """Return all deliveries of each copy, sorted by the invocation of the receive."""
        found = defaultdict(list)
        for delivery in self.deliveries:
            found[delivery.place, delivery.uid, delivery.number].append(delivery)
        return found

    @cached_property
    def arrivals(self) -> dict[str, dict[str, list[int]]]:
        """Return, for each uid, the places where it was delivered and its numbers there. Dead letters count too."""
        found: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for place, uid, number in self.copies:
            numbers = found[uid][place.removesuffix(DEAD_LETTERS)]
            if number not in numbers:
                numbers.append(number)
        return found

    @cached_property
    def _by_uid(self) -> dict[str, list[Delivery]]:
        found = defaultdict(list)
        for delivery in self.deliveries:
            found[delivery.uid].append(delivery)
        return found

    def deliveries_of(self, uid: str) -> list[Delivery]:
        return self._by_uid.get(uid, [])

    @cached_property
    def drops(self) -> list[Drop]:
        return [
            Drop(
                entity,
                self._id_of(each["messageId"]),
                each["sequenceNumber"],
                _microseconds(each["time"]),
                each["original"]["sequenceNumber"],
                _microseconds(each["original"]["time"]),
            )
            for entity, drops in self.end.result["drops"].items()
            for each in drops
        ]

    def _id_of(self, message_id: str) -> str:
        """Return the id that counted. Where that is not the message id, the message id shows the uid."""
        attempt = self.attempts.get(uid_of(message_id, message_id))
        return message_id if attempt is None or attempt.sink.detection_key is None else attempt.id

    @cached_property
    def last_incarnation(self) -> int:
        return max((each.args["incarnation"] for each in self.history.of("create")), default=0)

    def has_arrived(self, attempt: Attempt) -> bool:
        return attempt.uid in self.arrivals

    def was_cancelled(self, attempt: Attempt) -> str | None:
        """Return `OK` if an attempt was cancelled, `UNKNOWN` if it may have been."""
        cancel = self.cancels.get(attempt.uid)
        return None if cancel is None or cancel.outcome == FAILED else cancel.outcome

    def may_be_accepted(self, attempt: Attempt) -> bool:
        """Return whether an attempt was delivered, or was or may have been cancelled."""
        return self.has_arrived(attempt) or self.was_cancelled(attempt) is not None

    def resubmitted(self, place: str, uid: str) -> set[int]:
        """Return the numbers of the dead letters that may have been resubmitted."""
        return {
            number
            for each in self.resubmits[place, uid]
            if each.outcome != FAILED
            for number, name in zip(each.args["numbers"], each.args["uids"], strict=True)
            if name == uid
        }

    def is_back(self, place: str, uid: str, number: int) -> bool:
        """Return whether a dead letter was delivered again as a new message of its place."""
        numbers = self.arrivals[uid][place] if uid in self.arrivals else []
        return number in self.resubmitted(place, uid) and max(numbers, default=0) > number

    def is_gone(self, attempt: Attempt) -> bool:
        """Return whether the entity of an attempt was deleted, with all its messages."""
        return attempt.sink.name == RECREATED and attempt.incarnation < self.last_incarnation

    # Windows and rules over time

    def windows(self, attempt: Attempt) -> list[int]:
        """Return the windows that may have applied when an attempt was accepted, in microseconds."""
        assert attempt.sink.window is not None
        if attempt.sink.name != WINDOW:
            return [WINDOWS[attempt.sink.window] * SECOND]
        changes = [(each, each.args["window"]) for each in self.history.of("window")]
        return [WINDOWS[each] * SECOND for each in _in_force(attempt.sink.window, changes, attempt.operation)]

    def routes(self, attempt: Attempt) -> dict[str, bool | None]:
        """Return which subscriptions must get a message: True, False, or None if the rule changed meanwhile."""
        found: dict[str, bool | None] = {}
        for name in attempt.sink.subscriptions:
            place = attempt.sink.place(name)
            colours = {RULES[place]} if place in RULES else set[str]()
            if place == CHANGING:
                changes = [(each, each.args["colour"]) for each in self.history.of("rule")]
                colours = set(_in_force(COLOURS[0], changes, attempt.operation, attempt.due))
            passing = {colour == attempt.colour for colour in colours} or {True}
            found[OUTLETS.get(place, place)] = passing.pop() if len(passing) == 1 else None
        return found


def _in_force(
    first: str, changes: Iterable[tuple[Operation, str]], meant: Operation, due: int | None = None
) -> list[str]:
    """Return the values that may have applied during an operation; for a scheduled message, until the run's end."""
    values = [first]
    until = NEVER if due is not None else meant.returned
    for change, value in changes:
        if change.outcome == FAILED or change.invoked > until:
            continue
        if change.outcome == OK and change.is_before(meant):
            values = [value]
        else:
            values.append(value)
    return values


def _attempts(history: History) -> Iterable[Attempt]:
    for send in history.of("send"):
        numbers = send.result.get("numbers") or [None] * len(send.args["messages"])
        for at, (message, number) in enumerate(zip(send.args["messages"], numbers, strict=True)):
            yield Attempt(
                message["uid"],
                message["id"],
                SINKS[send.args["entity"]],
                send.args["incarnation"],
                message["colour"],
                message["session"],
                message["due"],
                at,
                number,
                send,
            )


def _deliveries(history: History) -> Iterable[Delivery]:
    for receive in history.of("receive"):
        for each in receive.result.get("messages", []):
            yield Delivery(
                receive.args["place"],
                each["uid"],
                each["number"],
                each["origin"],
                each["count"],
                each["session"],
                *_enqueued(each),
                receive,
            )


def _enqueued(record: dict[str, Any]) -> tuple[int, int]:
    if "second" in record:
        return record["second"] * SECOND, record["second"] * SECOND + SECOND - 1
    return record["enqueued"], record["enqueued"] + MILLISECOND - 1


def _microseconds(iso: str) -> int:
    return (datetime.fromisoformat(iso) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
