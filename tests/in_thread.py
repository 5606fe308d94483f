"""Runs a service on an event loop in its own thread, for clients that block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

T = TypeVar("T")

SECONDS = 30


@contextmanager
def in_thread(service: Callable[[], AbstractAsyncContextManager[T]]) -> Iterator[T]:
    """Enter the service, and yield its value until the block ends."""
    started: Future[tuple[T, Callable[[], object]]] = Future()

    async def run() -> None:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        async with service() as given:
            started.set_result((given, lambda: loop.call_soon_threadsafe(stopping.set)))
            await stopping.wait()

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
        given, stop = started.result(SECONDS)
        try:
            yield given
        finally:
            stop()
    finally:
        thread.join(SECONDS)
