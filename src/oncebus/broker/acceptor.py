"""Group commit: all that comes while the disk is busy is made durable together, by one write and one fsync.

Senders that were answered together come again together, if each waits for its answer before it sends again. The first
of them should not have a commit of its own while the others are on their way, so a commit waits for as many as there
were last, but for no longer than a moment, and not where commits are quicker than that or full without them.
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
"""For how long a commit waits for those who came last time."""
QUICK_SECONDS = 0.0005
"""To save a commit that takes less than this is not worth a wait."""


class Appending(NamedTuple):
    """Rows of one entity that are to become durable together, and who waits for that."""

    entity: int
    rows: Sequence[Row]
    size: int
    weight: int
    catalogue: int
    durable: asyncio.Future[int]
    work: int


Done = Callable[[Sequence[Appending], int | None], None]
"""Called with the commit that holds these, or with None where they were refused; then their callers are answered."""


class Acceptor:
    """Appends rows to the inbox, in the order of the calls.

    `append` answers with the number of the commit once its rows are durable, all of them or none. What it raises is
    what the inbox said; the rows have then not been accepted. Who gives up waiting does not take them back.
    """

    def __init__(self, inbox: InboxWriter, done: Done, latency: Latency, passed: Callable[[], int]) -> None:
        """`latency` is that of commits, `passed` a clock in microseconds that nobody sets."""
        self._inbox = inbox
        self._done = done
        self._latency = latency
        self._passed = passed
        self._waiting: deque[Appending] = deque()
        self._thread = ThreadPoolExecutor(1, "inbox")
        self._task: asyncio.Task[None] | None = None
        self._unanswered = 0
        # How many to wait for: those of the last commit and those who came during it. And who waits for them.
        self._expected = 0
        self._all_come: asyncio.Future[None] | None = None
        self._is_closed = False

    @property
    def last_commit(self) -> int:
        """The newest commit that is durable."""
        return self._inbox.last_commit

    @property
    def highest_commit(self) -> int:
        """No commit of what has been appended up to now is beyond this one."""
        return self.last_commit + self._unanswered

    @property
    def may_return(self) -> bool:
        """Whether a crash could bring back what was refused."""
        return self._inbox.is_torn

    @property
    def last_bytes(self) -> int:
        """How many bytes the newest commit has on the disk."""
        return self._inbox.last_bytes

    @property
    def size(self) -> int:
        """How many bytes the inbox has on the disk."""
        return self._inbox.size

    def append(
        self, entity: int, rows: Sequence[Row], size: int, weight: int, catalogue: int, work: int = 0
    ) -> asyncio.Future[int]:
        """Make rows durable that were accepted under a version of the catalogue and have so many bytes.

        `weight` bounds what goes together: their bytes, and more where each is to be copied often. `work` is handed
        on to `Done`.
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
        """Delete what has been taken out of the outbox and is needed no more."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._inbox.delete_below, commit)

    async def close(self) -> None:
        """Wait for what is under way, then let go of the inbox."""
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
        """Wait a moment for those who came last time."""
        loop = asyncio.get_running_loop()
        self._all_come = loop.create_future()
        timer = loop.call_later(GATHER_SECONDS, self._stop_gathering)
        try:
            await self._all_come
        finally:
            timer.cancel()
            self._all_come = None

    def _stop_gathering(self) -> None:
        if self._all_come is not None and not self._all_come.done():
            self._all_come.set_result(None)

    async def _commit(self, group: list[Appending]) -> None:
        before = self.last_commit
        rows = [row for each in group for row in each.rows]
        loop = asyncio.get_running_loop()
        try:
            commit = await loop.run_in_executor(self._thread, self._append, rows, group[0].catalogue)
        except Exception as error:
            if self.last_commit > before:
                # It is durable; only readers could not be told yet. To refuse it would have it sent again.
                self._answer(group, self.last_commit)
            elif len(group) == 1 or (isinstance(error, InboxError) and not isinstance(error, RowsRefused)):
                self._refuse(group, error)
            else:
                # One bad row must not refuse its neighbours.
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
        """What goes into one commit: at least one call, all under the same catalogue."""
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
            # Who asked may be gone; the rows are accepted all the same.
            if not each.durable.done():
                each.durable.set_result(commit)

    def _refuse(self, group: Sequence[Appending], error: Exception) -> None:
        self._unanswered -= len(group)
        self._done(group, None)
        for each in group:
            if not each.durable.done():
                each.durable.set_exception(error)
