"""Transactions while the gateway is killed: between declare, operations, discharge and its answer. Never half of one.

`make test` kills twice under `oncebus serve`, whose supervisor starts the gateway again. The long run starts it
itself, at once, beside a pipeline that stays.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from oncebus.model.access import KeyFile

from .clients import Client, Running, all_end, everything_below
from .moving import LOG, POINTS, Mover
from .programs import until
from .services import service

PATIENCE = 90.0
MESSAGES = 12
MOVERS = 3
QUEUES = ("a", "b")
MOMENTS = [0.0, 0.0, 0.001, 0.003, 0.01]
"""How long the mover waits while the gateway is being killed, in seconds: then it goes on, if it still can."""
ENTITIES = [
    *({"type": "queue", "name": name, "lockDuration": "PT5S", "maxDeliveryCount": 1000} for name in QUEUES),
    {"type": "queue", "name": LOG, "requiresDuplicateDetection": True},
]
_PORT = re.compile(r"Endpoint=sb://localhost:(\d+);")
_URL = re.compile(r"^Oncebus accepts messages: (\S+)", re.MULTILINE)
_STARTER = """
import os, subprocess, sys, time
test = os.getppid()
started = subprocess.Popen([*sys.argv[1:], "--parent", str(os.getpid())])
while started.poll() is None and os.getppid() == test:
    time.sleep(0.1)
"""


class Broker:
    """A broker over a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kills = 0

    @property
    def running(self) -> Running:
        """The command that says where the broker is."""
        raise NotImplementedError

    @property
    def port(self) -> int:
        raise NotImplementedError

    @property
    def rule(self) -> tuple[str, str]:
        root = KeyFile(self.folder / "data" / "keys.json").rules()[0]
        return root.name, root.primary_key

    @property
    def client(self) -> Client:
        found = _URL.search(self.running.out.read_text())
        assert found is not None, self.running.out.read_text()
        return Client(found[1], self.folder / "data")

    def kill(self) -> None:
        """Kill the gateway, and wait for the next one."""
        self.kills += 1
        self.kill_gateway()
        until(self._answers, "the next gateway answers", limit=PATIENCE)

    def kill_gateway(self) -> None:
        raise NotImplementedError

    def _answers(self) -> bool:
        try:
            return self.client.exchange("GET", "/health/live", signed=False)[0] == 200
        except (OSError, AssertionError):
            return False


class Served(Broker):
    """`oncebus serve`."""

    def __init__(self, folder: Path, running: Running) -> None:
        super().__init__(folder)
        self._running = running

    @property
    def running(self) -> Running:
        return self._running

    @property
    def port(self) -> int:
        found = _PORT.search(self._running.out.read_text())
        assert found is not None, self._running.out.read_text()
        return int(found[1])

    def kill_gateway(self) -> None:
        killed = self._running.child("gateway")
        os.kill(killed, signal.SIGKILL)

        def is_another() -> bool:
            try:
                return self._running.child("gateway") != killed
            except AssertionError:
                return False

        until(is_another, "another gateway", limit=PATIENCE)


class Apart(Broker):
    """`oncebus gateway` beside `oncebus pipeline`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "entities.json").write_text(json.dumps(ENTITIES))
        self._starts = 0
        # The gateway does not say which port it has chosen, so it is given one that was free just now.
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port: int = free.getsockname()[1]
        self.start()

    @property
    def running(self) -> Running:
        return self._running

    @property
    def port(self) -> int:
        return self._port

    def start(self) -> None:
        self._starts += 1
        data, entities = self.folder / "data", self.folder / "entities.json"
        words: list[str | Path] = ["gateway", "--data", data, "--http-port", "0"]
        words += ["--amqp-port", str(self._port)]
        words += ["--entities", entities, "--shards", "2"]
        self._running = Running(self.folder, f"gateway-{self._starts}", words)

    def kill_gateway(self) -> None:
        self._running.process.kill()
        self._running.process.wait()
        self.start()


@contextmanager
def served(folder: Path) -> Iterator[Broker]:
    with service(folder, "serve", ENTITIES) as running:
        running.ready()
        yield Served(folder, running)


@contextmanager
def apart(folder: Path) -> Iterator[Broker]:
    with ExitStack() as stack:
        broker = Apart(folder)
        stack.callback(lambda: broker.running.clean_up())
        words: list[str | Path] = ["pipeline", "--data", folder / "data", "--master", "local[1]", "--shards", "2"]
        pipeline = Running(folder, "pipeline", words, within=[sys.executable, "-c", _STARTER])

        def end() -> None:
            below = everything_below(pipeline.process.pid)
            pipeline.clean_up()
            all_end(below, "the pipeline ends")

        stack.callback(end)
        broker.running.ready()
        yield broker


class Killer:
    """Kills the gateway when a mover comes to a point for the last of some times, which then waits a moment."""

    def __init__(self, broker: Broker, point: str, times: int, moment: float) -> None:
        self._broker, self._point, self._times, self._moment = broker, point, times, moment
        self.task: asyncio.Task[None] | None = None

    async def __call__(self, where: str) -> None:
        if where == self._point and self.task is None:
            self._times -= 1
            if self._times < 0:
                self.task = asyncio.create_task(asyncio.to_thread(self._broker.kill))
                await asyncio.sleep(self._moment)


async def move_during_kills(broker: Broker, kills: int, seed: int) -> list[Mover]:
    """Let movers work while the gateway is killed, each time at another point of a transaction of the first one."""
    chance = random.Random(seed)
    movers = [Mover(broker, f"{seed}-{number}", QUEUES) for number in range(MOVERS)]
    is_over = asyncio.Event()

    async def nothing(_: str) -> None:
        return

    async def others(mover: Mover) -> None:
        while not is_over.is_set():
            await mover.move(10, nothing)

    background = [asyncio.create_task(others(mover)) for mover in movers[1:]]
    for number in range(kills):
        killer = Killer(broker, POINTS[number % len(POINTS)], chance.randrange(3), chance.choice(MOMENTS))
        while killer.task is None:
            await movers[0].move(10, killer)
        await killer.task
    is_over.set()
    await asyncio.gather(*background)
    return movers


@pytest.mark.parametrize(
    ("house", "kills", "seed"),
    [
        pytest.param(served, 2, 0, id="served"),
        pytest.param(served, len(POINTS), 0, id="served, at each point", marks=pytest.mark.release),
        *(pytest.param(apart, 25, seed, id=f"25-kills-{seed}", marks=pytest.mark.torture) for seed in range(1, 5)),
    ],
)
def test_a_killed_gateway_leaves_no_half_transaction(tmp_path: Path, house: object, kills: int, seed: int) -> None:
    assert callable(house)
    with house(tmp_path) as broker:
        names = {f"m{number}" for number in range(MESSAGES)}
        assert broker.client.send_batch("a", [(f"{name}:0", {"MessageId": name}) for name in sorted(names)]) == 201
        movers = asyncio.run(move_during_kills(broker, kills, seed))
        found: list[str] = []

        def all_there() -> bool:
            # Those whose receiver was killed come back when their lock ends.
            for queue in QUEUES:
                found.extend(body for _, body in broker.client.receive_all(queue))
            return len(found) >= len(names)

        until(all_there, "all messages are back", limit=PATIENCE)
        log: list[str] = []

        def all_logged() -> bool:
            log.extend(body for _, body in broker.client.receive_all(LOG))
            return len(log) >= sum(int(each.partition(":")[2]) for each in found)

        until(all_logged, f"as many names as hops, {found}", limit=PATIENCE)
        all_there()
        all_logged()
        outcomes = {name: outcome for mover in movers for name, outcome in mover.outcomes.items()}
        unknown = [name for name, outcome in outcomes.items() if outcome is None]
        print(
            f"{broker.kills} kills, {len(outcomes)} transactions: "
            f"{sum(outcome is True for outcome in outcomes.values())} committed, "
            f"{sum(outcome is False for outcome in outcomes.values())} rolled back, {len(unknown)} without an answer, "
            f"{len([name for name in unknown if name in log])} of these committed"
        )
        # Each message is in one queue, once.
        assert sorted(each.partition(":")[0] for each in found) == sorted(names)
        # All of a transaction happened, or nothing.
        assert len(log) == len(set(log)) == sum(int(each.partition(":")[2]) for each in found)
        committed = {name for name, outcome in outcomes.items() if outcome}
        assert committed <= set(log) <= committed | set(unknown)
        assert broker.kills == kills
