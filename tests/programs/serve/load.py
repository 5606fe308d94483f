"""Senders and receivers that keep a broker busy over HTTP, and a record of the answers and messages they got."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from urllib.parse import urlsplit

from oncebus.broker.broker import Broker

from .clients import Client, Running, everything_below
from .services import everything_in

SENDERS = 3
DRAIN_SECONDS = 180.0
LOCK_SECONDS = 2
SCHEDULED_SECONDS = 3
SESSIONS = "sessions"

# The window is longer than any test, so no id is forgotten.
_DETECTS = {"requiresDuplicateDetection": True, "duplicateDetectionHistoryTimeWindow": "P1D"}
_RECEIVED = {"lockDuration": f"PT{LOCK_SECONDS}S", "maxDeliveryCount": 500}
ENTITIES: list[dict[str, object]] = [
    {"type": "queue", "name": "direct", **_DETECTS, **_RECEIVED},
    {"type": "queue", "name": "target", **_DETECTS, **_RECEIVED},
    {"type": "queue", "name": "forwarding", **_DETECTS, "forwardTo": "target"},
    # Has no detection, so a message that is forwarded twice is visible here.
    {"type": "queue", "name": "plain", **_RECEIVED},
    {"type": "queue", "name": "passing", **_DETECTS, "forwardTo": "plain"},
    {"type": "topic", "name": "news", **_DETECTS},
    {"type": "subscription", "topic": "news", "name": "all", **_RECEIVED},
    # HTTP cannot receive from sessions. Their messages stay, and the test reads them at the end.
    {"type": "queue", "name": SESSIONS, **_DETECTS, "requiresSession": True},
]
ARRIVES_IN = {"direct": "direct", "forwarding": "target", "passing": "plain", "news": "news/Subscriptions/all"}

Key = tuple[str, str]
"""The entity where a message arrives, and its id."""


@dataclass
class Record:
    """The observations of senders and receivers.

    `accepted` and `completed` hold messages for which the broker confirmed that. `unanswered` holds messages whose
    completion got no answer, so either may be true. `numbers` are the sequence numbers under which each message was
    received. `sessions` lists the accepted ids of each session in order. `refusals` are the error answers to sends. At
    the end, `held` counts the messages that are left, by entity, and `forwarded_again` counts the duplicates dropped at
    an entity to which nobody sends: a message that is sent twice is dropped before it is forwarded.
    """

    accepted: set[Key] = field(default_factory=set)
    completed: set[Key] = field(default_factory=set)
    unanswered: set[Key] = field(default_factory=set)
    numbers: dict[Key, set[int]] = field(default_factory=dict)
    came_back: list[Key] = field(default_factory=list)
    sessions: dict[str, list[str]] = field(default_factory=dict)
    refusals: set[tuple[int, str]] = field(default_factory=set)
    attempts: int = 0
    kills: int = 0
    dropped: int = 0
    held: dict[str, int] = field(default_factory=dict)
    forwarded_again: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def lost(self) -> set[Key]:
        """Return the accepted messages that were never completed, not even perhaps."""
        return self.accepted - self.completed - self.unanswered

    @property
    def doubled(self) -> set[Key]:
        """Return the messages that were received under two sequence numbers: there were two copies."""
        return {key for key, numbers in self.numbers.items() if len(numbers) > 1}

    def check(self) -> None:
        assert not self.lost, "accepted, but never completed"
        assert not self.came_back, "came back after its completion was answered"
        assert not self.doubled, "two copies of one message"
        assert not self.held, "all messages were completed, but some are left"
        assert not self.forwarded_again, "forwarded twice"
        assert len(self.accepted) > 30
        assert min(map(len, self.sessions.values())) > 3

    def __str__(self) -> str:
        return (
            f"kills {self.kills}, sends {self.attempts}, acknowledged {len(self.accepted)}, "
            f"delivered {len(self.numbers)}, completed {len(self.completed)}, unanswered {len(self.unanswered)}, "
            f"dropped {self.dropped}, lost {len(self.lost)}, double {len(self.doubled)}, "
            f"came back {len(self.came_back)}, left {self.held or 'nothing'}, forwarded twice {self.forwarded_again}"
        )


class Load:
    """Threads that send and receive. A request that fails in any way counts as "not answered".

    A test may replace `client` if the broker has a new URL.
    """

    def __init__(self, client: Client, seed: int, pause: float = 0.05) -> None:
        """Prepare the threads. `pause` is the time in seconds between the messages of a sender, to spare the CPU."""
        self.client = client
        self.record = Record()
        self._pause = pause
        self._done_sending, self._done_receiving = threading.Event(), threading.Event()
        chances = [random.Random(seed * 100 + name) for name in range(SENDERS)]
        self._senders = [threading.Thread(target=self._send, args=each) for each in enumerate(chances)]
        self._receivers = [threading.Thread(target=self._receive, args=(queue,)) for queue in ARRIVES_IN.values()]

    @contextmanager
    def under_way(self) -> Iterator[Record]:
        """Run for a block. Then wait until every accepted message is completed, and long enough to see it come back."""
        threads = self._senders + self._receivers
        for thread in threads:
            thread.start()
        try:
            yield self.record
            self._done_sending.set()
            for thread in self._senders:
                thread.join()
            deadline = time.monotonic() + DRAIN_SECONDS
            _while(lambda: self.record.lost or self._held(), deadline)
            time.sleep(LOCK_SECONDS + 0.5)
            # A message between two entities is counted in neither. A second check, some time later, finds it.
            _while(self._held, deadline)
        finally:
            self._done_sending.set()
            self._done_receiving.set()
            for thread in threads:
                thread.join()
        self.record.held = self._held()
        self.record.dropped = self.client.metric("messages_duplicates_total")
        self.record.forwarded_again = self.client.metric("messages_duplicates_total", entity="target")

    def _held(self) -> dict[str, int]:
        """Return how many messages and pipeline bytes are left, by entity. Stored messages in sessions do not count."""
        found: dict[str, int] = {}
        try:
            for entity in {*ARRIVES_IN, *ARRIVES_IN.values()}:
                found[entity] = self.client.metric("messages", entity=entity)
            for entity in {*ARRIVES_IN, *ARRIVES_IN.values(), SESSIONS}:
                found[f"{entity}, bytes in the pipeline"] = self.client.metric("entity_pipeline_bytes", entity=entity)
        except (OSError, http.client.HTTPException) as error:
            return {f"not known: {error!r}": 1}
        return {name: number for name, number in found.items() if number}

    def _send(self, name: int, chance: random.Random) -> None:
        """Send each message until it is accepted, and now and then a message that was accepted before."""
        sent: list[tuple[str, dict[str, str]]] = []
        for number in itertools.count():
            if self._done_sending.wait(self._pause):
                return
            if sent and chance.random() < 0.2 and not self._is_acknowledged(*chance.choice(sent)):
                return
            entity = chance.choice(["direct", "direct", "forwarding", "passing", "news", SESSIONS])
            properties: dict[str, str] = {"MessageId": f"{name}-{number}"}
            if entity == SESSIONS:
                properties["SessionId"] = f"session-{name}"
            elif chance.random() < 0.2:
                due = time.time() + SCHEDULED_SECONDS
                properties["ScheduledEnqueueTimeUtc"] = formatdate(due, usegmt=True)
            if not self._is_acknowledged(entity, properties):
                return
            sent.append((entity, properties))
            with self.record.lock:
                if entity == SESSIONS:
                    self.record.sessions.setdefault(properties["SessionId"], []).append(properties["MessageId"])
                else:
                    self.record.accepted.add((ARRIVES_IN[entity], properties["MessageId"]))

    def _is_acknowledged(self, entity: str, properties: dict[str, str]) -> bool:
        """Send a message until the broker accepts it. Return False if the load ends first."""
        headers = {"BrokerProperties": json.dumps(properties)}
        while True:
            status, _, text = self._request("POST", f"/{entity}/messages", headers)
            with self.record.lock:
                self.record.attempts += 1
                if status not in (0, 201):
                    self.record.refusals.add((status, text))
            if status == 201:
                return True
            if self._done_sending.wait(0.05):
                return False

    def _receive(self, queue: str) -> None:
        """Receive in peek-lock mode, and complete each message."""
        record = self.record
        while not self._done_receiving.is_set():
            status, headers, _ = self._request("POST", f"/{queue}/messages/head?timeout=1")
            if status != 201:
                self._done_receiving.wait(0 if status == 204 else 0.05)
                continue
            properties = json.loads(headers["brokerproperties"])
            key = (queue, properties["MessageId"])
            with record.lock:
                record.numbers.setdefault(key, set()).add(properties["SequenceNumber"])
                if key in record.completed:
                    record.came_back.append(key)
            done, _, _ = self._request("DELETE", urlsplit(headers["location"]).path)
            # A refusal is an answer: the message was not completed and comes again.
            with record.lock:
                if done == 200:
                    record.completed.add(key)
                elif done == 0:
                    record.unanswered.add(key)

    def _request(
        self, method: str, path: str, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], str]:
        try:
            return self.client.request(method, path, "body", headers)
        except (OSError, http.client.HTTPException):
            return 0, {}, ""


def _while(condition: Callable[[], object], deadline: float) -> None:
    while condition() and time.monotonic() < deadline:
        time.sleep(0.2)


async def check_order(broker: Broker, sent: Mapping[str, list[str]]) -> None:
    """Check that the messages of each session are there once and in order. Receives and deletes them."""
    found = {name: await everything_in(broker, SESSIONS, name) for name in sent}
    assert {name: ids[: len(sent[name])] for name, ids in found.items()} == sent
    # A gateway may have accepted the last message of a session and died before it could answer.
    assert all(len(ids) <= len(sent[name]) + 1 for name, ids in found.items())


def kill_parts(running: Running, names: Sequence[str], *, alone: bool = False) -> int:
    """Kill parts of a running broker at the same instant. Return how many were running.

    Kills their descendants too, except with `alone`: then the supervisor has to clean up.
    """
    found = 0
    for name in names:
        try:
            pid = running.child(name)
        except (AssertionError, FileNotFoundError):
            # It was killed a moment ago and is not restarted yet.
            continue
        found += 1
        for each in [pid, *([] if alone else everything_below(pid))]:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
    return found
