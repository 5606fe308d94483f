"""Deals what becomes available at an entity to those who wait for it: links, and calls that wait.

A dispatcher looks for all its waiters together. So an idle waiter costs only its place among them, and an arrival
causes one query of the store. Messages are dealt to the waiters in turn, one by one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from oncebus.broker.background import Background
from oncebus.broker.waiting import Arrivals, Patience
from oncebus.engine.store import Place

log = logging.getLogger(__name__)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)


class Waiter(Protocol[T_contra]):
    """Waits for messages, or for a session."""

    @property
    def wanted(self) -> int:
        """Return how many items the waiter wants now."""

    @property
    def can_take(self) -> bool:
        """Return whether the waiter can take one more item.

        It can take as many as `wanted`, unless its credit changed.
        """

    @property
    def is_there(self) -> bool:
        """Return whether the waiter has not gone."""

    def deliver(self, item: T_contra) -> None:
        """Take an item. An already deleted message must be taken while `is_there`, or it is lost."""

    def finish(self) -> None:
        """Handle the end of a hurried wait: there is nothing more now. The waiter has been removed."""

    def fail(self, error: Exception) -> None:
        """Handle an error. The waiter has been removed."""


class Source(Protocol[T]):
    """What a dispatcher deals."""

    @property
    def most(self) -> int:
        """Return how many items to ask for at once."""

    @property
    def deletes(self) -> bool:
        """Return whether an item that nobody takes is lost."""

    async def look(self, wanted: int) -> Sequence[T]:
        """Return the items that are available now, up to as many as wanted."""

    async def put_back(self, items: Sequence[T]) -> None:
        """Make items available again, as if nobody had looked. Errors are only logged."""


class Dispatcher(Generic[T]):
    """Those who wait at one place, in the order of their turns. Calls `closed` when nobody is left.

    Each look asks for as many items as the waiters want at that moment. A look is never cancelled: messages that it has
    received and deleted could not be put back. A waiter that leaves during a look may still get those that were
    requested for it.
    """

    def __init__(
        self, arrivals: Arrivals, place: Place, source: Source[T], closed: Callable[[], None] = lambda: None
    ) -> None:
        self.source = source
        self._arrivals = arrivals
        self._place = place
        self._closed = closed
        self._arrived = asyncio.Event()
        self._waiting: OrderedDict[Waiter[T], None] = OrderedDict()
        self._hurried: dict[Waiter[T], None] = {}
        self._requested: dict[Waiter[T], int] = {}
        self._looking: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def waiters(self) -> int:
        """Return how many wait now."""
        return len(self._waiting)

    def join(self, waiter: Waiter[T]) -> None:
        """Add a waiter, unless it already waits. One that was in a hurry waits patiently from now on."""
        self._hurried.pop(waiter, None)
        self._waiting.setdefault(waiter)
        if self._task is None:
            self._task = asyncio.create_task(self._serve())

    def hurry(self, waiter: Waiter[T]) -> None:
        """Add a waiter that wants only what is there now, or let it wait no longer.

        Calls its `finish` when it wants no more, or when a look that begins after this call finds nothing: something
        may have arrived at this very moment.
        """
        self.join(waiter)
        self._hurried[waiter] = None
        self._arrived.set()

    def leave(self, waiter: Waiter[T]) -> None:
        """Remove a waiter. It may still get items until `wait_for_look` returns."""
        self._remove(waiter)
        if not self._waiting:
            # Nothing to wait for: the task ends.
            self._arrived.set()

    async def wait_for_look(self) -> None:
        """Wait for a running look, if any. After that, its items are dealt or put back."""
        if self._looking is not None:
            await asyncio.wait([self._looking])

    async def _serve(self) -> None:
        try:
            with self._arrivals.expected_at(self._place, self._arrived):
                await self._wait_and_deal()
        except Exception as error:
            failed, self._waiting, self._hurried = {**self._waiting, **self._hurried}, OrderedDict(), {}
            for waiter in failed:
                _fail(waiter, error)
        self._task = None
        if self._waiting:
            self._task = asyncio.create_task(self._serve())
        else:
            self._closed()

    async def _wait_and_deal(self) -> None:
        """Look now and at every arrival, as long as somebody waits. This is the broker's only loop that waits so."""
        while wanted := self._count_wanted():
            self._arrived.clear()
            hurried = list(self._hurried)
            if await self._look(wanted):
                continue
            for waiter in hurried:
                self._finish(waiter)
            # All others may have left during the look.
            if self._waiting:
                await self._arrived.wait()

    async def _look(self, wanted: int) -> bool:
        """Deal the items that are available. Return whether there were any."""
        looking = self._looking = asyncio.get_running_loop().create_future()
        try:
            found = await self.source.look(wanted)
            if found:
                left = self._deal(found)
                if left:
                    await self.source.put_back(left)
        finally:
            self._looking = None
            self._requested = {}
            looking.set_result(None)
        return bool(found)

    def _count_wanted(self) -> int:
        """Return how many items the waiters want together, up to the most at once.

        A waiter that wants none is removed and has to join again.
        """
        for waiter in [each for each in self._hurried if not each.wanted]:
            self._finish(waiter)
        total, most = 0, self.source.most
        for waiter in list(self._waiting):
            wanted = min(waiter.wanted, most - total)
            total += wanted
            if wanted:
                self._requested[waiter] = wanted
            else:
                del self._waiting[waiter]
            if total >= most:
                break
        return total

    def _deal(self, found: Sequence[T]) -> list[T]:
        """Deal items to the waiters. Return those that nobody can take."""
        left, requested = list(reversed(found)), self._requested
        while left and self._waiting:
            waiter, _ = self._waiting.popitem(last=False)
            if waiter.can_take:
                self._deliver(waiter, left.pop())
        if left and self.source.deletes:
            # Some waiters have left, or take fewer than they wanted.
            for waiter, count in requested.items():
                while left and count > 0 and waiter.is_there:
                    waiter.deliver(left.pop())
                    count -= 1
        return left

    def _deliver(self, waiter: Waiter[T], item: T) -> None:
        """Give a waiter an item, and its next turn to it. One that cannot take it fails alone."""
        try:
            waiter.deliver(item)
        except Exception as error:
            self._hurried.pop(waiter, None)
            self._requested.pop(waiter, None)
            _fail(waiter, error)
            return
        self._waiting[waiter] = None
        if waiter in self._requested:
            self._requested[waiter] -= 1

    def _finish(self, waiter: Waiter[T]) -> None:
        if waiter in self._hurried:
            self._remove(waiter)
            waiter.finish()

    def _remove(self, waiter: Waiter[T]) -> None:
        self._waiting.pop(waiter, None)
        self._hurried.pop(waiter, None)


def _fail(waiter: Waiter[Any], error: Exception) -> None:
    try:
        waiter.fail(error)
    except Exception:
        # The others must still be told.
        log.exception("Failed to tell a receiver about an error")


class Dispatchers(Generic[T]):
    """The dispatchers that somebody waits at, each under a key."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals
        self._open: dict[Hashable, Dispatcher[T]] = {}

    @property
    def waiters(self) -> int:
        """Return how many wait at all of them."""
        return sum(each.waiters for each in self._open.values())

    def find(self, key: Hashable, place: Place, make_source: Callable[[], Source[T]]) -> Dispatcher[T]:
        """Return the dispatcher under a key. A new one must be joined before anything else happens."""
        dispatcher = self._open.get(key)
        if dispatcher is None:

            def forget() -> None:
                # It may have been closed before, and another one opened since.
                if self._open.get(key) is made:
                    del self._open[key]

            dispatcher = made = self._open[key] = Dispatcher(self._arrivals, place, make_source(), forget)
        return dispatcher


class Call(Generic[T]):
    """A call that waits for up to `count` items. It ends with the first ones that are dealt to it."""

    def __init__(self, count: int) -> None:
        self.items: list[T] = []
        self.is_there = True
        self._count = count
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(self, dispatcher: Dispatcher[T], patience: Patience) -> list[T]:
        """Return the items; none if the patience is over before there are any.

        If the caller is cancelled, `items` has those that were dealt to it meanwhile.
        """
        dispatcher.join(self)
        try:
            # A call that has its items already needs no further look.
            with patience.ending(lambda: None if self._done.done() else dispatcher.hurry(self)):
                await self._done
        finally:
            self.is_there = False
            dispatcher.leave(self)
        return self.items

    @property
    def wanted(self) -> int:
        """See `Waiter`."""
        return 0 if self.items else self._count

    @property
    def can_take(self) -> bool:
        """See `Waiter`."""
        return self.is_there and len(self.items) < self._count

    def deliver(self, item: T) -> None:
        """See `Waiter`. The caller continues after all items of this look are dealt."""
        self.items.append(item)
        self.finish()

    def finish(self) -> None:
        """See `Waiter`."""
        if not self._done.done():
            self._done.set_result(None)

    def fail(self, error: Exception) -> None:
        """See `Waiter`."""
        if not self._done.done():
            self._done.set_exception(error)


async def wait_at(dispatcher: Dispatcher[T], count: int, patience: Patience, background: Background) -> list[T]:
    """Wait for up to `count` items; return none if the patience ends first. If cancelled, put back what was dealt."""
    call = Call[T](count)
    try:
        return await call.wait(dispatcher, patience)
    except asyncio.CancelledError:
        if call.items:
            background.start(dispatcher.source.put_back(call.items))
        raise
