"""An event loop on virtual time, and threads that are steps of it.

Waiting costs nothing: if nothing is ready, the time moves to the next timer. Blocking work runs in a greenlet, one at a
time. It begins after a drawn delay, and `Loop.pause` may put it aside in the middle, so that other work goes on first.

asyncio calls ready callbacks in the order in which they were registered, and the product relies on it. So this order
is not drawn; what is drawn is when work of other threads ends, when clients speak, and how long they wait.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from random import Random
from typing import Any, TypeVar

from greenlet import GreenletExit, getcurrent, greenlet

from oncebus.values.threads import OwnThread, Threads

T = TypeVar("T")

_QUICK = 0.000_05
_SLOW = 0.004
_STALL = 0.3


class Stuck(Exception):
    """Nothing is ready and nothing is scheduled: everybody waits for ever."""


class _NoSelector(selectors.BaseSelector):
    """Reports no events, and moves the virtual time instead of waiting."""

    def __init__(self) -> None:
        self.now = 0.0
        self._files: dict[Any, selectors.SelectorKey] = {}

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck
        self.now += max(timeout, 0.0)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, -1, events, data)
        self._files[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._files.pop(fileobj)

    def get_map(self) -> dict[Any, selectors.SelectorKey]:
        return self._files


class Loop(asyncio.SelectorEventLoop):
    """An event loop on virtual time. `chance` draws delays and pauses. `now` is the time at which it begins."""

    def __init__(self, chance: Random, now: float) -> None:
        self._virtual = _NoSelector()
        self._virtual.now = now
        super().__init__(self._virtual)
        self._clock_resolution = 1e-7
        self._chance = chance
        self._queues: dict[object, deque[Callable[[], None]]] = {}
        self._threads: list[greenlet] = []
        self.failure: BaseException | None = None
        """What ended the loop from inside a thread: the power cut."""

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._virtual.now

    def run_in_thread(self, queue: object, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Run a function in a thread. The work of one queue is done in order; without one, each is on its own."""
        future: asyncio.Future[T] = self.create_future()

        def work() -> None:
            try:
                result, error = func(*args), None
            except GreenletExit:
                return
            except Exception as raised:
                result, error = None, raised
            except BaseException as raised:
                self.fail(raised)
                return
            self.call_later(self.delay(), _resolve, future, result, error)

        if queue is None:
            self.start(work)
        else:
            self._enqueue(queue, work)
        return future

    def start(self, work: Callable[[], None]) -> greenlet:
        """Begin work in a thread of its own, soon."""
        thread = greenlet(work)
        self._threads.append(thread)
        self.call_later(self.delay(), thread.switch)
        return thread

    def end_threads(self) -> None:
        """End all threads, wherever they are. Raises nothing: what they still do has no effect."""
        for thread in self._threads:
            if thread and not thread.dead:
                thread.throw(GreenletExit)
        self._threads.clear()

    def abandon(self) -> None:
        """Close the loop without doing what is left to do."""
        self._queues.clear()
        self.close()

    def pause(self) -> None:
        """Let others go on, perhaps: called at steps of blocking work. Does nothing outside of a thread."""
        current = getcurrent()
        if current.parent is None:
            return
        draw = self._chance.random()
        if draw < 0.7:
            return
        self.call_later(_STALL * self._chance.random() if draw > 0.995 else self.delay(), current.switch)
        current.parent.switch()

    def fail(self, error: BaseException) -> None:
        """End the loop with an error, from inside of a thread."""
        self.failure = error
        self.stop()

    def delay(self) -> float:
        """Draw how long a thread takes to wake up."""
        return self._chance.choice((_QUICK, _QUICK, _SLOW)) * self._chance.random()

    def _enqueue(self, queue: object, work: Callable[[], None]) -> None:
        waiting = self._queues.get(queue)
        if waiting is not None:
            waiting.append(work)
            return
        waiting = self._queues[queue] = deque([work])

        def serve() -> None:
            while waiting:
                waiting[0]()
                waiting.popleft()
                if self.failure is not None:
                    return
            del self._queues[queue]

        self.start(serve)


def _resolve(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


class SimulatedThreads(Threads):
    """Threads that are steps of the loop."""

    def run(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """See `Threads.run`."""
        return _running_loop().run_in_thread(None, work, *args)

    def own(self, name: str) -> OwnThread:
        """See `Threads.own`."""
        return _SimulatedThread(name)


class _SimulatedThread(OwnThread):
    def run(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        return _running_loop().run_in_thread(self, work, *args)

    def begin(self, work: Callable[..., T], *args: Any) -> Future[T]:  # type: ignore[override]
        """Do the work at once: its caller is a thread, and could not wait for another."""
        done: Future[T] = Future()
        try:
            done.set_result(work(*args))
        except Exception as error:
            done.set_exception(error)
        return done


def _running_loop() -> Loop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Loop)
    return loop
