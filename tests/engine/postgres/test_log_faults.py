"""Many writers, of which some are killed, paused or cut off: the order has no gaps, and nothing answered is missing."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from oncebus.engine.postgres.log_reader import PostgresReader
from oncebus.engine.postgres.schema import check_schema
from oncebus.model.messages import PARTITION_SHIFT
from oncebus.postgres import Link
from tests.postgres_server import PostgresServer


class Writers:
    """Processes that append, and what they were answered."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._made = 0
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, times: int = 0) -> None:
        self._made += 1
        name = f"w{self._made}"
        with (self._folder / name).open("wb") as output:
            command = [sys.executable, "-m", "tests.engine.postgres.appending", self._url, name, str(times)]
            self.running.append(subprocess.Popen(command, stdout=output, cwd=Path(__file__).parents[3]))

    def kill(self, writer: subprocess.Popen[bytes]) -> None:
        writer.kill()
        writer.wait()
        self.running.remove(writer)

    def answers(self) -> tuple[dict[str, tuple[int, ...]], set[str]]:
        """Return what was accepted, and what was certainly refused."""
        accepted: dict[str, tuple[int, ...]] = {}
        refused: set[str] = set()
        for path in self._folder.iterdir():
            for line in path.read_bytes().split(b"\n")[:-1]:
                kind, *words = line.decode().split()
                if kind == "accepted":
                    accepted[words[0]] = tuple(map(int, words[1:]))
                else:
                    ids = [word for word in words if word.startswith("w")]
                    if words[len(ids)] == "0":
                        refused.update(ids)
        return accepted, refused


class Follower(threading.Thread):
    """Reads the log as it grows. A commit must never become visible before the one below it."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self.end = threading.Event()
        self.rows: list[dict[str, Any]] = []
        self.seen = 0
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while not self.end.is_set():
                self.read()
            self.read()
        except Exception as error:
            self.error = error

    def read(self) -> None:
        with closing(PostgresReader(self._url)) as reader:
            reader.wait(self.seen, 0.2)
            last = reader.durable()
            # `read` raises if one is missing.
            found = [row._asdict() for row in reader.read(self.seen + 1, last)]
        self.rows += found
        self.seen = last


@pytest.mark.parametrize("faults", [6, pytest.param(60, marks=pytest.mark.torture)])
def test_the_order_survives_every_fault(postgres: PostgresServer, tmp_path: Path, seed: int, faults: int) -> None:
    url = postgres.make_schema()
    with closing(Link(url)) as link:
        check_schema(link, 0)
    chance = random.Random(seed)
    writers, follower = Writers(url, tmp_path), Follower(url)
    try:
        for _ in range(4):
            writers.start()
        with closing(PostgresReader(url)) as reader:
            reader.wait(20, 120)
            for fault in range(faults):
                before = reader.durable()
                match fault % 3:
                    case 0:
                        writers.kill(chance.choice(writers.running))
                        writers.start()
                    case 1:
                        paused = chance.choice(writers.running)
                        paused.send_signal(signal.SIGSTOP)
                        # The others go on meanwhile.
                        reader.wait(reader.durable() + 10, 60)
                        paused.send_signal(signal.SIGCONT)
                    case 2:
                        postgres.run(
                            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%append_rows%' "
                            "AND pid <> pg_backend_pid()"
                        )
                reader.wait(before + 30, 60)
                assert reader.durable() > before + 9
                if fault == 0:
                    follower.start()
    finally:
        for writer in list(writers.running):
            writers.kill(writer)
    follower.end.set()
    follower.join()
    assert follower.error is None
    check(follower.rows, *writers.answers())


def check(rows: list[dict[str, Any]], accepted: dict[str, tuple[int, ...]], refused: set[str]) -> None:
    ids = [row["message_id"] for row in rows]
    assert len(set(ids)) == len(ids)
    by_id = {row["message_id"]: row for row in rows}
    assert accepted.keys() <= by_id.keys()
    assert not refused & by_id.keys()
    assert len(accepted) > 50
    for identity, answer in accepted.items():
        row = by_id[identity]
        assert answer == (row["commit"], row["entity"], row["sequence"], row["time"])
    rows = sorted(rows, key=lambda row: int(row["position"]))
    assert [row["position"] for row in rows] == list(range(len(rows)))
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)
    assert [row["commit"] for row in rows] == sorted(row["commit"] for row in rows)
    assert {row["commit"] for row in rows} == set(range(1, rows[-1]["commit"] + 1))
    numbers = defaultdict(list)
    for row in rows:
        numbers[row["entity"], row["sequence"] >> PARTITION_SHIFT].append(row["sequence"])
    for (_, part), found in numbers.items():
        assert found == [(part << PARTITION_SHIFT) + each for each in range(1, len(found) + 1)]
