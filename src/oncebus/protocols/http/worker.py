"""Works on large bodies outside of the event loop, in one thread that serves the keys of clients in turn."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from oncebus.values.threads import OwnThread

SMALL = 8 * 1024
"""Work on so few bytes is done at once: a thread would take longer."""

Made = TypeVar("Made")


class _Job(NamedTuple):
    work: Callable[[], Any]
    result: asyncio.Future[Any]


class Worker:
    """Runs one piece of work at a time. An application has one; only its event loop may call it.

    With one thread, the loop shares the interpreter with one piece of work only, however many clients ask. Keys take
    turns, so a client that asks for much work delays others by one piece.
    """

    def __init__(self, thread: OwnThread) -> None:
        self._thread = thread
        self._waiting: dict[str, deque[_Job]] = {}
        self._is_busy = False

    async def run(self, key: str, size: int, work: Callable[[], Made]) -> Made:
        """Return the result of `work`, which reads or writes `size` bytes for a client with this key.

        `work` may run in a thread, so it must not use the event loop.
        """
        if size <= SMALL:
            return work()
        job = _Job(work, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(key, deque()).append(job)
        self._start()
        made: Made = await job.result
        return made

    def _start(self) -> None:
        """Start the next piece of work, unless one is under way. Its key goes to the end."""
        while self._waiting and not self._is_busy:
            key = next(iter(self._waiting))
            jobs = self._waiting.pop(key)
            job = jobs.popleft()
            if jobs:
                self._waiting[key] = jobs
            # The caller may have disconnected meanwhile.
            if not job.result.cancelled():
                self._is_busy = True
                done = self._thread.run(job.work)
                done.add_done_callback(partial(self._finish, job))

    def _finish(self, job: _Job, done: asyncio.Future[Any]) -> None:
        self._is_busy = False
        error = done.exception()
        if not job.result.done():
            if error is None:
                job.result.set_result(done.result())
            else:
                job.result.set_exception(error)
        self._start()
