"""Chores: work that time triggers. Locks and messages expire, messages fall due and are forwarded, and so on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from oncebus.broker.accounting import Accounting
from oncebus.broker.background import Background
from oncebus.broker.bodies import MOST_AT_ONCE, Bodies
from oncebus.broker.clock import Clock
from oncebus.broker.committing import Committer
from oncebus.broker.entities import Entities
from oncebus.broker.entrance import Entrance
from oncebus.broker.idle import Accesses
from oncebus.broker.requeue import Requeuer
from oncebus.broker.store_thread import StoreThread
from oncebus.broker.trouble import BACK_OFF_SECONDS, Trouble
from oncebus.broker.wakeups import Wakeups
from oncebus.engine.store import Span, Store
from oncebus.model.entities import Catalogue, Entity

log = logging.getLogger(__name__)

EVERY_SECONDS = 0.1
IDLE_EVERY_SECONDS = 0.5
"""The interval when nobody has used the store for some time. An idle gateway spends most of its time on rounds."""
IDLE_AFTER_SECONDS = 2.0
SOONEST_SECONDS = 0.01
"""The shortest pause, so that messages that fall due shortly after each other share a commit."""
SELDOM_SECONDS = 1.0
"""The interval of chores that are not urgent."""
PULSE_SECONDS = 10.0


class Chore:
    """Recurring work. If it fails, its error is shown and it is retried for ever. Other chores are not affected."""

    def __init__(self, name: str, do: Callable[[], Awaitable[bool | None]], every: float = 0.0) -> None:
        """`do` does a step of bounded length and returns whether there is more to do at once."""
        self.trouble = Trouble(f"A chore failed and will be retried: {name}")
        self.next = float("-inf")
        self._do = do
        self._every = every

    async def attempt(self) -> bool:
        """Do a step if its time has come. Return whether there is more to do at once."""
        loop = asyncio.get_running_loop()
        if loop.time() < self.next:
            return False
        try:
            more = bool(await self._do())
        except Exception as error:
            # Any error: without retries, locks and messages would never expire.
            self.trouble.met(error)
            self.next = loop.time() + BACK_OFF_SECONDS
            return False
        self.trouble.over()
        self.next = float("-inf") if more else loop.time() + self._every
        return more

    def hurry(self) -> None:
        """Let the next attempt do a step, whatever the time."""
        self.next = float("-inf")


class Chores:
    """A task that does all chores in turn, in rounds."""

    def __init__(
        self,
        entities: Entities,
        clock: Clock,
        store: StoreThread,
        accounting: Accounting,
        accesses: Accesses,
        entrance: Entrance,
        bodies: Bodies,
        background: Background,
        committer: Committer,
        wakeups: Wakeups,
        requeue: Requeuer,
    ) -> None:
        self._catalogues = entities.catalogues
        self._clock = clock
        self._store = store
        self._accounting = accounting
        self._accesses = accesses
        self._entrance = entrance
        self._bodies = bodies
        self._background = background
        self._committer = committer
        self._wakeups = wakeups
        self.requeue = requeue
        self._turn = asyncio.Lock()
        self._last_pulse = float("-inf")
        self._last_commit: int | None = None
        # When the next message falls due and the next lock expires, as far as the last round knows.
        self._next_due: int | None = None
        self._next_end: int | None = None
        # How often the store had been used when `_is_in_use` was last called, and when it was last used by others than
        # the chores, on the clock of the loop.
        self._uses = 0
        self._last_used = float("-inf")
        # The slot of the last sample.
        self._slot = Span.TEN_MINUTES.slot(self._clock.steady())
        self._forwarding = Chore("forwarding", self.requeue.step)
        self.all = [
            Chore("locks", self._end_locks),
            Chore("pulse", self._pulse),
            # The next two stamp messages, so they fail while the clock is wrong.
            Chore("schedule", self._fall_due),
            self._forwarding,
            Chore("transactions", self._committer.step),
            Chore("expiry", self._expire, SELDOM_SECONDS),
            Chore("record of drops", self._prune_duplicates, SELDOM_SECONDS),
            Chore("bodies", self._delete_bodies, SELDOM_SECONDS),
            Chore("idle entities", self._delete_idle, SELDOM_SECONDS),
            Chore("sizes", partial(self._accounting.refresh_sizes, self._store), SELDOM_SECONDS),
            Chore("samples", self._take_sample),
        ]

    @property
    def trouble(self) -> str | None:
        """Return the error of the first chore that is failing right now; None if none is."""
        return next((chore.trouble.text for chore in self.all if chore.trouble.text is not None), None)

    async def forward(self) -> None:
        """Requeue messages without waiting for the next round. If it fails, the next rounds retry."""
        # An append that the caller cancels could not be reported to the store.
        await self._background.finish(self._forward())

    async def _forward(self) -> None:
        if await self._forwarding.attempt():
            self._wakeups.wake_chores()

    async def run(self) -> None:
        """Do rounds until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._pause()):
                    await self._wakeups.chores.wait()
            except TimeoutError:
                pass
            self._wakeups.chores.clear()
            await self.round()

    def _pause(self) -> float:
        """Return how many seconds to wait before the next round: at most until a message falls due or a lock ends."""
        now = self._clock.steady()
        pause = EVERY_SECONDS if self._is_in_use() else IDLE_EVERY_SECONDS
        if self._next_end is not None:
            pause = min(pause, max((self._next_end - now) / 1e6, EVERY_SECONDS))
        if self._next_due is not None:
            pause = min(pause, max((self._next_due - now) / 1e6, SOONEST_SECONDS))
        return pause

    def _is_in_use(self) -> bool:
        """Return whether anything but the chores has used the store lately."""
        now, uses = asyncio.get_running_loop().time(), self._store.submitted
        if uses != self._uses:
            self._uses, self._last_used = uses, now
        return now - self._last_used < IDLE_AFTER_SECONDS

    async def catch_up(self) -> None:
        """Do everything that is due by now, also what is not urgent."""
        for chore in self.all:
            chore.hurry()
        self._wakeups.wake_chores()
        while self._wakeups.chores.is_set():
            self._wakeups.chores.clear()
            await self.round()

    async def round(self) -> None:
        """Do a step of each chore whose time has come. Rounds come one after the other."""
        async with self._turn:
            await self._round()

    async def _round(self) -> None:
        # The chores set these again. If one fails, its time stays unknown and rounds continue at their usual interval.
        self._next_due = self._next_end = None
        self._is_in_use()
        for chore in self.all:
            if await chore.attempt():
                self._wakeups.wake_chores()
        self._uses = self._store.submitted

    # The chores

    async def _end_locks(self) -> bool:
        policies, now = self._catalogues.policies, self._clock.steady()
        sweep = await self._store.run(lambda store: store.locks.expire(policies, now))
        self._next_end = sweep.next
        return sweep.more

    async def _pulse(self) -> None:
        """Send a pulse through a new or idle pipeline, to see that it works and to keep it warm."""
        loop = asyncio.get_running_loop()
        newest = self._entrance.acceptor.last_commit
        if self._last_commit is not None and newest != self._last_commit:
            self._last_commit, self._last_pulse = newest, loop.time()
        if loop.time() - self._last_pulse >= PULSE_SECONDS:
            self._last_commit = await self._entrance.pulse()
            self._last_pulse = loop.time()

    async def _fall_due(self) -> bool:
        # Raises while the clock is wrong: due messages could not be stamped, and here they can still be cancelled.
        self._clock.stamp()
        policies, now = self._catalogues.policies, self._clock.steady()
        sweep = await self._store.run(lambda store: store.scheduled.send_due(policies, now))
        self._next_due = sweep.next
        return sweep.more

    async def _expire(self) -> bool:
        policies, now = self._catalogues.policies, self._clock.steady()
        return (await self._store.run(lambda store: store.messages.expire(policies, now))).more

    async def _prune_duplicates(self) -> None:
        now = self._clock.steady()
        await self._store.run(lambda store: store.duplicates.prune(now))

    async def _delete_bodies(self) -> None:
        if not self._entrance.acceptor.may_return:
            await self._bodies.delete_refused()
        unused = await self._store.run(lambda store: store.body_files.list_unused(MOST_AT_ONCE))
        deleted = await self._bodies.delete_unused(unused)
        if deleted:
            await self._store.run(lambda store: store.body_files.forget(deleted))

    async def _delete_idle(self) -> None:
        idle = self._accesses.idle(self._catalogues.current)
        if not idle:
            return

        def with_scheduled(store: Store) -> set[int]:
            return {each.id for each in idle if store.entities.counts(each.id).scheduled}

        # A scheduled message counts as future use.
        waiting = await self._store.run(with_scheduled)
        chosen = [each for each in idle if each.id not in waiting]

        def delete(catalogue: Catalogue, now: int) -> Catalogue:  # noqa: ARG001
            still = {each.id for each in self._accesses.idle(catalogue)}
            for each in chosen:
                found: Entity | None = catalogue.entity(each.id)
                if found is not None and found.id in still:
                    log.info("Deleting '%s': nobody has used it for its auto-delete time", found.path)
                    catalogue = catalogue.delete(found)
            return catalogue

        if chosen:
            await self._catalogues.change(delete)

    async def _take_sample(self) -> None:
        now = self._clock.steady()
        if (slot := Span.TEN_MINUTES.slot(now)) != self._slot:
            await self._store.run(lambda store: store.samples.take(now))
            self._slot = slot
