"""Who waits for messages to arrive, and for commits to come out of the pipeline."""

from __future__ import annotations

import asyncio
import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from oncebus.store import Place, SubQueue


class Arrivals:
    """Wakes those that wait at a place. A wake-up is a hint: who is woken looks again."""

    def __init__(self) -> None:
        self._waiting: defaultdict[tuple[int, int], set[asyncio.Event]] = defaultdict(set)

    def tell(self, places: Iterable[Place]) -> None:
        """Something has become available at these places."""
        for place in places:
            for event in self._waiting.get((place.entity, place.sub_queue), ()):
                event.set()

    def is_expected_at(self, entity: int) -> bool:
        """Whether somebody waits for messages of an entity, dead letters among them."""
        return any((entity, sub_queue) in self._waiting for sub_queue in SubQueue)

    def tell_all(self) -> None:
        """All that wait are to look again."""
        for events in self._waiting.values():
            for event in events:
                event.set()

    @contextmanager
    def expected_at(self, place: Place) -> Iterator[asyncio.Event]:
        """An event that is set by arrivals during the block, also between a look and a wait."""
        key = (place.entity, place.sub_queue)
        event = asyncio.Event()
        self._waiting[key].add(event)
        try:
            yield event
        finally:
            self._waiting[key].discard(event)
            if not self._waiting[key]:
                del self._waiting[key]


class Progress:
    """How far the commits of the inbox have been taken into the store."""

    def __init__(self, position: int) -> None:
        self.position = position
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def reach(self, position: int) -> None:
        """Commits up to this one can be seen."""
        self.position = position
        ready = bisect.bisect_right(self._waiting, position, key=lambda each: each[0])
        for _, future in self._waiting[:ready]:
            if not future.done():
                future.set_result(None)
        del self._waiting[:ready]

    async def wait_for(self, commit: int, seconds: float) -> bool:
        """Wait until a commit can be seen; whether it can."""
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
            # Who has given up must not be kept for as long as the pipeline stands still.
            if commit > self.position:
                self._waiting.remove(waiting)
        return True
