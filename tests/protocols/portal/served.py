"""A broker without Spark and its portal at a free port, in a thread of its own, for a blocking browser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from oncebus.broker.broker import Broker
from oncebus.model.access import AuthorizationRule, connection_string
from oncebus.model.entities import Tier
from oncebus.programs.serve.app import make_app
from oncebus.protocols.http import listen, server
from tests.broker.in_process import FakeTime, running_broker
from tests.in_thread import in_thread
from tests.protocols.http.http_front import NAMESPACE, ROOT

T = TypeVar("T")


@dataclass
class Served:
    """The broker, as seen from another thread."""

    port: int
    broker: Broker
    time: FakeTime
    loop: asyncio.AbstractEventLoop

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}/"

    def string(self, rule: AuthorizationRule = ROOT) -> str:
        return connection_string("localhost", self.port, rule, emulator=True)

    def run(self, doing: Coroutine[Any, Any, T], seconds: float = 60) -> T:
        """Run a coroutine on the broker's own loop, and return its result."""
        return asyncio.run_coroutine_threadsafe(doing, self.loop).result(seconds)


@contextmanager
def served(data: Path, tier: Tier = Tier.STANDARD, *, has_real_time: bool = False) -> Iterator[Served]:
    """Run a broker until the block ends. The test moves its clock, unless it `has_real_time`."""

    @asynccontextmanager
    async def run() -> AsyncIterator[Served]:
        loop = asyncio.get_running_loop()
        time = FakeTime()
        async with running_broker(data, None if has_real_time else time, tier=tier) as broker:
            app = make_app(broker, namespace_rules=lambda: NAMESPACE)
            running = server(app, listen("127.0.0.1", 0))
            await running.start()
            yield Served(running.port, broker, time, loop)
            await running.stop()

    with in_thread(run) as service:
        yield service
