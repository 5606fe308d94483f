"""Waits for messages to arrive, and for commits to be ingested."""

from __future__ import annotations

import asyncio
import bisect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from oncebus.engine.store import Place, SubQueue


class Arrivals:
    """Wakes callers that wait at a place. A wake-up is only a hint: the caller must check again."""

    def __init__(self) -> None:
        self._waiting: defaultdict[tuple[int, int], set[asyncio.Event]] = defaultdict(set)

    def notify(self, places: Iterable[Place]) -> None:
        """Wake the callers that wait at these places: something has become available there."""
        for place in places:
            for event in self._waiting.get((place.entity, place.sub_queue), ()):
                event.set()

    def is_expected_at(self, entity: int) -> bool:
        """Return whether somebody waits for messages or dead letters of an entity."""
        return any((entity, sub_queue) in self._waiting for sub_queue in SubQueue)

    def notify_all(self) -> None:
        """Wake all waiting callers."""
        for events in self._waiting.values():
            for event in events:
                event.set()

    @contextmanager
    def expected_at(self, place: Place, event: asyncio.Event) -> Iterator[None]:
        """During the block, set the event at every arrival at a place."""
        key = (place.entity, place.sub_queue)
        self._waiting[key].add(event)
        try:
            yield
        finally:
            self._waiting[key].discard(event)
            if not self._waiting[key]:
                del self._waiting[key]


class Patience:
    """How long a caller waits: some seconds, or until `end` is called."""

    def __init__(self, seconds: float) -> None:
        self.is_over = seconds <= 0
        self._seconds = seconds
        self._ended: Callable[[], None] = lambda: None

    def end(self) -> None:
        """Stop waiting. The caller still looks once more, so nothing that it is about to get is lost."""
        self.is_over = True
        self._ended()

    @contextmanager
    def ending(self, ended: Callable[[], None]) -> Iterator[None]:
        """During the block, call `ended` when the patience is over. The seconds begin here."""
        self._ended = ended
        timer = asyncio.get_running_loop().call_later(self._seconds, self.end)
        try:
            yield
        finally:
            timer.cancel()
            self._ended = lambda: None


class Progress:
    """Tracks how far the store has ingested the commits of the inbox. `left_behind` is the last of earlier brokers."""

    def __init__(self, position: int, left_behind: int) -> None:
        self.position = position
        self.left_behind = left_behind
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    @property
    def has_recovered(self) -> bool:
        """Return whether the store has ingested everything that earlier brokers appended."""
        return self.position >= self.left_behind

    def reach(self, position: int) -> None:
        """Record that commits up to `position` are visible now, and wake the callers that wait for them."""
        self.position = position
        ready = bisect.bisect_right(self._waiting, position, key=lambda each: each[0])
        for _, future in self._waiting[:ready]:
            if not future.done():
                future.set_result(None)
        del self._waiting[:ready]

    async def wait_for(self, commit: int, seconds: float) -> bool:
        """Wait until a commit is visible. Return False if that takes longer than `seconds`."""
        if commit <= self.position:
            return True
        waiting = (commit, asyncio.get_running_loop().create_future())
        bisect.insort(self._waiting, waiting, key=lambda each: each[0])
        try:
            async with asyncio.timeout(seconds):
                await waiting[1]
        except TimeoutError:
            return False
        finally:
            # Otherwise callers that gave up would pile up while the pipeline is down.
            if commit > self.position:
                self._waiting.remove(waiting)
        return True
