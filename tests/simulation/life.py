"""One life: a broker that is used, crashes and comes back several times, until everything is received and checked.

Everything that happens comes from the seed: a second run of the same seed gives the same history to the byte.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import sqlite3
import sys
import tempfile
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from oncebus.broker.addresses import Address
from oncebus.broker.broker import Broker
from oncebus.broker.clock import Clock
from oncebus.engine.engine import Engine
from oncebus.engine.folders import Folders
from oncebus.engine.store import Duplicate, Stage
from oncebus.protocols.http.times import iso8601
from oncebus.values import watching
from tests.history import operations
from tests.history.checker import Violation, check
from tests.history.entities import DEAD_LETTERS, PLACES, SESSION, SESSIONS, SINKS
from tests.history.history import History, Recorder, read
from tests.history.operations import COMPLETE
from tests.simulation.clients import Client, Clocks
from tests.simulation.disk import Disk, PowerCut
from tests.simulation.loop import Loop, SimulatedThreads
from tests.simulation.namespace import create_all
from tests.simulation.pipeline import SHARDS, run_pipeline

BEGAN = 1_790_000_000_000_000
_DRAIN_ROUNDS = 400
_STATES = ("active", "scheduled", "deferred", "dead_letter", "transfer", "transfer_dead_letter")
_COUNTERS = ("new", "duplicates", "completed", "dead_lettered", "unrouted", "quarantined", "discarded")


@dataclass
class Lived:
    """The result of a life: its history, the violations, and the faults that it had."""

    seed: int
    steps: int
    crashes: int
    lines: list[str]
    history: History
    violations: list[Violation]
    faults: Counter[str]
    failure: Exception | None = None


class Life:
    """A life, in a folder of its own. `steps` limits the steps of all clients, `crashes` the crashes."""

    def __init__(self, folder: Path, seed: int, *, steps: int = 400, crashes: int = 12) -> None:
        self._seed = seed
        self._most_steps, self._most_crashes = steps, crashes
        self._chance = Random(f"{seed} world")
        self._now = 1000.0
        self._skew = 0
        self._loop: Loop | None = None
        self._data = folder / "data"
        self._data.mkdir(parents=True)
        self._disk = Disk(self._data, Random(f"{seed} disk"), self._before_disk)
        self._until_cut = 0
        self._failing = _Failing()
        self._connections: list[sqlite3.Connection] = []
        self._lines: list[str] = []
        self._recorder = Recorder(self._write, seed, "", passed=self._passed, wall=self._wall)
        self._clients = [
            Client(
                name, self._recorder, operations.plan(seed, name), Random(f"{seed} {name} calls"), Clocks(self._wall)
            )
            for name in operations.CLIENTS
        ]
        self.faults: Counter[str] = Counter()
        self.crashes = 0

    def _write(self, line: str) -> None:
        # Errors name files, but each life has a folder of its own.
        self._lines.append(line.replace(os.fspath(self._data), ""))

    # Time

    def _passed(self) -> int:
        return round((self._now if self._loop is None else self._loop.time()) * 1e6)

    def _wall(self) -> int:
        return BEGAN + self._passed()

    # A whole life

    def live(self) -> Lived:
        """Live to the end, and check the history. A broker that does not start, or stops by itself, is a violation."""
        failure: Exception | None = None
        with self._alone():
            try:
                while not self._boot(may_crash=self.crashes < self._most_crashes):
                    self.crashes += 1
            except Exception as error:
                failure = error
        history = read(self._lines)
        done = sum(client.done for client in self._clients)
        if failure is None:
            violations = check(history)
        else:
            violations = [Violation("failed", f"{type(failure).__name__}: {failure}")]
        return Lived(self._seed, done, self.crashes, self._lines, history, violations, self.faults, failure)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Replace everything that is not determined: time, random ids, the disk."""
        ids = Random(f"{self._seed} ids")

        def connect(*args: Any, **more: Any) -> sqlite3.Connection:
            made: sqlite3.Connection = _CONNECT(*args, **more)
            self._connections.append(made)
            return made

        with ExitStack() as stack:
            enter = stack.enter_context
            enter(self._disk.watching())
            for name, clock in {
                "monotonic": lambda: self._passed() / 1e6,
                "monotonic_ns": lambda: self._passed() * 1000,
                "time": lambda: (self._wall() + self._skew) / 1e6,
                "time_ns": lambda: (self._wall() + self._skew) * 1000,
            }.items():
                enter(mock.patch.object(time, name, clock))
            enter(mock.patch.object(uuid, "uuid4", partial(_draw_id, ids)))
            enter(mock.patch.object(sqlite3, "connect", connect))
            # No notices of the kernel: everybody looks for files by itself.
            enter(mock.patch.object(watching, "this_kernel", return_value=""))
            # A crash leaves coroutines that nobody awaits.
            enter(warnings.catch_warnings())
            warnings.simplefilter("ignore", RuntimeWarning)
            # What a dead process still does has no effect, and fails.
            enter(mock.patch.object(sys, "unraisablehook", _ignore))
            logging.disable(logging.CRITICAL)
            stack.callback(logging.disable, logging.NOTSET)
            gc.disable()
            stack.callback(gc.enable)
            yield

    def _boot(self, *, may_crash: bool) -> bool:
        """Start the broker, and let the clients work until a crash or the end. Return whether it is the end."""
        loop = self._loop = Loop(Random(self._chance.random()), self._now)
        # Some crashes come at the start, some in the middle of the recovery.
        soon = self._chance.random() < 0.25
        self._until_cut = self._chance.randint(1, 30 if soon else 160) if may_crash else 0
        self._failing = _Failing.draw(self._chance) if may_crash else _Failing()
        self._skew = 0
        self._has_started = False
        asyncio.set_event_loop(loop)
        loop.set_exception_handler(lambda *_: None)
        main = loop.create_task(self._run())
        main.add_done_callback(lambda _: loop.stop())
        loop.run_forever()
        cut: BaseException | None = loop.failure
        if cut is None and (error := main.exception()) is not None:
            if self._has_started or not self._failing.has_failed:
                raise error
            # A broker does not start on a disk that fails. It says so, and the operator starts it again.
            cut = error
        elif cut is not None and not isinstance(cut, PowerCut):
            raise cut
        self._now = loop.time()
        self._close(loop)
        if cut is None:
            return True
        self._lose_something()
        return False

    def _close(self, loop: Loop) -> None:
        """End a process: nothing of it does anything any more."""
        self._disk.turn_off()
        for task in sorted(asyncio.all_tasks(loop), key=lambda each: each.get_name()):
            with suppress(BaseException):
                task.get_coro().close()
        loop.end_threads()
        while self._connections:
            self._connections.pop().close()
        asyncio.set_event_loop(None)
        self._loop = None
        loop.abandon()
        del loop
        gc.collect()
        _close_descriptors(self._data)

    def _lose_something(self) -> None:
        if self._chance.random() < 0.6:
            self.faults["power cut"] += 1
            self._disk.cut()
        else:
            self.faults["kill"] += 1
            self._disk.keep()

    def _before_disk(self, what: str) -> None:
        assert self._loop is not None
        self._loop.pause()
        if self._until_cut:
            self._until_cut -= 1
            if not self._until_cut:
                self._disk.turn_off()
                self._loop.fail(PowerCut())
                return
        if (error := self._failing.step(what)) is not None:
            self.faults[str(error.strerror)] += 1
            raise error

    # Inside of the loop

    async def _run(self) -> None:
        folders = Folders(self._data)
        clock = Clock(wall=lambda: self._wall() + self._skew, passed=self._passed)
        threads = SimulatedThreads()
        engine = await threads.run(lambda: Engine.files(folders, SHARDS))
        broker = await Broker.open(engine, clock=clock, threads=threads, read_your_sends=30.0)
        broker.start()
        if broker.catalogue.find("collected") is None or broker.catalogue.find("by-body") is None:
            await broker.change(create_all)
        self._has_started = True
        pipeline = asyncio.create_task(run_pipeline(folders, threads, Random(self._chance.random())), name="pipeline")
        clients = asyncio.gather(
            *(asyncio.create_task(client.run(broker, self._may_go_on), name=client.name) for client in self._clients)
        )
        faults = asyncio.create_task(self._set_clocks(), name="faults")
        # The pipeline ends only if it fails.
        either: list[asyncio.Future[Any]] = [pipeline, clients]
        done, _ = await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
        faults.cancel()
        self._until_cut, self._skew, self._failing = 0, 0, _Failing()
        await self._drain(broker)
        await self._look(broker)
        pipeline.cancel()
        await asyncio.gather(pipeline, return_exceptions=True)
        await broker.close()

    async def _set_clocks(self) -> None:
        """Set the machine's clock wrong now and then, and right again."""
        chance = Random(self._chance.random())
        while True:
            await asyncio.sleep(chance.uniform(0.2, 4.0))
            kind = chance.choice(("clock back", "clock back", "clock ahead", "clock leaps"))
            size, seconds = chance.random(), chance.uniform(0.1, 2.0)
            with self._recorder.operation("faults", "fault", fault=kind, seconds=seconds, size=size):
                self.faults[kind] += 1
                self._skew = round(_SKEWS[kind](size) * 1e6)
                try:
                    await asyncio.sleep(seconds)
                finally:
                    self._skew = 0

    def _may_go_on(self) -> bool:
        return sum(client.done for client in self._clients) < self._most_steps

    async def _drain(self, broker: Broker) -> None:
        """Receive and complete until nothing is left."""
        client = Client("drain", self._recorder, iter(()), _Certain(), Clocks(self._wall))
        await client.run(broker, lambda: False)
        for _ in range(_DRAIN_ROUNDS):
            held = await self._held(broker)
            if not held:
                # Messages that fall due or are forwarded may be on their way through the pipeline.
                await asyncio.sleep(1.0)
                held = await self._held(broker)
            if not held:
                return
            for place in PLACES:
                states = held.get(place, {})
                if states.get("active") or states.get("transfer"):
                    for session in SESSIONS if place == SESSION else (None,):
                        await client.receive(place, session, (COMPLETE,) * 50, wait=0.0)
                if states.get("dead_letter"):
                    await client.receive(place + DEAD_LETTERS, None, (COMPLETE,) * 50, wait=0.0)
                if states.get("deferred"):
                    for each in await broker.peek(Address(place), 0, 100):
                        if each.message.stage == Stage.DEFERRED:
                            await client.receive_by_number(place, each.message.session, each.message.sequence)
            await asyncio.sleep(0.2)

    async def _held(self, broker: Broker) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for entity in broker.catalogue.entities.values():
            counts = await broker.counts(entity.path)
            kept = {state: getattr(counts, state) for state in _STATES if getattr(counts, state)}
            if kept:
                found[entity.path] = kept
        return found

    async def _look(self, broker: Broker) -> None:
        with self._recorder.operation("drain", "end") as answer:
            metrics: dict[str, dict[str, int]] = {}
            for entity in broker.catalogue.entities.values():
                counts = await broker.counts(entity.path)
                metrics[entity.path] = {name: getattr(counts, name) for name in _COUNTERS}
            answer.result["metrics"] = metrics
            answer.result["held"] = await self._held(broker)
            detecting = [sink.name for sink in SINKS.values() if sink.detects] + ["target"]
            answer.result["drops"] = {name: [_drop(each) for each in await _drops(broker, name)] for name in detecting}


_SKEWS: dict[str, Callable[[float], float]] = {
    "clock back": lambda size: -1 - 60 * size,
    "clock ahead": lambda size: 1 + 30 * size,
    "clock leaps": lambda size: 700 + 1000 * size,
}


@dataclass
class _Failing:
    """A disk that fails for a while: it is full, or it has errors. `after` and `during` count operations."""

    code: int = 0
    after: int = 0
    during: int = 0
    has_failed: bool = False

    @classmethod
    def draw(cls, chance: Random) -> _Failing:
        """Draw how the disk fails: mostly not at all."""
        draw, after = chance.random(), chance.randint(10, 120)
        if draw < 0.1:
            return cls(errno.ENOSPC, after, chance.randint(1, 40))
        return cls(errno.EIO, after, chance.randint(1, 3)) if draw < 0.2 else cls()

    def step(self, what: str) -> OSError | None:
        """Return the error of the next operation, if it fails. Names can be deleted on a full disk."""
        if not self.during or what == "delete":
            return None
        if self.after:
            self.after -= 1
            return None
        self.during -= 1
        self.has_failed = True
        return OSError(self.code, os.strerror(self.code))


class _Certain(Random):
    """Draws no lost answers and no vanishing clients."""

    def random(self) -> float:
        return 0.5


def _ignore(_: object) -> None:
    """Do nothing with an error that nobody can raise."""


def _draw_id(ids: Random) -> uuid.UUID:
    return uuid.UUID(int=ids.getrandbits(128), version=4)


async def _drops(broker: Broker, name: str) -> list[Duplicate]:
    found: list[Duplicate] = []
    while page := await broker.duplicates(name, limit=1000, after=found[-1].number if found else 0):
        found += page
    return found


def _drop(drop: Duplicate) -> dict[str, Any]:
    assert drop.original_time is not None
    return {
        "messageId": drop.message_id,
        "sequenceNumber": drop.sequence,
        "time": iso8601(drop.time),
        "original": {"sequenceNumber": drop.original_sequence, "time": iso8601(drop.original_time)},
    }


def _close_descriptors(folder: Path) -> None:
    """Close the files of a process that died. Their locks are free then."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith(os.fspath(folder)):
                os.close(int(name))


_CONNECT = sqlite3.connect


def live(seed: int, *, steps: int, crashes: int) -> Lived:
    """Live the life of a seed, in a folder in memory if there is one."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        return Life(Path(folder), seed, steps=steps, crashes=crashes).live()


def shorten(lived: Lived) -> Lived:
    """Return the shortest life of the same seed that still breaks a rule: fewer steps of the clients, fewer crashes."""
    found = lived
    for _ in range(12):
        steps, crashes = found.steps, found.crashes
        tries = [
            (steps // 2, crashes),
            (steps * 3 // 4, crashes),
            (steps - 1, crashes),
            (steps, crashes // 2),
            (steps, crashes - 1),
        ]
        for some_steps, some_crashes in tries:
            if some_steps < 1 or some_crashes < 0:
                continue
            again = live(lived.seed, steps=some_steps, crashes=some_crashes)
            if again.violations and (again.steps, again.crashes) < (steps, crashes):
                found = again
                break
        else:
            return found
    return found
