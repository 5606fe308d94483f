"""Handwritten histories, one operation after the other, for the checker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .entities import SINKS
from .history import NEVER, OK, UNKNOWN, History, Operation
from .model import SECOND

BEGAN = 1_700_000_000 * SECOND
LETTERS = "/$deadletterqueue"
ALL, RED, COLLECTED = "news/Subscriptions/all", "news/Subscriptions/red", "collected"


class Story:
    """A handwritten history. By default, each operation takes a tenth of a second, and so does the pause after it."""

    def __init__(self) -> None:
        self.now = 0
        self.operations: list[Operation] = []
        self.metrics: dict[str, dict[str, int]] = {}
        self.held: dict[str, dict[str, int]] = {}
        self.drops: dict[str, list[dict[str, Any]]] = {name: [] for name in SINKS}

    def add(
        self,
        kind: str,
        outcome: str = OK,
        result: dict[str, Any] | None = None,
        *,
        begun: int | None = None,
        error: str = "",
        **args: Any,
    ) -> Operation:
        """Add an operation. `begun` is its invocation time, for operations that overlap."""
        invoked = self.now if begun is None else begun
        self.now += SECOND // 10
        returned = NEVER if outcome == UNKNOWN else self.now
        number = len(self.operations)
        self.operations.append(
            Operation(number, "hand", kind, invoked, returned, self.now, outcome, error, args, result or {})
        )
        self.now += SECOND // 10
        return self.operations[-1]

    def send(
        self,
        entity: str,
        *uids: str,
        name: str | None = None,
        outcome: str = OK,
        due: float | None = None,
        number: int | None = None,
        numbers: Sequence[int | None] | None = None,
        colour: str = "red",
        incarnation: int = 0,
        session: str | None = None,
        **more: Any,
    ) -> Operation:
        """Add a send. The id of each message is its uid, or the given name. `due` is in seconds from now."""
        when = None if due is None else BEGAN + self.now + round(due * SECOND)
        messages = [{"uid": uid, "id": name or uid, "colour": colour, "session": session, "due": when} for uid in uids]
        found = [number] if number is not None else numbers
        result = {} if found is None else {"numbers": found}
        return self.add(
            "send", outcome, result, entity=entity, via="http", incarnation=incarnation, messages=messages, **more
        )

    def receive(
        self,
        place: str,
        *found: tuple[str, int],
        count: int = 0,
        enqueued: float | None = None,
        outcome: str = OK,
        via: str = "http",
        most: int | None = None,
        session: str | None = None,
        **more: Any,
    ) -> Operation:
        """Add a receive of messages, given by uid and number.

        `enqueued` is in seconds since the start, by default just before now.
        """
        when = BEGAN + (self.now - SECOND // 10 if enqueued is None else round(enqueued * SECOND))
        messages = [
            {
                "uid": uid,
                "id": uid,
                "number": number,
                "origin": number,
                "count": count,
                "session": session,
                "enqueued": when,
            }
            for uid, number in found
        ]
        most = len(found) or 1 if most is None else most
        return self.add(
            "receive", outcome, {"messages": messages}, place=place, via=via, most=most, session=session, **more
        )

    def settle(
        self, place: str, uid: str, number: int, action: str = "complete", outcome: str = OK, **more: Any
    ) -> Operation:
        return self.add("settle", outcome, place=place, uid=uid, number=number, action=action, **more)

    def consume(self, place: str, *found: tuple[str, int], **more: Any) -> None:
        """Add a receive and the completion of its messages."""
        self.receive(place, *found, **more)
        for uid, number in found:
            self.settle(place, uid, number)

    def resubmit(self, place: str, *letters: tuple[str, int], done: int | None = None, outcome: str = OK) -> Operation:
        """Add a resubmission of letters, given by uid and number.

        `done` is how many the broker reports as resubmitted.
        """
        uids, numbers = [uid for uid, _ in letters], [number for _, number in letters]
        result = {"done": len(letters) if done is None else done} if outcome == OK else {}
        return self.add("resubmit", outcome, result, place=place, numbers=numbers, uids=uids)

    def drop(self, entity: str, name: str, number: int, original: int, seconds_apart: float = 1.0) -> None:
        """Add a record of a drop."""
        times = [f"2026-01-01T00:00:{second:09.6f}+00:00" for second in (0.0, seconds_apart)]
        self.drops.setdefault(entity, []).append(
            {
                "messageId": name,
                "sequenceNumber": number,
                "time": times[1],
                "original": {"sequenceNumber": original, "time": times[0]},
            }
        )

    def count(self, entity: str, **counters: int) -> None:
        self.metrics[entity] = counters

    def history(self) -> History:
        """Return the complete history, with the final records at its end."""
        self.add("end", result={"metrics": self.metrics, "held": self.held, "drops": self.drops})
        ordered: Sequence[Operation] = sorted(self.operations, key=lambda each: (each.invoked, each.number))
        return History(0, "", BEGAN, tuple(ordered))


def routed(story: Story, uid: str, *places: str) -> None:
    """Add the deliveries of a message of the topic, with the number 1 everywhere."""
    for place in places:
        story.consume(place, (uid, 1))
