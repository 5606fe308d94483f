from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.broker.latencies import BOUNDS, Latency
from oncebus.engine.store import Action
from oncebus.model.entities import BadRequest
from tests.broker.scenes import DEAD, Scene, message, play

SECOND = 1_000_000


@given(st.lists(st.integers(0, 100 * SECOND)))
def test_each_duration_is_counted_in_the_first_bucket_that_holds_it(durations: list[int]) -> None:
    one_by_one, together = Latency(), Latency()
    for duration in durations:
        one_by_one.observe(duration)
    together.observe_all(durations)
    assert one_by_one.counts == together.counts
    assert one_by_one.total == together.total == sum(durations)
    for at, bound in enumerate(BOUNDS):
        assert sum(together.counts[: at + 1]) == sum(duration <= bound for duration in durations)
    assert sum(together.counts) == len(durations)


def bucket_of(duration: int) -> list[int]:
    """Return the counts of a latency that has observed only this duration."""
    latency = Latency()
    latency.observe(duration)
    return latency.counts


def test_a_commit_counts_from_its_fsync_until_it_is_ingested(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        scene.pipeline.is_paused = True
        await scene.send("q", "1", "2")
        latencies = scene.broker.latencies
        assert (sum(latencies.send.counts), sum(latencies.commit.counts), sum(latencies.batch.counts)) == (1, 1, 0)
        scene.time.advance(2)
        scene.pipeline.is_paused = False
        await scene.flow()
        assert (latencies.batch.counts, latencies.batch.total) == (bucket_of(2 * SECOND), 2 * SECOND)
        # Judging and ingesting are the two parts of it.
        assert sum(latencies.judge.counts) == sum(latencies.ingest.counts) == 1
        assert latencies.judge.total + latencies.ingest.total == 2 * SECOND
        [batch] = scene.broker.batches
        assert (batch.rows, batch.commits, batch.entries, batch.waited) == (2, 1, 1, 2 * SECOND)
        assert batch.ingesting == latencies.ingest.total

    play(tmp_path, plot)


def test_a_refused_send_is_no_latency(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(requires_session=True)
        with pytest.raises(BadRequest):
            await scene.send("q", "1")
        assert sum(scene.broker.latencies.send.counts) == 0

    play(tmp_path, plot)


def test_a_message_counts_once_however_often_it_is_received(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        await scene.send("q", "1", message("2"))
        await scene.flow()
        scene.time.advance(3)
        received = await scene.receive()
        latency = scene.broker.latencies.end_to_end
        assert (sum(latency.counts), latency.total) == (2, 6 * SECOND)
        await scene.settle("q", received[0], Action.ABANDON)
        await scene.settle("q", received[1], Action.DEAD_LETTER)
        assert len(await scene.receive()) == len(await scene.receive(sub_queue=DEAD)) == 1
        assert (sum(latency.counts), latency.total) == (2, 6 * SECOND)

    play(tmp_path, plot)
