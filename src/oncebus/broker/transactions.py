"""The store's own thread: what is asked of it meanwhile is done together, in one transaction with one fsync."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from oncebus.broker.errors import BrokerClosed
from oncebus.store import SessionCannotBeLocked, SessionLockLost, Store, StoreFull

T = TypeVar("T")

MOST_AT_ONCE = 500

# What is raised in the ordinary course of things, by work that has changed nothing that may not stand.
_ORDINARY = (SessionLockLost, SessionCannotBeLocked)


class _Asked(NamedTuple):
    work: Callable[[Store], Any]
    done: asyncio.Future[Any]
    unwanted: Callable[[Any], None] | None


class _WorkFailed(Exception):
    """A piece of work raised: nothing of its group may stand."""


class Transactions:
    """Runs pieces of work on the store, in order. An answer comes when what the work did is durable.

    Work that raises leaves nothing behind, and does not disturb the others of its group: they are done again without
    it. So work may be called twice; only the last time counts.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._asked: deque[_Asked] = deque()
        self._thread = ThreadPoolExecutor(1, "store")
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        # How many pieces of work were asked for.
        self.asked = 0

    async def run(self, work: Callable[[Store], T], unwanted: Callable[[T], None] | None = None) -> T:
        """Do the work in a transaction.

        Where the caller is cancelled before the work has begun, it is not done. Where it is cancelled later, the work
        is done all the same and `unwanted` is called with the answer that nobody gets.
        """
        if self._is_closed:
            raise BrokerClosed
        self.asked += 1
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._asked.append(_Asked(work, done, unwanted))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run_all())
        try:
            return await done
        except asyncio.CancelledError:
            # Also when the answer had come and the caller was cancelled before it could take it.
            if unwanted is not None and not done.cancelled() and done.exception() is None:
                unwanted(done.result())
            raise

    async def close(self) -> None:
        """Do what has been asked for, then close the store."""
        self._is_closed = True
        if self._task is not None:
            await self._task
        await asyncio.get_running_loop().run_in_executor(self._thread, self._store.close)
        self._thread.shutdown()

    async def _run_all(self) -> None:
        loop = asyncio.get_running_loop()
        while self._asked:
            group = [self._asked.popleft() for _ in range(min(len(self._asked), MOST_AT_ONCE))]
            group = [asked for asked in group if not asked.done.done()]
            try:
                answers = await loop.run_in_executor(self._thread, self._do, [asked.work for asked in group])
            except Exception as error:
                # The transaction was rolled back: nothing of the group has happened.
                answers = [error] * len(group)
            for asked, answer in zip(group, answers, strict=True):
                _answer(asked, answer)

    def _do(self, group: list[Callable[[Store], Any]]) -> list[Any]:
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
                    except _ORDINARY as error:
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


def _answer(asked: _Asked, answer: Any) -> None:
    if asked.done.done():
        if asked.unwanted is not None and not isinstance(answer, Exception):
            asked.unwanted(answer)
    elif isinstance(answer, Exception):
        asked.done.set_exception(answer)
    else:
        asked.done.set_result(answer)
