"""Tests `oncebus serve` with Spark, as a person runs it. A start takes many seconds, so all tests share two of them."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from . import load
from .clients import Client, Running, everything_below, kill_everything
from .disk import SmallDisk, small_disk
from .programs import is_alive, until
from .services import PATIENCE, everything_in, opened, service

DETECTS = {"type": "queue", "requiresDuplicateDetection": True}
ENTITIES = [*load.ENTITIES, {**DETECTS, "name": "orders"}, {**DETECTS, "name": "waiting"}]
WAITING = [f"w{number}" for number in range(3000)]
HALF = len(WAITING) // 2
FAILED = "The pipeline failed: "
FULL_SECONDS = 5.0
"""How long the disk stays full if Spark does not fail."""
NO_ROOM = "The server is busy: there is no room on its disk. Please retry the operation later."


@dataclass
class Served:
    """A running broker with its data folder, on a small disk if the machine allows to mount one."""

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


@dataclass
class History:
    """The record of the load on the first broker, its log, and the second broker over the same data."""

    second: Served
    record: load.Record
    log_of_first: str


@pytest.fixture(scope="module")
def history(first: Served, tmp_path_factory: pytest.TempPathFactory, seed: int) -> Iterator[History]:
    """Under load, fill the disk for a while, kill each part, then everything, and let a standby take over."""
    running, client = first.running, first.client
    loading = load.Load(client, seed)
    with ExitStack() as stack:
        with loading.under_way() as record:
            until(lambda: len(record.completed) > 20, "messages flow", limit=PATIENCE)
            if first.disk is not None:
                fill_for_a_while(first.disk, running, record)
            record.kills += load.kill_parts(running, ["gateway"])
            before = len(record.completed)
            until(lambda: len(record.completed) > before + 20, "messages flow again", limit=PATIENCE)
            send_all(client, WAITING[:HALF])
            record.kills += load.kill_parts(running, ["pipeline"])
            until(lambda: waiting(client) == HALF, "half of them are in the store", limit=PATIENCE)
            send_all(client, WAITING[HALF:])
            folder = tmp_path_factory.mktemp("service")
            again = service(folder, "second", ENTITIES, disk=first.disk, options=["--standby"])
            second = stack.enter_context(again)
            until(lambda: "Oncebus is a standby: another broker uses data folder" in second.out.read_text(), "it waits")
            kill_everything(running)
            loading.client = Client(second.ready(), first.data)
        print(record)
        yield History(Served(second, loading.client, first.data, first.disk), record, running.err.read_text())


def fill_for_a_while(disk: SmallDisk, running: Running, record: load.Record) -> None:
    disk.fill()
    until(lambda: record.refusals, "sends are refused")
    # Spark fails only if it has something to write. It may have written everything before the disk was full.
    end = time.monotonic() + FULL_SECONDS
    while FAILED not in running.err.read_text() and time.monotonic() < end:
        time.sleep(0.1)
    disk.make_room()
    accepted = len(record.accepted)
    until(lambda: len(record.accepted) > accepted, "sends are accepted again")


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
    # A read waits at most two seconds for earlier sends, which may be too short on a busy machine.
    until(lambda: [drop["messageId"] for drop in client.drops("orders")] == ["a"], "the drop", PATIENCE)


def test_on_a_full_disk_sends_are_refused_and_work_continues_when_there_is_room(
    first: Served, history: History
) -> None:
    assert first.disk is not None, first.why_no_disk
    assert history.record.refusals == {(503, f"<Error><Code>503</Code><Detail>{NO_ROOM}</Detail></Error>")}
    assert not history.record.lost | history.record.doubled
    assert "Traceback" not in history.log_of_first


def test_messages_accepted_while_parts_are_killed_arrive_once_and_stay_completed(history: History) -> None:
    """The load forwards, schedules and routes some of them."""
    history.record.check()
    assert history.record.kills == 2
    # Spark's own output goes only to spark.log.
    assert "WARN" not in history.log_of_first
    assert (history.second.data / "spark.log").stat().st_size > 0


def test_after_a_takeover_thousands_of_waiting_messages_and_all_ids_are_still_there(history: History) -> None:
    client = history.second.client
    assert client.health() == 200
    send_all(client, WAITING)
    assert client.send("orders", "a", "3") == 201
    until(lambda: [drop["messageId"] for drop in client.drops("orders")] == ["a", "a"], "both drops", PATIENCE)
    until(lambda: client.metric("messages_duplicates_total", entity="waiting") == len(WAITING), "all drops", PATIENCE)
    assert waiting(client) == len(WAITING)
    assert client.drops("waiting")


def test_a_stop_leaves_no_process_behind_and_all_messages_in_order(history: History, tmp_path: Path) -> None:
    running = history.second.running
    below = everything_below(running.process.pid)
    assert len(below) > 3
    assert running.stop() == 0
    until(lambda: not any(map(is_alive, below)), "nothing runs")
    # Copied, because SQLite cannot open the database through the path into the mount namespace.
    shutil.copytree(history.second.data, tmp_path / "data")

    async def look() -> None:
        async with opened(tmp_path / "data") as broker:
            assert await everything_in(broker, "waiting") == WAITING
            await load.check_order(broker, history.record.sessions)

    asyncio.run(look())
