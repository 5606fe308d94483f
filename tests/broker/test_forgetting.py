"""Forgetting an id: the next message with it is new, and everything else stays as it was."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from oncebus.broker.addresses import Address
from oncebus.engine.store.forgets import FORGETS_KEPT
from oncebus.ledger import Ledger
from oncebus.model.entities import BadRequest, InvalidOperation, NotFound, OutOfRange
from tests.broker.in_process import FakeTime
from tests.broker.scenes import MINUTE, SECOND, Scene, ids, message, play, scene


def test_a_forgotten_id_can_be_sent_again_and_is_then_remembered_again(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        (first,) = await scene.send("q", "a")
        accepted = scene.time.now
        await scene.send("q", "a", "b")
        scene.time.advance(5)
        forget = await scene.broker.forget("q", "a")
        assert forget is not None
        assert (forget.message_id, forget.time) == ("a", scene.time.now)
        assert (forget.original_sequence, forget.original_time) == (first, accepted)
        (again,) = await scene.send("q", "a")
        await scene.send("q", "a", "b")
        assert await scene.taken() == ["a", "b", "a"]
        assert [drop.original_sequence for drop in await scene.duplicates()] == [first, again, again - 3 + 1]
        counts = await scene.counts()
        assert (counts.new, counts.duplicates, counts.incoming) == (3, 3, 6)
        assert await scene.broker.forgets("q") == [forget]

    play(tmp_path, plot)


def test_within_one_batch_the_place_of_the_forget_decides(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        scene.pipeline.is_paused = True
        for send in ("a", "a", None, "a", "a", None, None, "a"):
            if send is None:
                task = asyncio.create_task(scene.broker.forget("q", "a"))
                commit = scene.core.entrance.acceptor.last_commit
                while scene.core.entrance.acceptor.last_commit == commit:
                    await asyncio.sleep(0)
            else:
                await scene.send("q", send)
        scene.pipeline.is_paused = False
        await task
        assert await scene.taken() == ["a", "a", "a"]
        originals = [forget.original_sequence for forget in await scene.broker.forgets("q")]
        assert originals == [1, 4, None], "the last forget found nothing"
        assert [drop.original_sequence for drop in await scene.duplicates()] == [1, 4]

    play(tmp_path, plot)


def test_a_forget_costs_the_ledger_nothing_when_the_window_is_over(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True, duplicate_detection_history_time_window=MINUTE)
        await scene.broker.forget("q", "never sent")
        assert Ledger.open(scene.folders.ledger).summary().ids == 0
        await scene.send("q", "a")
        await scene.flow()
        await scene.broker.forget("q", "a")
        assert Ledger.open(scene.folders.ledger).summary().ids == 2, "the id and its tombstone"
        for at in range(40):
            scene.time.advance(10)
            await scene.send("q", f"other {at}")
            await scene.flow()
        assert Ledger.open(scene.folders.ledger).summary().ids < 40

    play(tmp_path, plot)


def test_a_forget_survives_a_restart_and_merges(tmp_path: Path) -> None:
    time = FakeTime()

    async def before() -> None:
        async with scene(tmp_path, time) as stage:
            await stage.queue(detects=True)
            await stage.send("q", "a", "kept")
            for at in range(30):
                await stage.send("q", f"earlier {at}")
                await stage.flow()
            await stage.broker.forget("q", "a")
            for at in range(30):
                await stage.send("q", f"later {at}")
                await stage.flow()

    async def after() -> None:
        async with scene(tmp_path, time) as stage:
            assert [forget.message_id for forget in await stage.broker.forgets("q")] == ["a"]
            (again,) = await stage.send("q", "a")
            await stage.send("q", "a", "kept")
            drops = await stage.duplicates()
            assert [(drop.message_id, drop.original_sequence) for drop in drops] == [("a", again), ("kept", 2)]
            assert ids(await stage.broker.peek(Address("q"), again, 10)) == ["a"]

    asyncio.run(before())
    asyncio.run(after())


def test_a_partitioned_entity_forgets_the_id_under_one_key(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True, enable_partitioning=True)
        one, other, bare = message("a", partition_key="1"), message("a", partition_key="2"), message("a")
        await scene.send("q", one)
        await scene.send("q", other)
        await scene.send("q", bare)
        forget = await scene.broker.forget("q", "a", partition_key="1")
        assert forget is not None
        assert forget.original_sequence is not None
        for sent in (one, other, bare):
            await scene.send("q", sent)
        assert len(await scene.duplicates()) == 2
        forget = await scene.broker.forget("q", "a", session="2")
        assert forget is not None
        assert forget.original_sequence is not None, "the session is the effective key, as when sending"

    play(tmp_path, plot)


def test_messages_in_other_partitions_are_before_or_after_the_forget_as_they_were_sent(tmp_path: Path) -> None:
    """The clock stands still, and the numbers of different partitions cannot be compared."""

    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True, enable_partitioning=True, detection_key="property:order")
        for at in range(20):
            await scene.send("q", message(f"id {at}", user={"order": 42}))
            forget = await scene.broker.forget("q", "42")
            assert forget is not None
            assert forget.original_sequence is not None
        assert await scene.duplicates() == []
        assert len({forget.original_sequence >> 48 for forget in await scene.broker.forgets("q")}) > 3  # type: ignore[operator]
        await scene.send("q", message("other", user={"order": 42}), message("another", user={"order": 42}))
        assert len(await scene.duplicates()) == 1

    play(tmp_path, plot)


def test_a_topic_forgets_and_its_subscriptions_get_the_message_again(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.topic(detects=True)
        path = await scene.subscription()
        await scene.send("t", "a", "a")
        await scene.broker.forget("t", "a")
        await scene.send("t", "a")
        assert await scene.taken(path) == ["a", "a"]

    play(tmp_path, plot)


def test_a_scheduled_message_is_forgotten_like_any_other(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        await scene.send("q", message("a", scheduled=scene.time.now + 60 * SECOND))
        await scene.broker.forget("q", "a")
        await scene.send("q", "a")
        assert await scene.taken() == ["a"]
        await scene.later(61, rounds=2)
        assert await scene.taken() == ["a"], "the scheduled one still falls due"

    play(tmp_path, plot)


def test_what_cannot_be_forgotten_is_refused(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("plain")
        await scene.queue(detects=True)
        await scene.topic(detects=True)
        path = await scene.subscription()
        with pytest.raises(InvalidOperation, match="'plain' does not detect duplicates"):
            await scene.broker.forget("plain", "a")
        with pytest.raises(BadRequest, match="The id to forget is empty"):
            await scene.broker.forget("q", "")
        with pytest.raises(OutOfRange, match="MessageId"):
            await scene.broker.forget("q", "x" * 129)
        with pytest.raises(BadRequest, match="PartitionKey:b cannot be set"):
            await scene.broker.forget("q", "a", session="a", partition_key="b")
        with pytest.raises(BadRequest, match="subscription"):
            await scene.broker.forget(path, "a")
        with pytest.raises(NotFound):
            await scene.broker.forget("none", "a")
        assert await scene.broker.forgets("q") == []

    play(tmp_path, plot)


def test_a_forget_on_its_way_to_a_deleted_queue_leaves_nothing(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        await scene.send("q", "a")
        await scene.flow()
        scene.pipeline.is_paused = True
        task = asyncio.create_task(scene.broker.forget("q", "a"))
        await asyncio.sleep(0.05)
        await scene.delete_queue()
        scene.pipeline.is_paused = False
        assert await task is None
        await scene.queue(detects=True)
        assert await scene.broker.forgets("q") == []

    play(tmp_path, plot)


def test_the_record_keeps_the_newest_forgets(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        asked = [scene.broker.forget("q", f"id {at}") for at in range(FORGETS_KEPT + 5)]
        await asyncio.gather(*asked)
        first = await scene.broker.forgets("q", limit=2)
        assert [forget.message_id for forget in first] == ["id 5", "id 6"]
        assert len(await scene.broker.forgets("q", limit=10_000)) == FORGETS_KEPT
        following = await scene.broker.forgets("q", limit=1, after=first[-1].number)
        assert [forget.message_id for forget in following] == ["id 7"]
        newest = await scene.broker.newest_forgets("q", limit=1)
        assert [forget.message_id for forget in newest] == [f"id {FORGETS_KEPT + 4}"]

    play(tmp_path, plot)
