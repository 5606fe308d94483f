"""`oncebus serve` as a person runs it, Spark and all. A start takes many seconds, so two of them tell everything."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from . import load
from .clients import Client, Running, all_end, everything_below
from .disk import SmallDisk, small_disk
from .programs import is_alive, until
from .services import PATIENCE, everything_in, opened, service

DETECTS = {"type": "queue", "requiresDuplicateDetection": True}
ENTITIES = [*load.ENTITIES, {**DETECTS, "name": "orders"}, {**DETECTS, "name": "waiting"}]
WAITING = [f"w{number}" for number in range(3000)]
FAILED = "The pipeline failed: "
NO_ROOM = "The server is busy: there is no room on its disk. Please retry the operation later."


@dataclass
class Served:
    """A broker that runs, and what it runs over: a small disk, where such a one can be had."""

    running: Running
    client: Client
    data: Path
    disk: SmallDisk | None
    why_no_disk: str = ""


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("service")
    with ExitStack() as stack:
        disk, why_not = None, ""
        try:
            disk = stack.enter_context(small_disk(folder / "disk"))
        except AssertionError as error:
            why_not = str(error)
        data = (disk.seen if disk is not None else folder) / "data"
        running = stack.enter_context(service(folder, "first", ENTITIES, disk=disk))
        yield Served(running, Client(running.ready(), data), data, disk, why_not)


@pytest.fixture(scope="module")
def second(first: Served, battered: load.Record, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The same broker after its supervisor was killed, with messages in the store and others that are not yet there."""
    half = len(WAITING) // 2
    send_all(first.client, WAITING[:half])
    until(lambda: waiting(first.client) == half, "half of them are in the store", limit=PATIENCE)
    running = first.running
    gateway, pipeline, below = (
        running.child("gateway"),
        running.child("pipeline"),
        everything_below(running.process.pid),
    )
    os.killpg(pipeline, signal.SIGSTOP)
    send_all(first.client, WAITING[half:])
    running.process.kill()
    running.process.wait()
    until(lambda: not is_alive(gateway), "the gateway ends when the supervisor is killed")
    os.killpg(pipeline, signal.SIGCONT)
    all_end(below, "all end when the supervisor is killed")
    with service(tmp_path_factory.mktemp("service"), "second", ENTITIES, disk=first.disk) as running:
        yield Served(running, Client(running.ready(), first.data), first.data, first.disk, first.why_no_disk)


def send_all(client: Client, names: list[str], at_once: int = 500) -> None:
    for start in range(0, len(names), at_once):
        batch: list[tuple[str, dict[str, object]]] = [("x", {"MessageId": name}) for name in names[start:][:at_once]]
        assert client.send_batch("waiting", batch) == 201


def waiting(client: Client) -> int:
    return client.metric("messages", entity="waiting", state="active")


def test_a_message_sent_twice_is_delivered_once_and_the_drop_is_shown(first: Served) -> None:
    client = first.client
    assert client.health() == 200
    assert "SharedAccessKeyName=RootManageSharedAccessKey;" in first.running.out.read_text().splitlines()[0]
    assert (client.send("orders", "a", "1"), client.send("orders", "a", "2")) == (201, 201)
    assert client.receive("orders", PATIENCE) == ("a", "1")
    assert [drop["messageId"] for drop in client.drops("orders")] == ["a"]


@pytest.fixture(scope="module")
def battered(first: Served) -> load.Record:
    """What became of messages that were under way while the disk was full, and while parts of the broker were killed."""
    chance, running = random.Random(), first.running
    parts = [("gateway",), ("pipeline",), ("gateway", "pipeline")]
    chance.shuffle(parts)
    with load.Load(first.client, chance.randrange(10**6)).under_way() as record:
        until(lambda: len(record.numbers) > 20, "messages flow", limit=PATIENCE)
        if first.disk is not None:
            first.disk.fill()
            until(lambda: record.refusals, "sends are refused")
            until(lambda: FAILED in running.err.read_text(), "Spark fails for want of room", limit=PATIENCE)
            first.disk.make_room()
            accepted = len(record.accepted)
            until(lambda: len(record.accepted) > accepted, "sends are accepted again")
        for names in parts:
            until(lambda names=names: count_kills(record, running, names), f"{names} to be killed")  # type: ignore[misc]
            time.sleep(chance.uniform(0.2, 3.0))
    print(record)
    return record


def count_kills(record: load.Record, running: Running, names: tuple[str, ...]) -> int:
    killed = load.kill_parts(running, names)
    record.kills += killed
    return killed


def test_what_is_accepted_while_parts_are_killed_arrives_once_and_stays_completed(
    first: Served, battered: load.Record
) -> None:
    """Forwarded, scheduled, routed or none of it."""
    battered.check()
    assert battered.kills >= 3
    assert first.client.metric("messages", state="active") == sum(map(len, battered.sessions.values()))
    # Nobody but the log of Spark is told what Spark has to say.
    assert "WARN" not in first.running.err.read_text()
    assert (first.data / "spark.log").stat().st_size > 0


def test_on_a_full_disk_sends_are_refused_and_all_goes_on_by_itself_when_there_is_room(
    first: Served, battered: load.Record
) -> None:
    assert first.disk is not None, first.why_no_disk
    assert battered.refusals == {(503, f"<Error><Code>503</Code><Detail>{NO_ROOM}</Detail></Error>")}
    assert not battered.lost | battered.doubled
    assert "Traceback" not in first.running.err.read_text()
    assert first.client.health() == 200


def test_killed_with_thousands_waiting_and_started_again_none_is_lost_and_all_ids_are_remembered(
    second: Served,
) -> None:
    client = second.client
    send_all(client, WAITING)
    assert client.send("orders", "a", "sent before the kill too") == 201
    assert [drop["messageId"] for drop in client.drops("orders")][-1] == "a"
    until(lambda: waiting(client) == len(WAITING), "all are there", limit=PATIENCE)
    assert client.drops("waiting")
    assert client.metric("messages_duplicates_total", entity="waiting") == len(WAITING)


def test_asked_to_stop_it_leaves_nothing_running_and_all_messages_in_their_order(
    second: Served, battered: load.Record, tmp_path: Path
) -> None:
    running = second.running
    until(lambda: second.client.health() == 200, "it is well", limit=PATIENCE)
    below = everything_below(running.process.pid)
    assert len(below) > 3
    assert running.stop() == 0
    assert not any(map(is_alive, below))
    # SQLite would look for the path that the folder has within its namespace.
    shutil.copytree(second.data, tmp_path / "data")

    async def look() -> tuple[list[str], dict[str, list[str]]]:
        async with opened(tmp_path / "data") as broker:
            sessions = {name: await everything_in(broker, "sessions", name) for name in battered.sessions}
            return await everything_in(broker, "waiting"), sessions

    waiting, sessions = asyncio.run(look())
    assert waiting == WAITING
    # The last one of a session may have been accepted by a gateway that was killed before it could say so.
    assert {name: ids[: len(battered.sessions[name])] for name, ids in sessions.items()} == battered.sessions
    assert all(len(ids) <= len(battered.sessions[name]) + 1 for name, ids in sessions.items())
