"""Work that blocks, in threads. All threads of a broker and its pipeline come from here.

A simulator replaces `Threads` and `OwnThread` by objects that run the work as steps of a virtual event loop.

These are not the executors of `concurrent.futures`: a change of thread and back costs half as much CPU here (some 20
instead of 40 µs), and the gateway spends a fifth of its time on such changes.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MOST_THREADS = min(32, (os.cpu_count() or 1) + 4)
"""The most threads for work that needs no order."""


class _Job(NamedTuple):
    work: Callable[..., Any]
    args: tuple[Any, ...]
    answer: Callable[[Any, BaseException | None], object]


class _Pool:
    """Some threads that take work from one queue. They start when they are needed, and end with this object.

    They are daemons: a process that exits does not wait for them. Nobody was promised work that they have not answered.
    """

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        # How many pieces of work are not answered yet. Changed in the event loop only.
        self._unanswered = 0
        weakref.finalize(self, self._jobs.put, None).atexit = False

    def run(self, work: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """See `Threads.run`."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self.put(_Job(work, args, partial(_call_in, loop, self._answer, done)))
        self._unanswered += 1
        return done

    def put(self, job: _Job) -> None:
        """Do a job when its turn comes. Raises `RuntimeError` if no thread can be started for it."""
        if len(self._threads) < self._most and self._unanswered >= len(self._threads):
            thread = threading.Thread(
                target=_serve, args=(self._jobs,), name=f"{self._name}-{len(self._threads)}", daemon=True
            )
            try:
                thread.start()
                self._threads.append(thread)
            except RuntimeError:
                # The machine has no room for another thread. Those that run do the job, if there are any.
                if not self._threads:
                    raise
        self._jobs.put(job)

    def close(self) -> None:
        """Do the work that is waiting, then end the threads."""
        self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads = []

    def _answer(self, done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        self._unanswered -= 1
        if done.done():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)


class OwnThread:
    """One thread that does work in the order of the calls."""

    def __init__(self, name: str) -> None:
        self._pool = _Pool(name, 1)

    def run(self, work: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Do work and return a future of the running event loop. Work is done even if its future is cancelled."""
        return self._pool.run(work, *args)

    def begin(self, work: Callable[[*Ts], T], *args: *Ts) -> Future[T]:
        """Do work for a caller without an event loop, who waits for the future later."""
        done: Future[T] = Future()
        self._pool.put(_Job(work, args, partial(_set, done)))
        return done

    def close(self) -> None:
        """Do the work that is waiting, then end the thread. Call it when nobody will call `run` any more."""
        self._pool.close()


class Threads:
    """Where a broker's blocking work is done. The program that opens the broker makes one."""

    def __init__(self) -> None:
        self._pool = _Pool("any", MOST_THREADS)

    def run(self, work: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Do work in any thread, in no particular order, and return a future of the running event loop.

        Work is done even if its future is cancelled.
        """
        return self._pool.run(work, *args)

    def own(self, name: str) -> OwnThread:
        """Return a thread for work that needs an order, or must not wait for other work."""
        return OwnThread(name)


def _serve(jobs: SimpleQueue[_Job | None]) -> None:
    while (job := jobs.get()) is not None:
        work, args, answer = job
        try:
            result = work(*args)
        except BaseException as error:
            answer(None, error)
        else:
            answer(result, None)
        # While it waits for the next job, the thread must not keep this one alive.
        del job, work, args, answer
        result = None
    # For the next thread.
    jobs.put(None)


def _call_in(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *args: Any) -> None:
    # The loop may have closed before the work ended.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call, *args)


def _set(done: Future[Any], result: Any, error: BaseException | None) -> None:
    if not done.set_running_or_notify_cancel():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
