"""Snapshots: copies of everything durable at one moment, made while the broker works."""

from __future__ import annotations

import asyncio

from oncebus.broker.background import Background
from oncebus.broker.entrance import Entrance
from oncebus.broker.errors import ServerBusy
from oncebus.broker.store_thread import StoreThread
from oncebus.broker.waiting import Progress
from oncebus.engine.engine import Engine
from oncebus.engine.snapshot import BackupFailed
from oncebus.values.threads import Threads

PATIENCE_SECONDS = 10.0
"""How long the pipeline may take to catch up."""


class Snapshots:
    """Makes snapshots, one at a time."""

    def __init__(
        self,
        engine: Engine,
        entrance: Entrance,
        progress: Progress,
        store: StoreThread,
        background: Background,
        threads: Threads,
    ) -> None:
        self._background = background
        self._engine = engine
        self._entrance = entrance
        self._progress = progress
        self._store = store
        self._threads = threads
        self._making = asyncio.Lock()

    async def make(self) -> None:
        """Make a snapshot, which replaces the one before. Sends wait while all parts but the store are taken.

        The snapshot holds everything that was answered before this call. Raises `ServerBusy` if the pipeline is too far
        behind, and `BackupFailed`. After an error there is no snapshot.
        """
        # The threads cannot be stopped, and the store's file must be allowed to change again afterwards.
        await self._background.finish(self._make())

    async def _make(self) -> None:
        async with self._making:
            # Most of the wait comes first, while sends go on.
            await self._catch_up()
            try:
                await self._take_all()
            except BaseException as error:
                # What is left of it may be what fills the disk.
                await self._threads.run(self._engine.drop_snapshot)
                if isinstance(error, OSError):
                    raise BackupFailed(f"A snapshot cannot be written: {error.strerror or error}.") from error
                raise

    async def _take_all(self) -> None:
        try:
            async with self._entrance.acceptor.appending:
                await self._catch_up()
                await self._threads.run(self._engine.begin_snapshot)
                await self._store.run_outside(lambda store: store.keep_file())
            await self._threads.run(self._engine.end_snapshot)
        finally:
            await self._store.run_outside(lambda store: store.change_file())

    async def _catch_up(self) -> None:
        commit = self._entrance.acceptor.last_commit
        if not await self._progress.wait_for(commit, PATIENCE_SECONDS):
            raise ServerBusy(
                f"A snapshot needs a pipeline that has caught up. This one is {commit - self._progress.position} "
                "commits behind. Try again later."
            )
