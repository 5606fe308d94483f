"""What all connections share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from oncebus.access import Guard
from oncebus.broker.broker import Broker
from oncebus.servicebus.limits import Limits
from oncebus.servicebus.lines import Lines

log = logging.getLogger(__name__)


class Tasks:
    """What is under way for the clients."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def start(self, doing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something on the side. It answers for its own errors: one that gets out is a bug, and logged."""
        task = asyncio.create_task(doing)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def finish(self, seconds: float) -> None:
        """Wait for all that is under way, then give up the rest."""
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("A task of a connection failed", exc_info=error)


@dataclass
class Front:
    """What all connections share. `host` is the one that refusals name."""

    broker: Broker
    guard: Guard
    limits: Limits
    host: str
    lines: Lines
    tasks: Tasks = field(default_factory=Tasks)

    def now(self) -> int:
        """The time, in microseconds since 1970."""
        return self.broker.clock.now()

    def path_of(self, source: int | None, held_by: int) -> str | None:
        """The path of the entity that a message was dead-lettered in, where that is not the one that holds it."""
        entity = self.broker.catalogue.entity(source) if source not in (None, held_by) else None
        return entity.path if entity is not None else None
