"""The objects that all connections share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from oncebus.broker.broker import Broker
from oncebus.model.access import Guard
from oncebus.protocols.servicebus.errors import Refused, refusal_of
from oncebus.protocols.servicebus.limits import Limits

log = logging.getLogger(__name__)


class Tasks:
    """The background tasks of all clients."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def start(self, doing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine in the background. It must handle its own errors: an exception is a bug, and logged."""
        task = asyncio.create_task(doing)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def finish(self, seconds: float) -> None:
        """Wait for all tasks, and cancel those that still run after `seconds`."""
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("A connection's background task failed", exc_info=error)


@dataclass
class Front:
    """The objects that all connections share. `host` is our name for clients that do not name the host they open."""

    broker: Broker
    guard: Guard
    limits: Limits
    host: str
    tasks: Tasks = field(default_factory=Tasks)
    _last_refused: tuple[Exception, Refused] | None = None

    def now(self) -> int:
        """Return the time in microseconds since 1970."""
        return self.broker.clock.now()

    def refuse_once(self, error: Exception) -> Refused:
        """Translate an error that many links may get one after the other. The translation may log it: once for all."""
        if self._last_refused is None or self._last_refused[0] is not error:
            self._last_refused = error, Refused(*refusal_of(error, self.host))
        return self._last_refused[1]

    def path_of(self, source: int | None, held_by: int) -> str | None:
        """Return the path of the entity that dead-lettered a message, or None if the message is still there."""
        entity = self.broker.catalogue.entity(source) if source not in (None, held_by) else None
        return entity.path if entity is not None else None
