"""Group commit: rows that arrive while the disk is busy become durable together, with one write and one fsync.

If each sender waits for its answer before it sends again, then senders that were answered together also send again
together. The first of them should not get a commit of its own while the others are on their way. So a commit waits for
as many calls as the last commit had, but only for a moment. It does not wait if commits take less than that moment, or
if it is already full.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from oncebus.broker.errors import BrokerClosed
from oncebus.broker.latencies import Latency
from oncebus.engine.engine import Log
from oncebus.engine.inbox import InboxError, Row, RowsRefused
from oncebus.values.threads import OwnThread

log = logging.getLogger(__name__)

MOST_ROWS = 20_000
MOST_BYTES = 16 << 20
GATHER_SECONDS = 0.001
"""How long a commit waits for the callers of the last commit."""
QUICK_SECONDS = 0.0005
"""If a commit takes less time than this, waiting in order to save one is not worth it."""


Answer = Callable[[int | Exception], None]
"""Called with the commit that made a caller's rows durable, or with the error if they are not accepted."""


class Charge(NamedTuple):
    """What rows cost one of their entities: their number, their size in bytes, and the work that they make."""

    entity: int
    rows: int
    size: int
    work: int


class Appending(NamedTuple):
    """Rows to make durable together, and what to call then. One charge for each entity."""

    rows: Sequence[Row]
    charges: Sequence[Charge]
    weight: int
    catalogue: int
    answer: Answer
    callers: int


Done = Callable[[Sequence[Appending], int | None], None]
"""Called with the commit that made the rows durable, or with None if they were refused, before the callers are
answered."""


class Acceptor:
    """Appends rows to the inbox, in the order of the calls.

    Each caller gets the number of the commit once its rows are durable, all or none. If the inbox fails, it gets the
    error and the rows are not accepted.
    """

    def __init__(self, inbox: Log, thread: OwnThread, done: Done, latency: Latency, passed: Callable[[], int]) -> None:
        """`thread` writes. `done` is called for each group of rows. `latency` observes commits.

        `passed` is a monotonic clock in microseconds.
        """
        self._inbox = inbox
        self._done = done
        self._latency = latency
        self._passed = passed
        self._waiting: deque[Appending] = deque()
        self._thread = thread
        self._task: asyncio.Task[None] | None = None
        self._unanswered = 0
        self._callers = 0
        # How many callers to wait for: those in the last commit plus those that arrived during it.
        self._expected = 0
        # Resolved when they have all arrived, or the wait is over.
        self._all_arrived: asyncio.Future[None] | None = None
        self._is_closed = False
        # Held while rows are appended. Whoever holds it keeps the inbox as it is; callers of `append` wait.
        self.appending = asyncio.Lock()

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
        self,
        rows: Sequence[Row],
        charges: Sequence[Charge],
        weight: int,
        catalogue: int,
        answer: Answer,
        callers: int = 1,
    ) -> None:
        """Append rows, which were accepted under the given catalogue version. Raises `BrokerClosed` after `close`.

        `weight` limits what goes into one commit: the size in bytes, or more if the pipeline will make many copies.
        `charges` are passed on to `Done`. `answer` is called in the event loop; `callers` is how many wait for it.
        """
        if self._is_closed:
            raise BrokerClosed
        self._unanswered += 1
        self._callers += callers
        self._waiting.append(Appending(rows, charges, weight, catalogue, answer, callers))
        if self._callers >= self._expected:
            self._stop_gathering()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._commit_all())

    async def forget_up_to(self, commit: int) -> None:
        """Delete segments of the inbox that hold no commit after this one."""
        await self._thread.run(self._inbox.delete_below, commit)

    async def close(self) -> None:
        """Commit the rows that are waiting, then close the inbox."""
        self._is_closed = True
        if self._task is not None:
            await self._task
        self._thread.close()
        self._inbox.close()

    async def _commit_all(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            if self._callers < self._expected:
                await self._gather()
            group = self._next_group()
            callers = sum([each.callers for each in group])
            self._callers -= callers
            is_full, began = bool(self._waiting), loop.time()
            await self._commit(group)
            is_quick = loop.time() - began < QUICK_SECONDS
            self._expected = 0 if is_full or is_quick else callers + self._callers

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
        try:
            async with self.appending:
                commit = await self._thread.run(self._append, rows, group[0].catalogue)
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
        """Remove and return the calls for one commit: at least one, and all under the same catalogue version."""
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
        _tell(group, commit)

    def _refuse(self, group: Sequence[Appending], error: Exception) -> None:
        self._unanswered -= len(group)
        self._done(group, None)
        _tell(group, error)


def _tell(group: Sequence[Appending], answer: int | Exception) -> None:
    for each in group:
        try:
            each.answer(answer)
        except Exception:
            # One caller's failure must not keep the answer from the others.
            log.exception("Failed to answer a caller")


def resolve(durable: asyncio.Future[int], answer: int | Exception) -> None:
    """Resolve a future with an answer, unless its caller was cancelled: the rows are accepted anyway."""
    if durable.done():
        return
    if isinstance(answer, Exception):
        durable.set_exception(answer)
    else:
        durable.set_result(answer)
