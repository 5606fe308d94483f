"""A fair share of the pipeline for each entity: how much of its work may wait before its senders have to.

The inbox is one log, so a message waits for everything that was accepted before it, of whatever entity. Fairness is
therefore a matter of acceptance. Work is counted in bytes, plus a fixed part a message, times the copies that a topic
makes. How much work the pipeline does in a second is measured as it comes out.

- While other entities are in use, no more is accepted than the pipeline does in `delay`; within that everyone is served
  as they come. An entity that has less than its part of it waiting is accepted all the same: a quiet entity is never
  refused for the sake of a noisy one. `delay` is half a second, and more on a machine where the smallest batch takes so
  long that smaller batches would only waste it.
- An entity that is used alone may have `ALONE_DELAY` of work waiting.
- A pipeline that does nothing cannot be shared: then the entity's quota and its share of the inbox are the bound.

A send that has to wait gets its turn in the order of its entity, and entities take turns. After `WAIT_SECONDS` it is
refused with `ServerBusy`, but goes on if the pipeline has done nothing meanwhile; where too much waits already, it is
refused at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from oncebus.broker.backlog import Backlog
from oncebus.broker.errors import ServerBusy
from oncebus.durations import SECOND

DELAY = SECOND // 2
"""For how long entities may make each other wait, on a machine that is quick enough."""
SMALL_BATCHES = 4
"""For how long at least, in times of a small batch. As two batches are under way at once, half of the pipeline's time
is left for the work itself."""
LONGEST_DELAY = 5 * SECOND
ALONE_DELAY = 15 * SECOND
"""For how long an entity may make its own messages wait. Well below what makes the broker unhealthy."""
STALLED = 10 * SECOND
"""A pipeline out of which nothing has come for so long is down."""
WAIT_SECONDS = 5.0
MOST_WAITING = 16 << 20
"""Bytes of an entity's sends that wait for their turn: they are in memory."""
MOST_WAITING_IN_ALL = 128 << 20
MESSAGE_WORK = 1024
"""The work that a message is whatever its size, in bytes."""

# What may wait before anything was measured, and on the slowest machine.
_LEAST = 512 << 10
_LEAST_ALONE = 64 << 20
# What each entity may have waiting, however many there are: some fifty small messages.
_LEAST_EACH = 64 << 10
# One batch is no measure: several may come out at once.
_SAMPLE = SECOND // 4


def work_of(messages: int, size: int, copies: int = 1) -> int:
    """The work that messages of so many bytes together make, where each is copied so often."""
    return (size + MESSAGE_WORK * messages) * copies


@dataclass(slots=True)
class _Waiting:
    work: int
    size: int
    turn: asyncio.Future[None]


class Shares:
    """Which sends may go on now. `passed` is a clock that nobody sets; `is_alone` says whether no entity but one and
    what belongs to it is in use. All calls are made from one event loop.
    """

    def __init__(self, passed: Callable[[], int], is_alone: Callable[[int], bool]) -> None:
        self._passed = passed
        self._is_alone = is_alone
        self._work = Backlog()
        # Work a second, from what has come out; 0 until that is known.
        self.rate = 0.0
        # None while the pipeline is starting.
        self._last_taken: int | None = None
        self._done = self._busy = 0
        self._is_loaded = True
        # How long the pipeline takes for a batch with little in it.
        self._small = 0.0
        self._waiting: dict[int, deque[_Waiting]] = {}
        self._waiting_bytes: Counter[int] = Counter()
        # Of sends whose turn has come and that have not been appended yet.
        self._granted: Counter[int] = Counter()
        self._is_closed = False

    # What is under way

    def add(self, entity: int, work: int) -> None:
        """This work is being appended."""
        self._work.add(entity, work)

    def remove(self, entity: int, work: int) -> None:
        """It was not accepted."""
        self._work.remove({entity: work})
        self._let_in()

    def commit(self, number: int, works: Iterable[tuple[int, int]], since: int) -> None:
        """(entity, work) that was added before is durable, in the newest commit."""
        self._work.commit(number, works, since)

    def take(self, position: int) -> None:
        """Commits up to this one have come out."""
        now, before, since = self._passed(), self._work.total, self._work.oldest
        self._work.take(position)
        done = before - self._work.total
        if since is None or not done:
            return
        self._measure(before, done, now - max(self._last_taken or since, since))
        self._last_taken = now
        self._let_in()

    def _measure(self, before: int, done: int, busy: int) -> None:
        if done <= _LEAST:
            self._small += (busy - self._small) / 4 if self._small else busy
        self._done += done
        self._busy += busy
        # With little to do, the pipeline does little, and that says nothing of what it could do.
        self._is_loaded = self._is_loaded and before >= self._most(self.delay, _LEAST) // 2
        if self._busy >= _SAMPLE:
            found = self._done * SECOND / self._busy
            if self._is_loaded or found > self.rate:
                self.rate = (self.rate + found) / 2 if self.rate else found
            self._done = self._busy = 0
            self._is_loaded = True

    # Who may go on

    def has_room(self, entity: int, work: int) -> bool:
        """Whether a send of an entity may go on now, as far as the others are concerned."""
        return not self._waiting.get(entity) and self._fits(entity, work)

    async def turn(self, entity: int, work: int, size: int) -> None:
        """Wait until a send of so many bytes may go on. Raises `ServerBusy`."""
        left = MOST_WAITING_IN_ALL - self._waiting_bytes.total()
        if self._waiting_bytes[entity] + size > min(MOST_WAITING, left):
            raise self._busy_with(entity)
        waiting = _Waiting(work, size, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(entity, deque()).append(waiting)
        self._waiting_bytes[entity] += size
        last_taken = self._last_taken
        if self._is_stalled:
            # Nothing comes out after which it would get its turn.
            self._let_in()
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await waiting.turn
        except TimeoutError:
            # Where nothing has come out all the while, it is not the others who have had their turn.
            if self._last_taken != last_taken:
                raise self._busy_with(entity) from None
        finally:
            self._leave(entity, waiting)

    def close(self) -> None:
        """Let everyone go on: they will be refused, for the broker is being stopped."""
        self._is_closed = True
        self._let_in()

    @property
    def delay(self) -> int:
        """For how long entities may make each other wait."""
        return min(max(DELAY, round(SMALL_BATCHES * self._small)), LONGEST_DELAY)

    @property
    def waiting(self) -> dict[int, int]:
        """How many sends wait for their turn, by entity."""
        return {entity: len(each) for entity, each in self._waiting.items()}

    def _fits(self, entity: int, work: int) -> bool:
        own = self._work.of(entity) + self._granted[entity]
        if self._is_closed or not own or self._is_stalled:
            return True
        most = self._most(ALONE_DELAY, _LEAST_ALONE) if self._is_alone(entity) else self._most(self.delay, _LEAST)
        if self._work.total + self._granted.total() + work <= most:
            return True
        return own + work <= max(_LEAST_EACH, most // len(self._work.entities | self._waiting.keys()))

    def _most(self, delay: int, least: int) -> int:
        return max(least, round(self.rate * delay / SECOND))

    @property
    def _is_stalled(self) -> bool:
        since, last = self._work.oldest, self._last_taken
        return last is None or (since is not None and self._passed() - max(last, since) > STALLED)

    def _let_in(self) -> None:
        """Give sends their turn, one of each entity after the other, as far as there is room."""
        blocked: set[int] = set()
        while blocked != self._waiting.keys():
            for entity in [each for each in self._waiting if each not in blocked]:
                first = next((each for each in self._waiting[entity] if not each.turn.done()), None)
                if first is None or not self._fits(entity, first.work):
                    blocked.add(entity)
                    continue
                self._granted[entity] += first.work
                first.turn.set_result(None)
                # The next time others come first.
                self._waiting[entity] = self._waiting.pop(entity)

    def _leave(self, entity: int, waiting: _Waiting) -> None:
        if waiting.turn.done() and not waiting.turn.cancelled():
            self._granted[entity] -= waiting.work
            if not self._granted[entity]:
                del self._granted[entity]
        self._waiting[entity].remove(waiting)
        if not self._waiting[entity]:
            del self._waiting[entity]
        self._waiting_bytes[entity] -= waiting.size
        if not self._waiting_bytes[entity]:
            del self._waiting_bytes[entity]
        # Once this one has appended its rows, or has not: nothing need come out before the next may go on.
        asyncio.get_running_loop().call_soon(self._let_in)

    def _busy_with(self, entity: int) -> ServerBusy:
        return ServerBusy(
            "The server is busy: this entity has more messages on their way than its share, with "
            f"{self._work.of(entity) >> 10} KB waiting. Please retry the operation later."
        )
