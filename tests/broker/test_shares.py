"""Fair shares: which sends wait when one entity sends more than the pipeline can process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from oncebus.broker import shares
from oncebus.broker.addresses import Address
from oncebus.broker.errors import ServerBusy
from oncebus.broker.shares import Shares
from oncebus.values.durations import SECOND
from tests.broker.in_process import FakeTime
from tests.broker.scenes import Scene, message, play

NOISY, QUIET, OTHER = 1, 2, 3
RATE = 10_000_000
"""The work per second of the pipeline in these tests."""
MOST = RATE * shares.DELAY // SECOND


class Pipeline:
    """Shares with a pipeline that the test controls. `alone` are the entities that are used alone."""

    def __init__(self) -> None:
        self.time = FakeTime()
        self.alone: set[int] = set()
        self.shares = Shares(lambda: self.time.now, lambda entity: entity in self.alone)
        self._commit = 0

    def accept(self, entity: int, work: int) -> None:
        self.shares.add(entity, work)
        self._commit += 1
        self.shares.commit(self._commit, [(entity, work)], self.time.now)

    def offer(self, entity: int, work: int) -> bool:
        """Send if it can go on at once. Return whether it did."""
        if not self.shares.has_room(entity, work):
            return False
        self.accept(entity, work)
        return True

    def work_off(self, seconds: float = 1.0) -> None:
        """Let everything come out of the pipeline after some time."""
        self.time.advance(seconds)
        self.shares.take(self._commit)

    def warm(self) -> None:
        """Let the shares measure how fast the pipeline is."""
        for _ in range(8):
            self.accept(NOISY, RATE)
            self.work_off()
        assert round(self.shares.rate) == RATE
        self.warmed = self._commit

    async def sends(self, entity: int, work: int, size: int = 0) -> int:
        await self.shares.turn(entity, work, size)
        self.accept(entity, work)
        return entity


def run(plot: Callable[[Pipeline], Awaitable[None]]) -> None:
    async def played() -> None:
        pipeline = Pipeline()
        pipeline.warm()
        await plot(pipeline)
        assert pipeline.shares.waiting == {}

    asyncio.run(played())


async def settle_down() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_no_more_is_accepted_than_the_pipeline_does_in_the_delay_that_entities_may_cause() -> None:
    async def plot(pipeline: Pipeline) -> None:
        sent = 0
        while pipeline.offer(NOISY, RATE // 100):
            sent += RATE // 100
        assert sent == MOST

    run(plot)


def test_a_quiet_entity_goes_on_beside_a_noisy_one() -> None:
    async def plot(pipeline: Pipeline) -> None:
        while pipeline.offer(NOISY, 1000):
            pass
        assert pipeline.offer(QUIET, 1000)
        assert pipeline.offer(QUIET, 1000)
        assert not pipeline.offer(NOISY, 1000)

    run(plot)


def test_noisy_entities_get_equal_parts() -> None:
    async def plot(pipeline: Pipeline) -> None:
        accepted = dict.fromkeys((NOISY, QUIET, OTHER), 0)
        # The first one has used up all room before the others start.
        for entity in (NOISY, QUIET, OTHER):
            while pipeline.offer(entity, 1000):
                accepted[entity] += 1000
        assert accepted == {NOISY: MOST, QUIET: MOST // 2, OTHER: MOST // 3 // 1000 * 1000}

    run(plot)


def test_a_send_larger_than_the_share_is_accepted_when_nothing_of_its_entity_is_under_way() -> None:
    async def plot(pipeline: Pipeline) -> None:
        assert pipeline.offer(NOISY, 100 * MOST)
        assert not pipeline.offer(NOISY, 1)
        assert pipeline.offer(QUIET, 100 * MOST)

    run(plot)


def test_an_entity_that_is_used_alone_may_have_much_under_way() -> None:
    async def plot(pipeline: Pipeline) -> None:
        pipeline.alone = {NOISY}
        sent = 0
        while pipeline.offer(NOISY, RATE // 10):
            sent += RATE // 10
        assert sent == RATE * shares.ALONE_DELAY // SECOND
        # As soon as another entity is used, its own messages have to come out first.
        pipeline.alone = set()
        assert pipeline.offer(QUIET, 1000)

    run(plot)


def test_a_pipeline_that_is_down_is_not_waited_for() -> None:
    async def plot(pipeline: Pipeline) -> None:
        while pipeline.offer(NOISY, RATE // 100):
            pass
        pipeline.time.advance(shares.STALLED / SECOND)
        assert not pipeline.offer(NOISY, RATE)
        pipeline.time.advance(0.001)
        for _ in range(1000):
            assert pipeline.offer(NOISY, RATE)
        # It is back: only the noisy entity has to wait for the backlog.
        pipeline.shares.take(pipeline.warmed + 1)
        assert not pipeline.offer(NOISY, 1000)
        assert pipeline.offer(QUIET, 1000)

    run(plot)


def test_a_slower_pipeline_is_noticed_under_load_and_an_idle_one_does_not_count_as_slow() -> None:
    async def plot(pipeline: Pipeline) -> None:
        for _ in range(100):
            assert pipeline.offer(NOISY, 1000)
            pipeline.work_off(0.1)
        assert round(pipeline.shares.rate) == RATE
        for _ in range(20):
            while pipeline.offer(NOISY, 100_000):
                pass
            pipeline.work_off(4.0)
        # What the pipeline now does in four seconds may wait.
        assert pipeline.shares.rate < RATE / 5

    run(plot)


def test_sends_accepted_meanwhile_do_not_make_the_pipeline_look_faster() -> None:
    async def plot(pipeline: Pipeline) -> None:
        for _ in range(8):
            for _ in range(10):
                pipeline.accept(NOISY, RATE // 10)
                pipeline.time.advance(0.1)
                # It may have come out before its sender was answered, so the broker checks this after each commit.
                pipeline.shares.take(0)
            pipeline.work_off(1.0)
        assert RATE // 2 <= pipeline.shares.rate <= RATE

    run(plot)


def test_sends_get_their_turn_in_order_and_entities_take_turns() -> None:
    async def plot(pipeline: Pipeline) -> None:
        pipeline.accept(NOISY, MOST)
        pipeline.accept(QUIET, MOST)
        order: list[str] = []

        async def send(entity: int, name: str) -> None:
            await pipeline.sends(entity, MOST // 4)
            order.append(name)

        names = [(NOISY, f"noisy {number}") for number in range(6)] + [(QUIET, "quiet 0"), (QUIET, "quiet 1")]
        tasks = [asyncio.create_task(send(entity, name)) for entity, name in names]
        await settle_down()
        assert pipeline.shares.waiting == {NOISY: 6, QUIET: 2}
        # Nobody overtakes sends of the same entity.
        assert not pipeline.shares.has_room(NOISY, 1)
        pipeline.work_off(0.8)
        await settle_down()
        assert order == ["noisy 0", "quiet 0", "noisy 1", "quiet 1"]
        pipeline.work_off(0.4)
        await asyncio.gather(*tasks)
        assert order[4:] == ["noisy 2", "noisy 3", "noisy 4", "noisy 5"]

    run(plot)


def test_a_send_that_waits_too_long_is_refused_and_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "WAIT_SECONDS", 0)

    async def plot(pipeline: Pipeline) -> None:
        pipeline.accept(QUIET, 1000)
        pipeline.accept(NOISY, 2 * MOST)
        sending = asyncio.create_task(pipeline.sends(NOISY, 1000, 10))
        await asyncio.sleep(0)
        # The quiet entity's work has come out.
        pipeline.time.advance(0.1)
        pipeline.shares.take(pipeline.warmed + 1)
        with pytest.raises(ServerBusy, match="this entity has used up its share of the pipeline, with 9765 KB"):
            await sending
        assert pipeline.shares.waiting == {}
        pipeline.work_off()
        assert pipeline.offer(NOISY, MOST)

    run(plot)


def test_a_send_that_waits_for_a_pipeline_that_does_nothing_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "WAIT_SECONDS", 0)

    async def plot(pipeline: Pipeline) -> None:
        pipeline.accept(NOISY, 2 * MOST)
        await pipeline.sends(NOISY, 1000)

    run(plot)


def test_waiting_sends_go_on_once_the_pipeline_is_known_to_be_down() -> None:
    async def plot(pipeline: Pipeline) -> None:
        pipeline.accept(NOISY, 2 * MOST)
        tasks = [asyncio.create_task(pipeline.sends(NOISY, 1000)) for _ in range(3)]
        await settle_down()
        assert pipeline.shares.waiting == {NOISY: 3}
        pipeline.time.advance(shares.STALLED / SECOND + 1)
        # The next send notices it.
        await pipeline.sends(NOISY, 1000)
        await asyncio.gather(*tasks)

    run(plot)


def test_waiting_bytes_are_bounded_for_each_entity_and_in_total() -> None:
    async def plot(pipeline: Pipeline) -> None:
        everyone = range(1, 2 + shares.MOST_WAITING_IN_ALL // shares.MOST_WAITING)
        tasks = []
        for entity in everyone:
            pipeline.accept(entity, MOST)
            tasks.append(asyncio.create_task(pipeline.sends(entity, MOST, shares.MOST_WAITING)))
            await settle_down()
            with pytest.raises(ServerBusy):
                await pipeline.sends(entity, 1, 1)
        assert len(pipeline.shares.waiting) == len(everyone) - 1
        with pytest.raises(ServerBusy):
            await tasks.pop()
        for _ in everyone:
            pipeline.work_off()
            await settle_down()
        await asyncio.gather(*tasks)

    run(plot)


def test_a_cancelled_send_lets_the_next_one_go_on() -> None:
    async def plot(pipeline: Pipeline) -> None:
        pipeline.accept(NOISY, MOST)
        gone = [asyncio.create_task(pipeline.sends(NOISY, MOST)) for _ in range(2)]
        waiting = asyncio.create_task(pipeline.sends(NOISY, MOST))
        await settle_down()
        gone[0].cancel()
        pipeline.work_off()
        # It gets its turn and is cancelled before it can use it: nothing will come out for it.
        gone[1].cancel()
        await waiting
        assert all(task.cancelled() for task in gone)
        assert not pipeline.offer(NOISY, MOST)

    run(plot)


def test_a_broker_that_shuts_down_keeps_nobody_waiting() -> None:
    async def plot(pipeline: Pipeline) -> None:
        pipeline.accept(NOISY, MOST)
        tasks = [asyncio.create_task(pipeline.sends(NOISY, MOST)) for _ in range(10)]
        await settle_down()
        pipeline.shares.close()
        await asyncio.gather(*tasks)

    run(plot)


# Through the broker


@contextmanager
def paused(stage: Scene) -> Iterator[None]:
    stage.pipeline.is_paused = True
    yield
    stage.pipeline.is_paused = False


def fill(stage: Scene, path: str) -> asyncio.Task[list[list[int]]]:
    """Send more than an entity's share."""
    entity = stage.broker.catalogue.find(path)
    assert entity is not None
    stage.core.accounting.shares.rate = 1.0
    stage.core.accounting.shares._last_taken = stage.time.now

    async def send() -> list[list[int]]:
        body = b"x" * 60_000
        return await asyncio.gather(*(stage.send(path, message(f"{path}{number}", body)) for number in range(30)))

    return asyncio.create_task(send())


def test_a_noisy_queue_waits_and_a_quiet_one_does_not(tmp_path: Path) -> None:
    async def plot(stage: Scene) -> None:
        await stage.queue("noisy", detects=True)
        await stage.queue("quiet")
        with paused(stage):
            filling = fill(stage, "noisy")
            await stage.send("quiet", "a")
            waiting = stage.core.accounting.shares.waiting
            assert waiting.keys() == {stage.broker.catalogue.queue("noisy").id}
            await stage.send("quiet", "b")
        numbers = await filling
        # Sends that waited still get their numbers in the order of the sends.
        assert [number for sent in numbers for number in sent] == list(range(1, 31))
        assert await stage.taken("noisy") == [f"noisy{number}" for number in range(30)]
        assert await stage.taken("quiet") == ["a", "b"]

    play(tmp_path, plot)


def test_a_queue_that_is_used_alone_does_not_wait(tmp_path: Path) -> None:
    async def plot(stage: Scene) -> None:
        await stage.queue("noisy")
        await stage.queue("quiet")
        # Nobody has used the other queue for a long time.
        stage.time.advance(3600)
        with paused(stage):
            await fill(stage, "noisy")
        await stage.flow()

    play(tmp_path, plot)


def test_a_receiver_that_waits_at_a_queue_uses_it(tmp_path: Path) -> None:
    async def plot(stage: Scene) -> None:
        await stage.queue("noisy")
        await stage.queue("quiet")
        stage.time.advance(3600)
        receiving = asyncio.create_task(stage.broker.receive(Address("quiet"), 1, wait=3600))
        await asyncio.sleep(0)
        stage.time.advance(3600)
        with paused(stage):
            filling = fill(stage, "noisy")
            await stage.send("quiet", "a")
            assert stage.core.accounting.shares.waiting
        await filling
        assert len(await receiving) == 1

    play(tmp_path, plot)


def test_closing_keeps_nobody_waiting(tmp_path: Path) -> None:
    async def plot(stage: Scene) -> None:
        await stage.queue("noisy")
        await stage.queue("quiet")
        with paused(stage):
            filling = fill(stage, "noisy")
            await stage.send("quiet", "a")
            assert stage.core.accounting.shares.waiting
            await stage.core.close()
            assert len(await filling) == 30

    play(tmp_path, plot)


def test_no_queue_may_fill_the_inbox_for_the_others(tmp_path: Path) -> None:
    async def plot(stage: Scene) -> None:
        for name in ("noisy", "quiet"):
            await stage.queue(name)
        body = b"x" * 10_000
        with paused(stage):
            for number in range(10):
                await stage.send("noisy", message(f"{number}", body))
            with pytest.raises(ServerBusy, match="bytes of 'noisy' are waiting for the pipeline, and its share of"):
                await stage.send("noisy", message("more", body))
            for number in range(4):
                await stage.send("quiet", message(f"{number}", body))
        await stage.flow()
        await stage.send("noisy", message("more", body))

    play(tmp_path, plot, most_bytes=200_000)


def test_small_messages_count_towards_their_share_with_their_size_on_disk(tmp_path: Path) -> None:
    async def plot(stage: Scene) -> None:
        for name in ("noisy", "quiet"):
            await stage.queue(name)
        noisy = stage.broker.catalogue.queue("noisy").id
        with paused(stage):
            with suppress(ServerBusy):
                while True:
                    await stage.send("noisy", "a")
            assert 95_000 < stage.core.accounting.on_disk(noisy) < 105_000
            assert stage.core.accounting.in_pipeline(noisy) < 10_000
            for number in range(4):
                await stage.send("quiet", message(f"{number}", b"x" * 10_000))
        await stage.flow()
        assert (stage.core.accounting.on_disk(noisy), stage.core.accounting.in_inbox) == (0, 0)

    play(tmp_path, plot, most_bytes=200_000)
