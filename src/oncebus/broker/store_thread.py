"""The store's own thread. Work that arrives while it is busy shares one store transaction, with one fsync."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from oncebus.broker.errors import BrokerClosed
from oncebus.engine.store import ChangesRefused, Place, SessionCannotBeLocked, SessionLockLost, Store, StoreFull
from oncebus.values.threads import OwnThread

T = TypeVar("T")

MOST_AT_ONCE = 500
COUNTED_AT_ONCE = 200
"""The number of entities to count before other callers may use the store."""

# Errors that are part of normal operation. Work that raises one has made no change that must be rolled back.
_EXPECTED = (SessionLockLost, SessionCannotBeLocked, ChangesRefused)


class _Submitted(NamedTuple):
    work: Callable[[Store], Any]
    done: asyncio.Future[Any]
    unwanted: Callable[[Any], None] | None


class _WorkFailed(Exception):
    """A unit of work raised an error: its whole group must be rolled back."""


class StoreThread:
    """Runs units of work on the store, in order. Each caller gets its answer when the work is durable.

    Work that raises an error changes nothing and does not affect the others in its group: they run again without it. So
    work may be called twice; only the last call counts.
    """

    def __init__(self, store: Store, thread: OwnThread, arrived: Callable[[set[Place]], None]) -> None:
        """`arrived` is called in the event loop with the places where work has made messages available."""
        self._store = store
        self._arrived = arrived
        self._queue: deque[_Submitted] = deque()
        self._thread = thread
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        # How many units of work were submitted so far.
        self.submitted = 0

    async def run(self, work: Callable[[Store], T], unwanted: Callable[[T], None] | None = None) -> T:
        """Run the work in a store transaction and return its answer. Raises what the work raises, or `BrokerClosed`.

        If the caller is cancelled before the work has begun, the work is not done. If it is cancelled later, the work
        is done anyway, and `unwanted` is called with its result.
        """
        if self._is_closed:
            raise BrokerClosed
        self.submitted += 1
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.append(_Submitted(work, done, unwanted))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run_all())
        try:
            return await done
        except asyncio.CancelledError:
            # The answer may also have come just before the caller was cancelled.
            if unwanted is not None and not done.cancelled() and done.exception() is None:
                unwanted(done.result())
            raise

    async def run_outside(self, work: Callable[[Store], T]) -> T:
        """Run work between two transactions, and return its answer."""
        if self._is_closed:
            raise BrokerClosed
        return await self._thread.run(work, self._store)

    async def close(self) -> None:
        """Do the submitted work, then close the store."""
        self._is_closed = True
        if self._task is not None:
            await self._task
        await self._thread.run(self._store.close)
        self._thread.close()

    async def _run_all(self) -> None:
        while self._queue:
            group = [self._queue.popleft() for _ in range(min(len(self._queue), MOST_AT_ONCE))]
            group = [each for each in group if not each.done.done()]
            try:
                answers, places = await self._thread.run(self._do, [each.work for each in group])
            except Exception as error:
                # The store transaction was rolled back: the group has changed nothing.
                answers, places = [error] * len(group), set()
            for each, answer in zip(group, answers, strict=True):
                _answer(each, answer)
            if places:
                self._arrived(places)

    def _do(self, group: list[Callable[[Store], Any]]) -> tuple[list[Any], set[Place]]:
        answers = self._do_all(group)
        return answers, self._store.take_arrivals()

    def _do_all(self, group: list[Callable[[Store], Any]]) -> list[Any]:
        try:
            return self._do_together(group)
        except _WorkFailed as failed:
            if len(group) == 1:
                return [failed.__cause__]
        answers: list[Any] = []
        for work in group:
            try:
                answers += self._do_together([work])
            except _WorkFailed as failed:
                answers.append(failed.__cause__)
            except Exception as error:
                answers.append(error)
        return answers

    def _do_together(self, group: list[Callable[[Store], Any]]) -> list[Any]:
        answers: list[Any] = []
        has_failed = False
        try:
            with self._store.transaction():
                for work in group:
                    try:
                        answers.append(work(self._store))
                    except _EXPECTED as error:
                        answers.append(error)
                    except Exception:
                        has_failed = True
                        raise
        except StoreFull:
            raise
        except Exception as error:
            if has_failed:
                raise _WorkFailed from error
            raise
        return answers


def _answer(submitted: _Submitted, answer: Any) -> None:
    if submitted.done.done():
        if submitted.unwanted is not None and not isinstance(answer, Exception):
            submitted.unwanted(answer)
    elif isinstance(answer, Exception):
        submitted.done.set_exception(answer)
    else:
        submitted.done.set_result(answer)
