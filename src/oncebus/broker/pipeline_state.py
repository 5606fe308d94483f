"""The state of the pipeline as the gateway sees it: waiting commits, their age, and the time of the last output."""

from __future__ import annotations

from collections.abc import Callable

from oncebus.broker.accounting import Accounting
from oncebus.broker.chores import Chores
from oncebus.broker.clock import Clock
from oncebus.broker.entrance import Entrance
from oncebus.broker.ingest import Ingester
from oncebus.broker.waiting import Progress
from oncebus.model.entities import Entity

WAIT_SECONDS = 60.0


class PipelineState:
    """Reads figures that the broker keeps in memory. Only `probe` touches the disk."""

    def __init__(
        self,
        clock: Clock,
        accounting: Accounting,
        entrance: Entrance,
        progress: Progress,
        ingester: Ingester,
        chores: Chores,
    ) -> None:
        self._clock = clock
        self._accounting = accounting
        self._entrance = entrance
        self._progress = progress
        self._ingester = ingester
        self._chores = chores
        self.is_running: Callable[[], bool] = lambda: False
        """Returns whether the pipeline is seen to run. The program sets it; a pipeline elsewhere is never seen."""

    @property
    def trouble(self) -> str | None:
        """Return the error of a part of the broker that is failing right now; None if there is none."""
        return self._ingester.trouble.text or self._chores.trouble or self._clock.trouble

    @property
    def last_commit(self) -> int:
        """Return the newest durable commit of the inbox."""
        return self._entrance.acceptor.last_commit

    @property
    def position(self) -> int:
        """Return the last commit that the store has ingested."""
        return self._progress.position

    @property
    def lag(self) -> int:
        """Return how many commits wait for the pipeline."""
        return self._ingester.lag

    @property
    def oldest_wait(self) -> int:
        """Return how long the oldest commit has waited, in microseconds, across restarts; 0 if none is waiting."""
        return self._accounting.oldest_wait

    @property
    def last_ingest(self) -> float:
        """Return when the pipeline last produced output, in seconds of `time.monotonic`."""
        return self._ingester.last_ingest_at

    @property
    def inbox_bytes(self) -> int:
        """Return the size of the inbox on disk."""
        return self._entrance.acceptor.size

    @property
    def work_per_second(self) -> float:
        """Return the last measured throughput of the pipeline. See `oncebus.broker.shares` for the unit."""
        return self._accounting.shares.rate

    def bytes_of(self, entity: Entity) -> int:
        """Return how many bytes of an entity are accepted and not in the store yet."""
        return self._accounting.in_pipeline(entity.id)

    def waiting_sends(self, entity: Entity) -> int:
        """Return how many sends wait for their turn because their entity has used up its share of the pipeline."""
        return self._accounting.shares.waiting.get(entity.id, 0)

    def has_passed(self, entity: Entity) -> bool:
        """Return whether the pipeline has processed everything that was accepted for an entity."""
        return self.position >= self._accounting.last_sent(entity)

    async def wait_for(self, commit: int, seconds: float) -> bool:
        """Wait until the store has ingested a commit. Return False if that takes longer than `seconds`."""
        return await self._progress.wait_for(commit, seconds)

    async def probe(self) -> None:
        """Send a pulse through the pipeline and wait until it is processed. Raises if the inbox refuses it."""
        commit = await self._entrance.pulse()
        while not await self.wait_for(commit, WAIT_SECONDS):
            pass
