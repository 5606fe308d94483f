"""Group commit: rows that arrive while the disk is busy become durable together, with one write and one fsync.

Senders that were answered together send again together, if each waits for its answer before it sends again. The first
of them should not get a commit of its own while the others are on their way. So a commit waits for as many calls as the
last one had, but only for a moment, and not if commits are quicker than that moment or full without waiting.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from oncebus.broker.errors import BrokerClosed
from oncebus.broker.latencies import Latency
from oncebus.inbox import InboxError, InboxWriter, Row, RowsRefused

MOST_ROWS = 20_000
MOST_BYTES = 16 << 20
GATHER_SECONDS = 0.001
"""How long a commit waits for the callers of the last commit."""
QUICK_SECONDS = 0.0005
"""A commit that takes less than this is not worth saving by waiting."""


class Appending(NamedTuple):
    """Rows of one entity to make durable together, and the future that their caller waits for."""

    entity: int
    rows: Sequence[Row]
    size: int
    weight: int
    catalogue: int
    durable: asyncio.Future[int]
    work: int


Done = Callable[[Sequence[Appending], int | None], None]
"""Called with the commit that made the rows durable, or with None if they were refused, before the callers' futures are
resolved."""


class Acceptor:
    """Appends rows to the inbox, in the order of the calls.

    The future that `append` returns resolves to the number of the commit once its rows are durable, all or none. If the
    inbox fails, the future raises its error and the rows are not accepted. Cancelling the future does not take the rows
    back.
    """

    def __init__(self, inbox: InboxWriter, done: Done, latency: Latency, passed: Callable[[], int]) -> None:
        """`done` is called for each group of rows, `latency` observes commits, `passed` is a monotonic clock in
        microseconds.
        """
        self._inbox = inbox
        self._done = done
        self._latency = latency
        self._passed = passed
        self._waiting: deque[Appending] = deque()
        self._thread = ThreadPoolExecutor(1, "inbox")
        self._task: asyncio.Task[None] | None = None
        self._unanswered = 0
        # How many calls to wait for: those in the last commit plus those that arrived during it.
        self._expected = 0
        # Resolved when they have all arrived, or the wait is over.
        self._all_arrived: asyncio.Future[None] | None = None
        self._is_closed = False

    @property
    def last_commit(self) -> int:
        """Return the newest durable commit."""
        return self._inbox.last_commit

    @property
    def highest_commit(self) -> int:
        """Return an upper bound for the commits of all rows appended so far, durable or not."""
        return self.last_commit + self._unanswered

    @property
    def may_return(self) -> bool:
        """Return whether a crash could bring back rows that were refused."""
        return self._inbox.is_torn

    @property
    def last_bytes(self) -> int:
        """Return how many bytes the newest commit takes on disk."""
        return self._inbox.last_bytes

    @property
    def size(self) -> int:
        """Return how many bytes the inbox takes on disk."""
        return self._inbox.size

    def append(
        self, entity: int, rows: Sequence[Row], size: int, weight: int, catalogue: int, work: int = 0
    ) -> asyncio.Future[int]:
        """Make rows durable that were accepted under a version of the catalogue. Raises `BrokerClosed` after `close`.

        `size` is the rows' size in bytes. `weight` limits what goes into one commit: the size, or more if the pipeline
        will make many copies. `work` is passed on to `Done`.
        """
        if self._is_closed:
            raise BrokerClosed
        durable: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._unanswered += 1
        self._waiting.append(Appending(entity, rows, size, weight, catalogue, durable, work))
        if len(self._waiting) >= self._expected:
            self._stop_gathering()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._commit_all())
        return durable

    async def forget_up_to(self, commit: int) -> None:
        """Delete segments of the inbox that hold no commit after this one."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._inbox.delete_below, commit)

    async def close(self) -> None:
        """Commit the rows that are waiting, then close the inbox."""
        self._is_closed = True
        if self._task is not None:
            await self._task
        self._thread.shutdown()
        self._inbox.close()

    async def _commit_all(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            if len(self._waiting) < self._expected:
                await self._gather()
            group = self._next_group()
            is_full, began = bool(self._waiting), loop.time()
            await self._commit(group)
            is_quick = loop.time() - began < QUICK_SECONDS
            self._expected = 0 if is_full or is_quick else len(group) + len(self._waiting)

    async def _gather(self) -> None:
        """Wait a moment for the callers of the last commit."""
        loop = asyncio.get_running_loop()
        self._all_arrived = loop.create_future()
        timer = loop.call_later(GATHER_SECONDS, self._stop_gathering)
        try:
            await self._all_arrived
        finally:
            timer.cancel()
            self._all_arrived = None

    def _stop_gathering(self) -> None:
        if self._all_arrived is not None and not self._all_arrived.done():
            self._all_arrived.set_result(None)

    async def _commit(self, group: list[Appending]) -> None:
        before = self.last_commit
        rows = [row for each in group for row in each.rows]
        loop = asyncio.get_running_loop()
        try:
            commit = await loop.run_in_executor(self._thread, self._append, rows, group[0].catalogue)
        except Exception as error:
            if self.last_commit > before:
                # The commit is durable; only announcing it to readers failed. A refusal would make the client resend.
                self._answer(group, self.last_commit)
            elif len(group) == 1 or (isinstance(error, InboxError) and not isinstance(error, RowsRefused)):
                self._refuse(group, error)
            else:
                # One bad row must not make its neighbours fail: commit each call on its own.
                for each in group:
                    await self._commit([each])
        else:
            self._answer(group, commit)

    def _append(self, rows: Sequence[Row], catalogue: int) -> int:
        """Write a commit. Runs in the inbox's thread."""
        began = self._passed()
        commit = self._inbox.append(rows, catalogue)
        self._latency.observe(self._passed() - began)
        return commit

    def _next_group(self) -> list[Appending]:
        """Remove and return the calls for one commit: at least one, all under the same version of the catalogue."""
        group = [self._waiting.popleft()]
        rows, weight = len(group[0].rows), group[0].weight
        while self._waiting and self._waiting[0].catalogue == group[0].catalogue:
            rows += len(self._waiting[0].rows)
            weight += self._waiting[0].weight
            if rows > MOST_ROWS or weight > MOST_BYTES:
                break
            group.append(self._waiting.popleft())
        return group

    def _answer(self, group: Sequence[Appending], commit: int) -> None:
        self._unanswered -= len(group)
        self._done(group, commit)
        for each in group:
            # The caller may have been cancelled; its rows are accepted anyway.
            if not each.durable.done():
                each.durable.set_result(commit)

    def _refuse(self, group: Sequence[Appending], error: Exception) -> None:
        self._unanswered -= len(group)
        self._done(group, None)
        for each in group:
            if not each.durable.done():
                each.durable.set_exception(error)
