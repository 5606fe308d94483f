"""Gateway and pipeline killed at random moments under load: what was accepted arrives, once, and stays completed."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import random
import signal
import threading
import time
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from .clients import Client, Running
from .test_service import service

SENDERS = 3
RECEIVERS = 2
DRAIN_SECONDS = 180.0
DETECTING = {"type": "queue", "requiresDuplicateDetection": True}
RECEIVED = {**DETECTING, "lockDuration": "PT5S", "maxDeliveryCount": 500}
ENTITIES = [
    {**RECEIVED, "name": "direct"},
    {**RECEIVED, "name": "target"},
    {**DETECTING, "name": "forwarding", "forwardTo": "target"},
]


@dataclass
class Record:
    """What senders were told and receivers have seen, by (queue it arrives in, id)."""

    accepted: set[tuple[str, str]] = field(default_factory=set)
    completed: set[tuple[str, str]] = field(default_factory=set)
    numbers: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    came_back: list[tuple[str, str]] = field(default_factory=list)
    attempts: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class Connection:
    """One client that takes every failure for "not answered"."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def request(self, method: str, path: str, headers: dict[str, str] | None = None) -> tuple[int, dict[str, str]]:
        try:
            status, found, _ = self._client.request(method, path, "body", headers)
        except (OSError, http.client.HTTPException):
            return 0, {}
        return status, found


def send(client: Client, record: Record, name: int, stop: threading.Event, chance: random.Random) -> None:
    """Send until told to stop; each message again and again until it is acknowledged, and now and then once more."""
    connection = Connection(client)
    for number in itertools.count():
        if stop.is_set():
            return
        queue = chance.choice(["direct", "direct", "forwarding"])
        identity = f"{name}-{number}"
        properties: dict[str, str] = {"MessageId": identity}
        if chance.random() < 0.2:
            properties["ScheduledEnqueueTimeUtc"] = formatdate(time.time() + 3, usegmt=True)
        headers = {"BrokerProperties": json.dumps(properties)}
        repeats = 2 if chance.random() < 0.1 else 1
        while repeats:
            status, _ = connection.request("POST", f"/{queue}/messages", headers)
            with record.lock:
                record.attempts += 1
            if status == 201:
                repeats -= 1
            elif stop.wait(0.05):
                return
        with record.lock:
            record.accepted.add(("target" if queue == "forwarding" else queue, identity))


def receive(client: Client, record: Record, queue: str, stop: threading.Event) -> None:
    """Receive in peek-lock and complete until told to stop."""
    connection = Connection(client)
    while not stop.is_set():
        status, headers = connection.request("POST", f"/{queue}/messages/head?timeout=1")
        if status != 201:
            stop.wait(0.05 if status == 0 else 0)
            continue
        properties = json.loads(headers["brokerproperties"])
        key = (queue, properties["MessageId"])
        with record.lock:
            record.numbers.setdefault(key, set()).add(properties["SequenceNumber"])
            if key in record.completed:
                record.came_back.append(key)
        done, _ = connection.request("DELETE", urlsplit(headers["location"]).path)
        if done == 200:
            with record.lock:
                record.completed.add(key)


def kill(running: Running, what: tuple[str, ...]) -> int:
    """Kill parts of a running broker at the same instant; how many were there to be killed."""
    found = 0
    for name in what:
        try:
            os.kill(running.child(name), signal.SIGKILL)
            found += 1
        except (AssertionError, ProcessLookupError, FileNotFoundError):
            # It was killed a moment ago, and is not back yet.
            continue
    return found


def kill_under_load(folder: Path, kills: int, seed: int) -> Record:
    chance = random.Random(seed)
    (folder / "entities.json").write_text(json.dumps(ENTITIES))
    record, done_sending, done_receiving = Record(), threading.Event(), threading.Event()
    with service(folder, "kills") as running:
        client = Client(running.ready(), folder / "data")
        senders = [
            threading.Thread(target=send, args=(client, record, name, done_sending, random.Random(seed * 100 + name)))
            for name in range(SENDERS)
        ]
        receivers = [
            threading.Thread(target=receive, args=(client, record, queue, done_receiving))
            for queue in ("direct", "target")
            for _ in range(RECEIVERS)
        ]
        try:
            for thread in senders + receivers:
                thread.start()
            killed = 0
            while killed < kills:
                time.sleep(chance.uniform(0.2, 6.0))
                killed += kill(running, chance.choice([("gateway",), ("pipeline",), ("gateway", "pipeline")]))
            time.sleep(2.0)
            done_sending.set()
            for thread in senders:
                thread.join()
            deadline = time.monotonic() + DRAIN_SECONDS
            # A completion whose answer was lost stands: delivered is what was received once.
            while record.accepted - record.numbers.keys() and time.monotonic() < deadline:
                time.sleep(0.2)
            # What was completed would come back within its lock, if it did.
            time.sleep(6.0)
        finally:
            done_sending.set()
            done_receiving.set()
            for thread in senders + receivers:
                if thread.is_alive():
                    thread.join()
    return record


def check(record: Record) -> None:
    assert not record.accepted - record.numbers.keys(), "accepted, but never delivered"
    assert not record.came_back, "came back after its completion was answered"
    assert not {key: numbers for key, numbers in record.numbers.items() if len(numbers) > 1}, (
        "two copies of one message"
    )
    assert len(record.accepted) > 10


def test_parts_killed_under_load(tmp_path: Path) -> None:
    check(kill_under_load(tmp_path, kills=3, seed=random.randrange(10**6)))


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(5))
def test_parts_killed_a_hundred_times_under_load(tmp_path: Path, seed: int) -> None:
    """Twenty times in each of five histories."""
    record = kill_under_load(tmp_path, kills=20, seed=seed)
    print(f"accepted {len(record.accepted)}, completed {len(record.completed)}, sends {record.attempts}")
    check(record)
