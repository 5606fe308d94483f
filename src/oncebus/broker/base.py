"""What the parts of the broker share: how it is opened and closed, its entities, and how it is doing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Self

from oncebus.broker.addresses import parse_address
from oncebus.broker.clock import Clock
from oncebus.broker.core import Core
from oncebus.broker.latencies import Latencies
from oncebus.broker.pipeline_state import PipelineState
from oncebus.broker.refusals import Refusals
from oncebus.entities import Catalogue, Entity, Namespace, NotFound
from oncebus.errors import OncebusError
from oncebus.folders import Folders
from oncebus.store import DUPLICATES_KEPT, Counts, IngestReport, Policy, Store

READ_YOUR_SENDS_SECONDS = 2.0
"""How long a look at an entity waits for what was accepted before it."""
DEFAULT_PIPELINE_BYTES = 4 << 30
COUNTED_AT_ONCE = 200
"""So many entities are counted before others have their turn at the store."""


class BrokerBase:
    """Queues, topics and subscriptions. All calls are made from one event loop.

    Whatever an answer says is durable: a message accepted, a settlement done, an entity made.
    Errors are `OncebusError`s; nothing has happened then.
    """

    def __init__(self, core: Core, read_your_sends: float) -> None:
        """For `open` alone."""
        self._core = core
        self._turn = 0
        self._read_your_sends = read_your_sends
        # When `passed` was 0. Read once, so that the same use is always shown with the same time.
        self._began = core.clock.now() - core.clock.passed()
        self.pipeline = PipelineState(core)

    @classmethod
    async def open(
        cls,
        folders: Folders,
        *,
        shards: int,
        namespace: Namespace | None = None,
        most_bytes: int = DEFAULT_PIPELINE_BYTES,
        duplicates_kept: int = DUPLICATES_KEPT,
        read_your_sends: float = READ_YOUR_SENDS_SECONDS,
        silent_for: float = 0.0,
        clock: Clock | None = None,
    ) -> Self:
        """Open the broker in these folders, or create one there. Nothing runs before `start`.

        `namespace` is that of a new broker. The pipeline counts as silent for `silent_for` seconds already. Raises
        `DataMismatch` if a part of the data was restored from another copy, `TimesAhead` if it has times that are yet
        to come.
        """
        # The store belongs to one thread at a time, and may change threads between calls.
        core = await asyncio.to_thread(
            Core.open, folders, shards, namespace or Namespace(), most_bytes, duplicates_kept, silent_for, clock
        )
        return cls(core, read_your_sends)

    def start(self) -> None:
        """Begin to ingest what the pipeline has judged, and to do the chores."""
        self._core.start()

    async def close(self) -> None:
        """Stop all work, wait for what is being made durable, and close the files. A second call only waits."""
        await self._core.close()

    @property
    def folders(self) -> Folders:
        """Where the broker keeps its data."""
        return self._core.folders

    @property
    def latencies(self) -> Latencies:
        """How long the steps of a message's path have taken since the start."""
        return self._core.latencies

    @property
    def clock(self) -> Clock:
        """The time that the broker goes by."""
        return self._core.clock

    # Entities

    @property
    def catalogue(self) -> Catalogue:
        """All entities as they are now."""
        return self._core.catalogue

    async def change(self, how: Callable[[Catalogue, int], Catalogue]) -> Catalogue:
        """Change the catalogue: `how` gets it and the time, and answers the next version, or raises.

        When this returns, what is sent afterwards is accepted and routed under the new version.
        """
        return await self._core.change(how)

    def held(self, entity: Entity) -> int:
        """How many bytes count for an entity's quota: in the pipeline, and in the store a moment ago."""
        return self._core.held(entity)

    def accessed_at(self, entity: Entity) -> int:
        """When an entity was last used, in microseconds since 1970."""
        last = self._core.accesses.last(entity.id)
        return entity.accessed_at if last is None else self._began + last

    @property
    def refusals(self) -> Refusals:
        """The requests that were refused since the start."""
        return self._core.refusals

    def note_refusal(self, path: str, error: Exception) -> None:
        """Count a refused request about the entity at a path. The path may be a stranger's invention."""
        try:
            entity = self.catalogue.find(parse_address(path).path)
        except OncebusError:
            entity = None
        self.refusals.note(None if entity is None else entity.id, path, error)

    def watch(self, watcher: Callable[[IngestReport], None]) -> None:
        """Call a watcher after each entry that the store has ingested."""
        self._core.watchers.append(watcher)

    async def counts_now(self, entities: Sequence[int]) -> list[Counts]:
        """What entities hold just now, by their ids: does not wait for what is in the pipeline."""
        found: list[Counts] = []
        for start in range(0, len(entities), COUNTED_AT_ONCE):

            def look(store: Store, some: Sequence[int] = entities[start : start + COUNTED_AT_ONCE]) -> list[Counts]:
                return [store.counts(entity) for entity in some]

            found += await self._core.run(look)
        return found

    # For the parts

    def _policy(self, entity: Entity) -> Policy:
        """The policy of an entity that may have been deleted since it was found."""
        found = self._core.policies.get(entity.id)
        if found is None:
            raise NotFound(entity.path)
        return found

    async def _see_sends(self, entity: Entity) -> None:
        """Wait until what was accepted for an entity before can be seen."""
        await self._core.progress.wait_for(self._core.last_sent(entity), self._read_your_sends)
