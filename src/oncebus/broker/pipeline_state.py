"""How the pipeline is doing, seen from the gateway: what waits for it, for how long, and whether anything comes out."""

from __future__ import annotations

from oncebus.broker.core import Core
from oncebus.entities import Entity

WAIT_SECONDS = 60.0


class PipelineState:
    """Reads the broker's own books: nothing here waits for the disk, except `probe`."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @property
    def trouble(self) -> str | None:
        """The error that keeps the broker from a part of its work right now; None if there is none."""
        return self._core.trouble

    @property
    def last_commit(self) -> int:
        """The newest durable commit of the inbox."""
        return self._core.acceptor.last_commit

    @property
    def position(self) -> int:
        """The last commit that the store has ingested."""
        return self._core.progress.position

    @property
    def lag(self) -> int:
        """How many commits wait for the pipeline."""
        return self._core.lag

    @property
    def oldest_wait(self) -> int:
        """How long the oldest of them has waited, in microseconds; 0 if none waits. Counts across restarts."""
        return self._core.oldest_wait

    @property
    def last_ingest(self) -> float:
        """When something last came out of the pipeline, in seconds on the clock of `time.monotonic`."""
        return self._core.last_taken_at

    @property
    def inbox_bytes(self) -> int:
        """The size of the inbox on the disk."""
        return self._core.acceptor.size

    @property
    def work_per_second(self) -> float:
        """The work that the pipeline was last seen to do. See `oncebus.broker.shares`."""
        return self._core.shares.rate

    def bytes_of(self, entity: Entity) -> int:
        """How many bytes of an entity were accepted and are not in the store yet."""
        return self._core.in_pipeline(entity.id)

    def waiting_sends(self, entity: Entity) -> int:
        """How many sends wait for their turn because their entity has used up its share of the pipeline."""
        return self._core.shares.waiting.get(entity.id, 0)

    def has_passed(self, entity: Entity) -> bool:
        """Whether everything that was accepted for an entity has come out."""
        return self.position >= self._core.last_sent(entity)

    async def wait_for(self, commit: int, seconds: float) -> bool:
        """Wait until the store has ingested a commit; whether it has."""
        return await self._core.progress.wait_for(commit, seconds)

    async def probe(self) -> None:
        """Send a row for no one through the pipeline and wait until it comes out. Raises if the inbox refuses it."""
        commit = await self._core.append_pulse()
        while not await self.wait_for(commit, WAIT_SECONDS):
            pass
