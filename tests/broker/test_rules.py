"""What is a duplicate: rules 1 to 5, each clause through the broker."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oncebus.broker.addresses import Address
from oncebus.engine.store import Action, Mode
from oncebus.model.entities import BadRequest, Catalogue, OutOfRange, Queue
from tests.broker.in_process import FakeTime
from tests.broker.scenes import DAY, DEAD, HOUR, SECOND, Scene, message, play, scene


def window(seconds: float) -> dict[str, Any]:
    return {"duplicate_detection_history_time_window": round(seconds * SECOND)}


# 1. Belongs to a queue or a topic, off by default, chosen at creation, checked once before fan-out.


def test_detection_is_off_by_default_for_queues_and_topics(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        await scene.topic()
        path = await scene.subscription()
        for target in ("q", "t"):
            await scene.send(target, "a", "a")
        assert await scene.taken("q") == ["a", "a"]
        assert await scene.taken(path) == ["a", "a"]
        assert (await scene.counts()).duplicates == 0

    play(tmp_path, plot)


@pytest.mark.parametrize("detects", [True, False])
@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_detection_cannot_be_switched_later(tmp_path: Path, kind: str, detects: bool) -> None:
    async def plot(scene: Scene) -> None:
        entity = await (scene.queue("e", detects=detects) if kind == "queue" else scene.topic("e", detects=detects))

        def switch(catalogue: Catalogue, now: int) -> Catalogue:
            changed = replace(entity, requires_duplicate_detection=not detects)
            if isinstance(changed, Queue):
                return catalogue.update(changed, now)
            return catalogue.update(changed, now)

        with pytest.raises(BadRequest, match=r"RequiresDuplicateDetection .* cannot be changed"):
            await scene.broker.change(switch)
        await scene.send("e", "a", "a")
        assert (await scene.counts("e")).duplicates == detects

    play(tmp_path, plot)


def test_a_topic_is_checked_once_and_every_subscription_gets_the_one_message(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.topic(detects=True)
        paths = [await scene.subscription(name) for name in ("s1", "s2", "s3")]
        await scene.send("t", "a", "b", "a")
        assert [await scene.taken(path) for path in paths] == [["a", "b"]] * 3
        counts = await scene.counts("t")
        assert (counts.new, counts.duplicates) == (2, 1)

    play(tmp_path, plot)


# 2. The window: its bounds, its default, its change.


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        (20 * SECOND, True),
        (20 * SECOND - 1, False),
        (7 * DAY, True),
        (7 * DAY + 1, False),
        (25 * DAY, False),
        (0, False),
        (HOUR, True),
    ],
)
def test_the_window_is_between_20_seconds_and_7_days(tmp_path: Path, given: int, allowed: bool) -> None:
    async def plot(scene: Scene) -> None:
        if allowed:
            await scene.queue(detects=True, **window(given / SECOND))
            assert scene.broker.catalogue.queue("q").window == given
        else:
            with pytest.raises(OutOfRange, match=r"must be between 00:00:20 and 7\.00:00:00"):
                await scene.queue(detects=True, **window(given / SECOND))
            assert scene.broker.catalogue.find("q") is None

    play(tmp_path, plot)


@pytest.mark.parametrize(
    ("first", "second", "after", "is_duplicate"),
    [
        # Seconds: the window that the first message met, the one that the second met, and the time between.
        (600, 600, 599.999999, True),
        (600, 600, 600, False),
        (600, 60, 59.999999, True),
        (600, 60, 60, False),
        (60, 600, 59.999999, True),
        (60, 600, 60, False),
    ],
)
def test_after_a_change_of_the_window_the_shorter_one_counts(
    tmp_path: Path, first: float, second: float, after: float, is_duplicate: bool
) -> None:
    async def plot(scene: Scene) -> None:
        queue = await scene.queue(detects=True, **window(first))
        await scene.send("q", "a")
        await scene.flow()
        changed = replace(queue, **window(second))
        await scene.broker.change(lambda catalogue, now: catalogue.update(changed, now))
        scene.time.advance(after)
        await scene.send("q", "a")
        assert await scene.taken() == (["a"] if is_duplicate else ["a", "a"])

    play(tmp_path, plot)


def test_the_window_is_ten_minutes_unless_given(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        for at, expected in ((0, 1), (599.999999, 1), (0.000001, 2)):
            scene.time.advance(at)
            await scene.send("q", "a")
            assert (await scene.counts()).active == expected

    play(tmp_path, plot)


# 3. A key accepted less than a window ago is a duplicate: accepted, never delivered, whatever the body.


def test_a_duplicate_is_reported_as_accepted_and_never_delivered(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        first = await scene.send("q", message("a", b"one"))
        again = await scene.send("q", message("a", b"two", user={"x": 1}, ttl=SECOND, subject="other"))
        assert (first, again) == ([1], [2])
        [received] = await scene.receive()
        assert received.body.endswith(b"one")
        await scene.later(3600)
        assert (await scene.counts()).active == 1

    play(tmp_path, plot)


# 4. When the window starts, and that nothing but time ends it.


def test_a_dropped_duplicate_does_not_extend_the_window(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True, **window(60))
        accepted = []
        for second in range(0, 180, 20):
            [number] = await scene.send("q", "a")
            accepted.append(number) if second % 60 == 0 else None
            await scene.flow()
            scene.time.advance(20)
        assert [each.message.sequence for each in await scene.receive()] == accepted

    play(tmp_path, plot)


async def received(scene: Scene) -> None:
    await scene.receive()


async def completed(scene: Scene) -> None:
    [each] = await scene.receive()
    await scene.settle("q", each, Action.COMPLETE)


async def received_and_deleted(scene: Scene) -> None:
    await scene.receive(mode=Mode.RECEIVE_AND_DELETE)


async def deferred(scene: Scene) -> None:
    [each] = await scene.receive()
    await scene.settle("q", each, Action.DEFER)


async def dead_lettered(scene: Scene) -> None:
    [each] = await scene.receive()
    await scene.settle("q", each, Action.DEAD_LETTER)


async def dead_letter_completed(scene: Scene) -> None:
    await dead_lettered(scene)
    await scene.taken(sub_queue=DEAD)


async def purged(scene: Scene) -> None:
    await scene.flow()
    assert await scene.broker.delete_messages(Address("q"), scene.time.now + 1, 10) == 1


async def nothing(scene: Scene) -> None:
    pass


@pytest.mark.parametrize(
    "happens",
    [nothing, received, completed, received_and_deleted, deferred, dead_lettered, dead_letter_completed, purged],
)
def test_the_key_is_remembered_whatever_happens_to_the_first_message(tmp_path: Path, happens: object) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True, **window(60))
        await scene.send("q", "a")
        await happens(scene)  # type: ignore[operator]
        scene.time.advance(59.999999)
        await scene.send("q", "a")
        assert (await scene.counts()).duplicates == 1
        scene.time.advance(0.000001)
        await scene.send("q", "a")
        counts = await scene.counts()
        assert (counts.duplicates, counts.new) == (1, 2)

    play(tmp_path, plot)


def test_the_key_of_an_expired_message_is_remembered(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True, **window(60))
        await scene.send("q", message("a", ttl=SECOND))
        await scene.flow()
        await scene.later(2)
        assert (await scene.counts()).active == 0
        await scene.send("q", "a")
        assert (await scene.counts()).duplicates == 1

    play(tmp_path, plot)


def test_the_window_of_a_scheduled_message_starts_when_it_is_scheduled(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True, **window(60))
        await scene.send("q", message("a", scheduled=scene.time.now + HOUR))
        scene.time.advance(59)
        await scene.send("q", "a")
        assert (await scene.counts()).duplicates == 1
        scene.time.advance(1)
        await scene.send("q", "a")
        assert await scene.taken() == ["a"]
        # Falling due neither makes it a duplicate nor starts a window.
        await scene.later(3600)
        assert await scene.taken() == ["a"]
        await scene.send("q", "a")
        assert await scene.taken() == ["a"]

    play(tmp_path, plot)


def test_the_key_of_a_cancelled_message_is_remembered(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        [number] = await scene.send("q", message("a", scheduled=scene.time.now + HOUR))
        await scene.broker.cancel_scheduled("q", [number])
        await scene.send("q", "a")
        counts = await scene.counts()
        assert (counts.scheduled, counts.active, counts.duplicates) == (0, 0, 1)

    play(tmp_path, plot)


def test_keys_are_remembered_across_restarts(tmp_path: Path) -> None:
    async def run() -> None:
        time = FakeTime()
        async with scene(tmp_path, time) as first:
            await first.queue(detects=True, **window(7 * 24 * 3600))
            await first.send("q", "a")
            await first.flow()
        time.advance(7 * 24 * 3600 - 1)
        async with scene(tmp_path, time) as second:
            await second.send("q", "a")
            assert (await second.counts()).duplicates == 1
        time.advance(1)
        async with scene(tmp_path, time) as third:
            await third.send("q", "a")
            assert await third.taken() == ["a", "a"]

    asyncio.run(run())


# 5. The key: incarnation, message id, and on a partitioned entity the effective partition key.


def test_a_queue_that_is_deleted_and_created_again_has_forgotten_its_ids(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        await scene.send("q", "a")
        await scene.flow()
        await scene.delete_queue()
        await scene.queue(detects=True)
        assert await scene.send("q", "a", "a") == [1, 2]
        assert await scene.taken() == ["a"]
        assert (await scene.counts()).duplicates == 1

    play(tmp_path, plot)


def test_entities_do_not_share_their_keys(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        for name in ("q1", "q2"):
            await scene.queue(name, detects=True)
            await scene.send(name, "a")
            assert await scene.taken(name) == ["a"]

    play(tmp_path, plot)


@pytest.mark.parametrize(
    ("partitioned", "first", "second", "is_duplicate"),
    [
        (False, {"partition_key": "p"}, {"partition_key": "r"}, True),
        (False, {"session": "s"}, {"session": "z"}, True),
        (True, {}, {}, True),
        (True, {"partition_key": "p"}, {"partition_key": "p"}, True),
        (True, {"partition_key": "p"}, {"partition_key": "r"}, False),
        (True, {"partition_key": "p"}, {}, False),
        (True, {"session": "s"}, {"session": "z"}, False),
        (True, {"session": "s"}, {"session": "S"}, True),
        # The form of a session that is compared is in upper case; partition keys are compared exactly.
        (True, {"session": "s"}, {"partition_key": "S"}, True),
        (True, {"session": "s"}, {"partition_key": "s"}, False),
        (True, {"session": "s", "partition_key": "s"}, {"session": "s"}, True),
    ],
)
def test_a_partitioned_entity_adds_the_effective_partition_key(
    tmp_path: Path, partitioned: bool, first: dict[str, Any], second: dict[str, Any], is_duplicate: bool
) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True, enable_partitioning=partitioned)
        await scene.send("q", message("a", **first), message("a", **second))
        assert (await scene.counts()).duplicates == is_duplicate

    play(tmp_path, plot)


def test_with_a_session_another_partition_key_is_refused(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True, enable_partitioning=True)
        with pytest.raises(BadRequest, match="PartitionKey:p cannot be set to a different value than SessionId:s"):
            await scene.send("q", message("a", session="s", partition_key="p"))
        assert (await scene.counts()).new == 0

    play(tmp_path, plot)


@pytest.mark.parametrize(
    ("detects", "first", "second", "same"),
    [
        (True, message("a", session="s"), message("b", session="s"), True),
        (True, message("a", partition_key="p"), message("b", partition_key="p"), True),
        (True, message("a", session="p"), message("b", session="P"), True),
        (True, message("a", session="p"), message("b", partition_key="P"), True),
        (False, message("a"), message("a"), False),
    ],
)
def test_what_chooses_the_partition(tmp_path: Path, detects: bool, first: object, second: object, same: bool) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=detects, enable_partitioning=True)
        numbers = await scene.send("q", first, second)  # type: ignore[arg-type]
        one, other = (number >> 48 for number in numbers)
        assert (one == other) is same
        assert all(number & ((1 << 48) - 1) in (1, 2) for number in numbers)

    play(tmp_path, plot)


def test_with_detection_the_message_id_chooses_the_partition(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True, enable_partitioning=True)
        names = [f"m{number}" for number in range(40)]
        numbers = await scene.send("q", *names)
        again = await scene.send("q", *names)
        assert [number >> 48 for number in again] == [number >> 48 for number in numbers]
        assert len({number >> 48 for number in numbers}) > 8
        assert max(number >> 48 for number in numbers) < 16
        assert (await scene.counts()).duplicates == 40

    play(tmp_path, plot)
