"""A life of the broker for tests: from an empty folder until the reset that needs a new one."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self

from oncebus.broker.broker import Broker
from oncebus.broker.clock import Clock, time_passed, wall_time
from oncebus.broker.coalescing import Coalescer
from oncebus.broker.core import Core
from oncebus.broker.sending import Incoming
from oncebus.engine.engine import Engine
from oncebus.engine.folders import Folders
from oncebus.model.access import KeyFile
from oncebus.model.entities import Catalogue, Namespace
from oncebus.programs.serve.addresses import Sockets
from oncebus.programs.serve.descriptors import ConnectionLimits
from oncebus.programs.serve.servers import Servers, open_servers
from oncebus.protocols.http.front import Reset
from oncebus.protocols.management.entity_file import EntityFile
from oncebus.testing.pipelines import Pipeline
from oncebus.values.settings import Settings

ALLOWED = ConnectionLimits(connections=1000, strangers=200, http=200)
"""The process of the tests keeps its own limit of open files, so it is not asked."""
PATIENCE = 30.0
"""Queries see earlier sends, on a busy machine too."""
_PAGE = 1000


class MovableClock(Clock):
    """A clock that a test moves forward. Clients make their tokens by the machine's time, so these are judged by it."""

    def __init__(self) -> None:
        self.ahead = 0
        super().__init__(wall=lambda: wall_time() + self.ahead, passed=lambda: time_passed() + self.ahead)

    def token_time(self) -> int:
        """See `Clock`."""
        return self.now() - self.ahead


class LosingBroker(Broker):
    """A broker that accepts sends and loses the answers, as often as `losing` says."""

    cut: Callable[[], None]
    """Drops all connections."""

    def __init__(self, core: Core) -> None:
        """Use `open` instead."""
        super().__init__(core)
        self.losing = 0
        self._accept, self._send, self._schedule = self.accept, self.send, self.schedule
        self.accept, self.send, self.schedule = self._accept_and_lose, self._send_and_lose, self._schedule_and_lose
        self.coalescer = Coalescer(self.accept, self.send, core.background)

    async def _send_and_lose(self, path: str, messages: Sequence[Incoming]) -> list[int]:
        numbers = await self._send(path, messages)
        self._lose()
        return numbers

    async def _schedule_and_lose(
        self, path: str, messages: Sequence[Incoming], wants_original: Collection[int] = ()
    ) -> list[int]:
        numbers = await self._schedule(path, messages, wants_original)
        self._lose()
        return numbers

    def _accept_and_lose(
        self, path: str, messages: Sequence[Incoming], callers: int, answered: Callable[[Exception | None], None]
    ) -> bool:
        def answer(error: Exception | None) -> None:
            if error is None:
                self._lose()
            answered(error)

        return self._accept(path, messages, callers, answer)

    def _lose(self) -> None:
        if self.losing:
            self.losing -= 1
            self.cut()


class Life:
    """A broker with its servers and its pipeline. Everything but `check` runs in its event loop."""

    def __init__(self, broker: LosingBroker, clock: MovableClock, servers: Servers, pipeline: Pipeline) -> None:
        """Use `live` instead."""
        self.broker = broker
        self._clock = clock
        self._servers = servers
        self._pipeline = pipeline

    @classmethod
    @asynccontextmanager
    async def live(
        cls,
        settings: Settings,
        data: Path,
        keys: KeyFile,
        listener: socket.socket,
        run_pipeline: Callable[[Settings, Broker], Pipeline],
        reset: Reset,
    ) -> AsyncIterator[Self]:
        """Run a broker over a new folder for a block. Clients connect at the socket, which stays open."""
        settings, clock = replace(settings, data=data), MovableClock()
        broker = await LosingBroker.open(
            Engine.files(Folders(data), settings.shards),
            namespace=Namespace(settings.namespace),
            read_your_sends=PATIENCE,
            clock=clock,
        )
        try:
            broker.start()
            # The server closes its socket when it stops, and the next one needs it again.
            own = listener.dup()
            async with (
                run_pipeline(settings, broker) as pipeline,
                open_servers(settings, broker, keys, Sockets(own, own, own), ALLOWED, reset=reset) as servers,
            ):
                broker.cut = servers.cut
                await pipeline.until_ready()
                yield cls(broker, clock, servers, pipeline)
        finally:
            await broker.close()

    @property
    def may_stay(self) -> bool:
        """Return whether a reset needs no new life: time was not moved, or a new pipeline takes too long to start."""
        return not self._clock.ahead or self._pipeline.starts_slowly

    def check(self) -> None:
        """Raise `BrokerFailed` if the pipeline has ended. Any thread may ask."""
        self._pipeline.check()

    async def add(self, files: Sequence[EntityFile]) -> None:
        """Create the missing entities of files."""

        def change(catalogue: Catalogue, now: int) -> Catalogue:
            for file in files:
                catalogue = file.added_to(catalogue, now)
            return catalogue

        await self.broker.change(change)

    async def advance(self, length: int) -> None:
        """Move the clock forward by microseconds, and do what is due by then."""
        self._clock.ahead += length
        await self.broker.catch_up(PATIENCE)

    async def lose_answers(self, count: int) -> None:
        """Lose the answers to the next `count` sends."""
        self.broker.losing = count

    def lose_nothing(self) -> None:
        """Answer again."""
        self.broker.losing = 0

    async def duplicates(self, path: str) -> list[str]:
        """Return the ids of all dropped duplicates of an entity."""
        found, after = [], 0
        while page := await self.broker.duplicates(path, limit=_PAGE, after=after):
            found += [each.message_id for each in page]
            after = page[-1].number
        return found
