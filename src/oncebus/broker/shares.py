"""A fair share of the pipeline for each entity: how much of its work may wait before its senders have to wait.

The inbox is one log, so a message waits for everything that was accepted before it, whatever its entity. Fairness must
therefore be decided on acceptance. Work is counted in bytes, plus a fixed amount per message, times the copies that a
topic makes, plus what its rules cost. The pipeline's throughput is measured from the work that comes out.

- While other entities are in use, the broker accepts no more work than the pipeline does in `delay`, first come, first
  served. An entity that has less than its fair part of that may always send: a quiet entity is never refused because of
  a noisy one. `delay` is half a second, or longer on a machine where even the smallest batch takes so long that smaller
  batches would only waste time.
- An entity that is used alone may have `ALONE_DELAY` of work waiting.
- If the pipeline does nothing, there is nothing to share: only the entity's quota and its share of the inbox count.

Sends that have to wait are admitted in order within their entity, and entities take turns. After `WAIT_SECONDS` a send
is refused with `ServerBusy`, unless the pipeline has done nothing meanwhile: then the send is admitted. If too much is
waiting already, it is refused at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from oncebus.broker.backlog import Backlog
from oncebus.broker.errors import ServerBusy
from oncebus.model.entities.weights import LIGHT, STEPS_PER_WEIGHT, TopicCost
from oncebus.values.durations import SECOND

DELAY = SECOND // 2
"""How long entities may delay each other, on a machine that is fast enough."""
SMALL_BATCHES = 4
"""The minimum delay, as a multiple of the time for a small batch.

Two batches are under way at once, so this leaves half of the pipeline's time for the work itself.
"""
LONGEST_DELAY = 5 * SECOND
ALONE_DELAY = 15 * SECOND
"""How long an entity may delay its own messages. This is well below the lag that makes the broker unhealthy."""
STALLED = 10 * SECOND
"""A pipeline that has produced nothing for this long counts as down."""
WAIT_SECONDS = 5.0
MOST_WAITING = 16 << 20
"""The maximum size of an entity's sends that wait for their turn. It is limited because they are in memory."""
MOST_WAITING_IN_ALL = 128 << 20
MESSAGE_WORK = 1024
"""The work of a message apart from its size, in bytes."""

# How much work may wait before anything was measured, and on the slowest machine.
_LEAST = 512 << 10
_LEAST_ALONE = 64 << 20
# How much work each entity may have waiting, however many entities there are: about fifty small messages.
_LEAST_EACH = 64 << 10
# Measure over at least this long: one batch says little, because several may come out at once.
_SAMPLE = SECOND // 4


def work_of(messages: int, size: int, cost: TopicCost = LIGHT) -> int:
    """Return the work of messages with a total of `size` bytes, at what their topic does with them."""
    return (size + MESSAGE_WORK * messages) * max(cost.copies, 1) + cost.steps(messages, size) // STEPS_PER_WEIGHT


@dataclass(slots=True)
class _Waiting:
    work: int
    size: int
    turn: asyncio.Future[None]


class Shares:
    """Decides which sends may proceed. All calls are made from one event loop.

    `passed` is a monotonic clock. `is_alone` returns whether no queue or topic but the given one is in use.
    """

    def __init__(self, passed: Callable[[], int], is_alone: Callable[[int], bool]) -> None:
        self._passed = passed
        self._is_alone = is_alone
        self._work = Backlog()
        # Work per second, measured from what came out; 0 until that is known.
        self.rate = 0.0
        # None while the pipeline is starting.
        self._last_taken: int | None = None
        self._done = self._busy = 0
        self._is_loaded = True
        # How long the pipeline takes for a small batch, in microseconds.
        self._small = 0.0
        self._waiting: dict[int, deque[_Waiting]] = {}
        self._waiting_bytes: Counter[int] = Counter()
        # The work of sends that got their turn and are not appended yet.
        self._granted: Counter[int] = Counter()
        self._is_closed = False

    # Work in the pipeline

    def add(self, entity: int, work: int) -> None:
        """Count work that is being appended."""
        self._work.add(entity, work)

    def remove(self, entity: int, work: int) -> None:
        """Subtract work that was refused."""
        self._work.remove({entity: work})
        self._let_in()

    def commit(self, number: int, works: Iterable[tuple[int, int]], since: int) -> None:
        """Record that work which was added before is durable now, in the newest commit.

        `works` has pairs (entity, work).
        """
        self._work.commit(number, works, since)

    def take(self, position: int) -> None:
        """Record that commits up to `position` are ingested, measure the throughput, and let waiting sends proceed."""
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
        # A pipeline with little to do does little: that does not show how much it could do.
        self._is_loaded = self._is_loaded and before >= self._most(self.delay, _LEAST) // 2
        if self._busy >= _SAMPLE:
            found = self._done * SECOND / self._busy
            if self._is_loaded or found > self.rate:
                self.rate = (self.rate + found) / 2 if self.rate else found
            self._done = self._busy = 0
            self._is_loaded = True

    # Sends

    def has_room(self, entity: int, work: int) -> bool:
        """Return whether a send to an entity may proceed without waiting for its turn."""
        return not self._waiting.get(entity) and self._fits(entity, work)

    async def turn(self, entity: int, work: int, size: int) -> None:
        """Wait until a send of `size` bytes may proceed. Raises `ServerBusy`."""
        left = MOST_WAITING_IN_ALL - self._waiting_bytes.total()
        if self._waiting_bytes[entity] + size > min(MOST_WAITING, left):
            raise self._busy_with(entity)
        waiting = _Waiting(work, size, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(entity, deque()).append(waiting)
        self._waiting_bytes[entity] += size
        last_taken = self._last_taken
        if self._is_stalled:
            # Nothing comes out of the pipeline that would give it its turn.
            self._let_in()
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await waiting.turn
        except TimeoutError:
            # If nothing has come out meanwhile, the pipeline is down and no other entity has had a turn: let it go on.
            if self._last_taken != last_taken:
                raise self._busy_with(entity) from None
        finally:
            self._leave(entity, waiting)

    def close(self) -> None:
        """Wake all waiting sends. They will be refused, because the broker is shutting down."""
        self._is_closed = True
        self._let_in()

    @property
    def delay(self) -> int:
        """Return how long entities may delay each other, in microseconds."""
        return min(max(DELAY, round(SMALL_BATCHES * self._small)), LONGEST_DELAY)

    @property
    def waiting(self) -> dict[int, int]:
        """Return how many sends wait for their turn, by entity."""
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
        """Give waiting sends their turn while there is room, one of each entity in rotation."""
        blocked: set[int] = set()
        while blocked != self._waiting.keys():
            for entity in [each for each in self._waiting if each not in blocked]:
                first = next((each for each in self._waiting[entity] if not each.turn.done()), None)
                if first is None or not self._fits(entity, first.work):
                    blocked.add(entity)
                    continue
                self._granted[entity] += first.work
                first.turn.set_result(None)
                # Move the entity to the end, so that the others come first next time.
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
        # After this send has appended its rows or failed, the next may go on without anything coming out.
        asyncio.get_running_loop().call_soon(self._let_in)

    def _busy_with(self, entity: int) -> ServerBusy:
        return ServerBusy(
            "The server is busy: this entity has used up its share of the pipeline, with "
            f"{self._work.of(entity) >> 10} KB waiting. Please retry the operation later."
        )
