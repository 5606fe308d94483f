"""What is a duplicate: rules 6 to 10, each clause through the broker."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from oncebus import amqp
from oncebus.amqp.types import ULong
from oncebus.model.entities import BadRequest, OutOfRange, Tier
from tests.broker.scenes import HOUR, Scene, message, play

# 6. Ids: their length, how they are compared, and the type that comes back.

UUID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")


@pytest.mark.parametrize("name", ["MessageId", "SessionId", "PartitionKey"])
@pytest.mark.parametrize(
    ("text", "allowed"),
    [("x" * 128, True), ("x" * 129, False), ("ö" * 128, True), ("😀" * 64, True), ("😀" * 64 + "x", False)],
)
def test_ids_hold_at_most_128_utf16_units(tmp_path: Path, name: str, text: str, allowed: bool) -> None:
    more: dict[str, Any] = {}
    if name != "MessageId":
        more = {"session" if name == "SessionId" else "partition_key": text}
    sent = message(text if name == "MessageId" else "a", **more)

    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        if allowed:
            await scene.send("q", sent)
            assert (await scene.counts()).active == 1
        else:
            with pytest.raises(OutOfRange, match=f"'{name}' cannot exceed 128 characters"):
                await scene.send("q", "fine", sent)
            assert (await scene.counts()).active == 0

    play(tmp_path, plot)


@pytest.mark.parametrize(
    ("first", "second", "is_duplicate"),
    [
        ("a", "a", True),
        ("a", "A", False),
        ("a", "a ", False),
        ("12345.2017/Payment", "12345.2017/Payment", True),
        ("ödeme", "ödeme", True),
        # The same letters in another normal form are another id.
        ("\u00f6deme", "o\u0308deme", False),
        (UUID, str(UUID), True),
        (UUID, str(UUID).upper(), False),
        (ULong(17), "17", True),
        (ULong(17), "017", False),
        (b"17", b"17", True),
        (b"17", "17", False),
        (UUID.bytes, UUID, False),
        (UUID.bytes, UUID.hex, False),
        ("", "", False),
    ],
)
def test_how_ids_are_compared(tmp_path: Path, first: amqp.Id, second: amqp.Id, is_duplicate: bool) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        await scene.send("q", message(first), message(second))
        assert (await scene.counts()).duplicates == is_duplicate

    play(tmp_path, plot)


def test_the_type_of_an_id_comes_back(tmp_path: Path) -> None:
    given: list[amqp.Id] = ["text", UUID, ULong(17), b"\x00\xff"]

    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        await scene.send("q", *(message(each) for each in given))
        found = [amqp.message_id(each.message.head) for each in await scene.receive()]
        assert found == given
        assert [type(each) for each in found] == [type(each) for each in given]

    play(tmp_path, plot)


# 7. Without an id.


def test_messages_without_an_id_get_fresh_ones_and_are_never_duplicates(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        await scene.queue("p", detects=True, enable_partitioning=True)
        for path in ("q", "p"):
            await scene.send(path, message(), message())
            await scene.send(path, message(session="s"))
            found = await scene.receive(path)
            given = [amqp.message_id(each.message.head) for each in found]
            assert given == [each.message.message_id for each in found]
            assert len({*given}) == 3
            assert all(given)
            assert (await scene.counts(path)).duplicates == 0

    play(tmp_path, plot)


# 8. Within a batch and between batches, scheduled or not.


def test_the_first_of_a_batch_wins(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        await scene.send("q", *(message("ab"[number % 2], bytes([number])) for number in range(10)))
        found = await scene.receive()
        assert [(each.message.message_id, each.body[-1], each.message.sequence) for each in found] == [
            ("a", 0, 1),
            ("b", 1, 2),
        ]
        assert [each.original_sequence for each in await scene.duplicates()] == [1, 2] * 4

    play(tmp_path, plot)


@pytest.mark.parametrize("is_first_scheduled", [True, False])
@pytest.mark.parametrize("is_second_scheduled", [True, False])
@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_scheduled_messages_take_part_at_once(
    tmp_path: Path, kind: str, is_first_scheduled: bool, is_second_scheduled: bool
) -> None:
    async def plot(scene: Scene) -> None:
        await (scene.queue("e", detects=True) if kind == "queue" else scene.topic("e", detects=True))
        path = "e" if kind == "queue" else await scene.subscription(topic="e")
        at = scene.time.now + HOUR
        await scene.send("e", message("a", scheduled=at if is_first_scheduled else None))
        await scene.send("e", message("a", scheduled=at if is_second_scheduled else None))
        assert (await scene.counts("e")).duplicates == 1
        await scene.later(3600)
        assert await scene.taken(path) == ["a"]
        assert (await scene.counts("e")).duplicates == 1

    play(tmp_path, plot)


# 9. Tiers and express.


@pytest.mark.parametrize(
    ("tier", "kind", "properties", "allowed"),
    [
        (Tier.BASIC, "queue", {}, True),
        (Tier.BASIC, "queue", {"detects": True}, False),
        (Tier.BASIC, "queue", {"requires_session": True}, False),
        (Tier.BASIC, "queue", {"forward_to": "other"}, False),
        (Tier.BASIC, "topic", {}, False),
        (Tier.STANDARD, "queue", {"detects": True, "enable_partitioning": True}, True),
        (Tier.STANDARD, "topic", {"detects": True, "enable_partitioning": True}, True),
        (Tier.STANDARD, "queue", {"detects": True, "enable_express": True}, False),
        (Tier.STANDARD, "topic", {"detects": True, "enable_express": True}, False),
        (Tier.PREMIUM, "queue", {"detects": True}, True),
        (Tier.PREMIUM, "topic", {"detects": True}, True),
        (Tier.PREMIUM, "queue", {"enable_partitioning": True}, False),
        (Tier.PREMIUM, "topic", {"enable_partitioning": True}, False),
    ],
)
def test_what_each_tier_allows(
    tmp_path: Path, tier: Tier, kind: str, properties: dict[str, Any], allowed: bool
) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("other")
        create = scene.queue if kind == "queue" else scene.topic
        if allowed:
            await create("e", **properties)
            await scene.send("e", "a", "a")
            assert (await scene.counts("e")).duplicates == properties.get("detects", False)
        else:
            version = scene.broker.catalogue.version
            with pytest.raises(BadRequest):
                await create("e", **properties)
            assert scene.broker.catalogue.version == version

    play(tmp_path, plot, tier=tier)


# 10. Every dropped duplicate can be seen.


def test_every_duplicate_is_counted_and_recorded_with_its_original(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        start = scene.time.now
        await scene.send("q", "a", "b")
        scene.time.advance(1)
        await scene.send("q", "a")
        scene.time.advance(1)
        await scene.send("q", "b", "c", "a")
        duplicates = await scene.duplicates()
        assert [
            (each.message_id, each.time - start, each.sequence, each.original_sequence, each.original_time)
            for each in duplicates
        ] == [("a", 1_000_000, 3, 1, start), ("b", 2_000_000, 4, 2, start), ("a", 2_000_000, 6, 1, start)]
        assert (await scene.counts()).duplicates == 3
        assert [each.sequence for each in await scene.broker.duplicates("q", message_id="a")] == [3, 6]
        assert [each.sequence for each in await scene.broker.duplicates("q", since=start + 2_000_000)] == [4, 6]
        page = await scene.broker.duplicates("q", limit=1, after=duplicates[0].number)
        assert [each.sequence for each in page] == [4]

    play(tmp_path, plot)


def test_the_newest_duplicates_with_an_id_are_shown_first(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        for _ in range(5):
            await scene.send("q", "a", "b")
            scene.time.advance(1)
        assert len(await scene.duplicates()) == 8
        assert [each.sequence for each in await scene.broker.looking.duplicates_with_id("a", 2)] == [9, 7]

    play(tmp_path, plot)


def test_the_duplicates_of_a_topic_are_recorded_for_the_topic(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.topic(detects=True)
        path = await scene.subscription()
        await scene.send("t", "a", "a")
        assert [each.original_sequence for each in await scene.duplicates("t")] == [1]
        assert await scene.duplicates(path) == []

    play(tmp_path, plot)
