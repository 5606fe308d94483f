"""Work that outlives its callers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from oncebus.values.errors import OncebusError

T = TypeVar("T")
log = logging.getLogger(__name__)


class Background:
    """The tasks that run to their end whatever happens to their callers. A broker drains them before it closes."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, doing: Coroutine[Any, Any, object]) -> asyncio.Task[Any]:
        """Run a coroutine for nobody. Its error is logged: one that is no `OncebusError` is a bug."""
        task = self._create(doing)
        task.add_done_callback(_log_error)
        return task

    async def finish(self, doing: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, even if the caller is cancelled."""
        task = self._create(doing)
        # Nobody may be left to hear of its error.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    async def drain(self, seconds: float | None = None) -> None:
        """Wait for the tasks that are running now. With `seconds`, cancel all that still run after that."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=seconds)
        if seconds is not None:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _create(self, doing: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _log_error(task: asyncio.Task[Any]) -> None:
    error = None if task.cancelled() else task.exception()
    if isinstance(error, OncebusError):
        log.info("A background task failed: %s", error)
    elif error is not None:
        log.error("A background task failed", exc_info=error)
