"""The quarantine: messages that the pipeline could not process, shown until somebody decides."""

from __future__ import annotations

from collections.abc import Sequence

from oncebus.broker import addresses
from oncebus.broker.catalogues import Catalogues
from oncebus.broker.clock import Clock
from oncebus.broker.store_thread import StoreThread
from oncebus.broker.wakeups import Wakeups
from oncebus.engine.store import Outcome, Quarantined

SEARCHED = 2_000
"""How many messages a search reads."""


class Quarantine:
    """What people do with quarantined messages."""

    def __init__(self, catalogues: Catalogues, clock: Clock, store: StoreThread, wakeups: Wakeups) -> None:
        self._catalogues = catalogues
        self._clock = clock
        self._store = store
        self._wakeups = wakeups

    async def page(self, path: str | None = None, limit: int = 100, after: int = 0) -> list[Quarantined]:
        """Return a page of the messages, of one entity or of all. `after` is the last `number` of the page before."""
        entity = addresses.found(self._catalogues.current, path).id if path is not None else None
        return await self._store.run(lambda store: store.quarantine.page(entity, limit, after))

    async def search(self, message_id: str) -> list[int]:
        """Return the entities that messages with this id were sent to. Reads the newest `SEARCHED`."""
        return await self._store.run(lambda store: store.quarantine.search(message_id, SEARCHED))

    async def discard(self, numbers: Sequence[int]) -> list[Outcome]:
        """Delete messages for good. Return an outcome for each."""
        return await self._store.run(lambda store: store.quarantine.discard(numbers))

    async def release(self, numbers: Sequence[int]) -> list[Outcome]:
        """Send messages through the pipeline again, without detection. Return an outcome for each."""
        policies, now = self._catalogues.policies, self._clock.steady()
        outcomes = await self._store.run(lambda store: store.quarantine.release(numbers, policies, now))
        self._wakeups.wake_chores()
        return outcomes
