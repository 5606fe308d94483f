"""A broker without Spark, and its portal at a free port, in a thread of its own: for a browser that blocks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from broker.in_process import FakeTime, running_broker
from httpfront.http_front import NAMESPACE, ROOT
from oncebus.access import AuthorizationRule, connection_string
from oncebus.broker.broker import Broker
from oncebus.entities import Tier
from oncebus.http import listen, make_app, server

T = TypeVar("T")


@dataclass
class Served:
    """The broker from outside of its thread."""

    port: int
    broker: Broker
    time: FakeTime
    loop: asyncio.AbstractEventLoop

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}/"

    def string(self, rule: AuthorizationRule = ROOT) -> str:
        return connection_string("localhost", self.port, rule, emulator=True)

    def run(self, doing: Coroutine[Any, Any, T]) -> T:
        """Do something on the broker's own loop."""
        return asyncio.run_coroutine_threadsafe(doing, self.loop).result(60)


@contextmanager
def served(data: Path, tier: Tier = Tier.STANDARD) -> Iterator[Served]:
    """A broker until the block ends. Its clock is moved by hand."""
    started: Future[tuple[Served, Callable[[], object]]] = Future()

    async def run() -> None:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        time = FakeTime()
        async with running_broker(data, time, tier=tier) as broker:
            app = make_app(broker, broker._core, namespace_rules=lambda: NAMESPACE)
            running = server(app, listen("127.0.0.1", 0))
            await running.start()
            started.set_result(
                (Served(running.port, broker, time, loop), lambda: loop.call_soon_threadsafe(stopping.set))
            )
            await stopping.wait()
            await running.stop()

    def work() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        service, stop = started.result(30)
        try:
            yield service
        finally:
            stop()
    finally:
        thread.join(30)
