"""A model of a queue, a session queue and their inbox: what a store should hold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from oncebus.engine.store import Policy
from tests.engine.store.store_rows import SECOND, START

PLAIN, SESSIONS = 1, 2
LOCK = 10 * SECOND
POLICIES = {
    PLAIN: Policy(lock_duration=LOCK, max_delivery_count=3, dead_letter_on_expiry=True),
    SESSIONS: Policy(lock_duration=LOCK, max_delivery_count=3, requires_session=True),
}


@dataclass(frozen=True)
class Known:
    """The model's message. `dead` is its dead-letter reason, `until` the end of its own lock.

    `waits` while it is scheduled, `returns` from the moment that it is handed to requeue.
    """

    entity: int
    sequence: int
    session: str | None
    expires: int | None
    enqueued: int
    name: str
    scheduled: int | None = None
    waits: bool = False
    returns: bool = False
    deliveries: int = 0
    deferred: bool = False
    dead: str | None = None
    token: bytes | None = None
    until: int | None = None


class Model:
    """Messages by entity and number. `ended` are the numbers that must never be seen again."""

    def __init__(self) -> None:
        self.now = START
        # The commits that were appended and not ingested; the newest one appended, and the newest one ingested.
        self.inbox: dict[int, list[dict[str, Any]]] = {}
        self.appended = self.commit = 0
        self.sequence = {PLAIN: 0, SESSIONS: 0}
        self.known: dict[tuple[int, int], Known] = {}
        self.locks: dict[str, tuple[bytes, int]] = {}
        self.ended: set[tuple[int, int]] = set()
        self.stale: list[bytes] = []

    def number(self, entity: int) -> int:
        self.sequence[entity] += 1
        return self.sequence[entity]

    def append(self, rows: list[dict[str, Any]]) -> None:
        self.appended += 1
        self.inbox[self.appended] = rows

    def arrive(self, row: dict[str, Any]) -> None:
        entity, sequence, scheduled = row["entity"], row["sequence"], row["scheduled"]
        name, is_back = row.get("message_id", f"m{sequence}"), "origin_sequence" in row
        if is_back and (before := self.known.get((entity, row["origin_sequence"]))) is not None:
            self.end(before)
        waits = scheduled is not None and not is_back
        times = {"expires": row["expires"], "enqueued": row["time"], "scheduled": scheduled}
        self.put(Known(entity, sequence, row["session"], name=name, waits=waits, **times))

    def put(self, message: Known) -> None:
        self.known[message.entity, message.sequence] = message

    def end(self, message: Known) -> None:
        del self.known[message.entity, message.sequence]
        self.ended.add((message.entity, message.sequence))

    def put_back(self, message: Known) -> None:
        if message.token is not None:
            self.stale.append(message.token)
        free = replace(message, token=None, until=None)
        if message.dead is None and message.deliveries >= 3:
            free = replace(free, dead="MaxDeliveryCountExceeded", deferred=False)
        self.put(free)

    def session_of(self, message: Known) -> str | None:
        """Return the session of a message in upper case: sessions whose ids differ in letter case are the same."""
        if message.entity != SESSIONS or message.dead is not None or message.session is None:
            return None
        return message.session.upper()

    def pass_time(self) -> None:
        """Let locks expire, then unlocked messages."""
        for session, (_, until) in list(self.locks.items()):
            if until <= self.now:
                self.free(session)
        for message in list(self.known.values()):
            if message.until is not None and message.until <= self.now:
                self.put_back(message)
        for message in list(self.known.values()):
            past = message.expires is not None and message.expires <= self.now
            if past and message.dead is None and message.token is None and not message.returns:
                if POLICIES[message.entity].dead_letter_on_expiry:
                    self.put(replace(message, dead="TTLExpiredException", deferred=False, waits=False))
                else:
                    self.end(message)

    def free(self, session: str) -> None:
        del self.locks[session]
        for message in list(self.known.values()):
            if self.session_of(message) == session and message.token is not None:
                self.put_back(message)

    def ready(self, entity: int, session: str | None, dead: bool) -> list[Known]:
        found = [
            message
            for message in self.known.values()
            if message.entity == entity
            and (message.dead is not None) == dead
            and message.token is None
            and not (message.deferred or message.waits or message.returns)
            and (session is None or self.session_of(message) == session)
        ]
        return sorted(found, key=lambda message: message.sequence)
