"""Requeued messages come after everything that was accepted before them, and arrive once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oncebus.broker.addresses import Address
from oncebus.engine.store import Action, Mode, Outcome, State, StoreFull
from oncebus.model.entities import EntityStatus
from oncebus.model.messages import PARTITION_SHIFT
from tests.broker.in_process import FakeTime
from tests.broker.scenes import DEAD, HOUR, SECOND, Scene, ids, message, play, scene, sequences

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "detecting": {"detects": True},
    "partitioned": {"enable_partitioning": True},
    "forwarding": {"forward_to": "end"},
}


async def chores(scene: Scene) -> None:
    """Do a round of chores without waiting for the pipeline."""
    for chore in scene.core.chores.all:
        chore.next = float("-inf")
    await scene.core.chores.round()
    assert scene.core.chores.trouble is None


async def received(scene: Scene, path: str) -> list[str]:
    """Return what a receiver gets at once."""
    return ids(await scene.broker.receive(Address(path), 100, mode=Mode.RECEIVE_AND_DELETE))


async def dead_letter(scene: Scene, path: str, identity: str) -> int:
    """Send a message, dead-letter it, and return its number."""
    await scene.send(path, identity)
    [held] = await scene.receive(path)
    await scene.settle(path, held, Action.DEAD_LETTER)
    return held.message.sequence


@pytest.mark.parametrize("kind", KINDS)
def test_a_due_message_comes_after_messages_accepted_before_it(tmp_path: Path, kind: str) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("end")
        await scene.queue("q", **KINDS[kind])
        end = "end" if kind == "forwarding" else "q"
        key: dict[str, Any] = {"partition_key": "k"} if kind == "partitioned" else {}
        [number] = await scene.send("q", message("due", scheduled=scene.time.now + HOUR, **key))
        await scene.flow()
        scene.time.advance(3600)
        scene.pipeline.is_paused = True
        await scene.send("q", *(message(each, **key) for each in "ab"))
        await chores(scene)
        await scene.send("q", message("c", **key))
        assert await received(scene, end) == []
        scene.pipeline.is_paused = False
        await scene.rounds(2)
        found = await scene.receive(end)
        assert ids(found) == ["a", "b", "due", "c"]
        assert sequences(found) == sorted(sequences(found))
        assert len({each.message.sequence >> PARTITION_SHIFT for each in found}) == 1
        due = found[2].message
        assert (due.enqueued, due.state, due.deliveries) == (scene.time.now, State.ACTIVE, 1)
        if kind != "forwarding":
            assert due.sequence == due.enqueued_sequence == number + 3
            assert due.scheduled == scene.time.now
            counts = await scene.counts()
            assert (counts.new, counts.incoming, counts.duplicates) == (4, 4, 0)
            assert (counts.active, counts.scheduled, counts.transfer) == (4, 0, 0)

    play(tmp_path, plot)


def test_a_due_message_of_a_session_comes_after_the_others_in_it(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(requires_session=True)
        await scene.send("q", message("due", session="s", scheduled=scene.time.now + HOUR))
        await scene.flow()
        scene.time.advance(3600)
        scene.pipeline.is_paused = True
        await scene.send("q", message("a", session="s"))
        await chores(scene)
        assert await scene.broker.accept_session(Address("q"), None) is None
        scene.pipeline.is_paused = False
        await scene.flow()
        lock = await scene.broker.accept_session(Address("q"), "s")
        assert ids(await scene.broker.receive(Address("q"), 9, session=lock)) == ["a", "due"]

    play(tmp_path, plot)


@pytest.mark.parametrize("kind", KINDS)
def test_a_resubmitted_dead_letter_comes_after_messages_accepted_before_it(tmp_path: Path, kind: str) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("end")
        properties = dict(KINDS[kind])
        detects = properties.pop("detects", False)
        await scene.queue("q", detects=detects, **{k: v for k, v in properties.items() if k != "forward_to"})
        number = await dead_letter(scene, "q", "again")
        if "forward_to" in properties:
            changed = replace(scene.broker.catalogue.queue("q"), **properties)
            await scene.broker.change(lambda catalogue, now: catalogue.update(changed, now))
        end = "end" if kind == "forwarding" else "q"
        scene.pipeline.is_paused = True
        key: dict[str, Any] = {"session": "again"} if kind == "partitioned" else {}
        await scene.send("q", message("a", **key))
        assert await scene.broker.resubmit("q", [number]) == [Outcome.DONE]
        assert await scene.broker.resubmit("q", [number]) == [Outcome.MESSAGE_NOT_FOUND]
        assert await received(scene, end) == []
        scene.pipeline.is_paused = False
        if kind == "forwarding":
            await scene.rounds(2)
        # A reader sees it as it sees a send, without waiting for the next round.
        assert {*ids(await scene.broker.peek(Address(end), 0, 9))} == {"a", "again"}
        found = await scene.receive(end)
        if kind != "partitioned":
            assert ids(found) == ["a", "again"]
        counts = await scene.counts()
        assert (counts.dead_letter, counts.new, counts.duplicates) == (0, 2, 0)

    play(tmp_path, plot)


def test_a_dead_letter_resubmitted_in_a_subscription_is_numbered_there(tmp_path: Path) -> None:
    """Messages in the pipeline get their number when they arrive at the subscription, so a higher one."""

    async def plot(scene: Scene) -> None:
        await scene.topic()
        path = await scene.subscription()
        await scene.send("t", "again")
        [held] = await scene.receive(path)
        await scene.settle(path, held, Action.DEAD_LETTER)
        scene.pipeline.is_paused = True
        await scene.send("t", "a")
        assert await scene.broker.resubmit(path, [1]) == [Outcome.DONE]
        [first] = await scene.broker.receive(Address(path), 9)
        scene.pipeline.is_paused = False
        [second] = await scene.receive(path)
        assert [(each.message.message_id, each.message.sequence) for each in (first, second)] == [
            ("again", 2),
            ("a", 3),
        ]

    play(tmp_path, plot)


def test_a_due_message_in_the_pipeline_is_shown_once_and_cannot_be_cancelled(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        numbers = await scene.send(
            "q", *(message(each, bytes(1000), scheduled=scene.time.now + SECOND) for each in ("a", "b"))
        )
        await scene.flow()
        size = (await scene.counts()).size
        assert await scene.broker.cancel_scheduled("q", numbers[:1]) == [Outcome.DONE]
        scene.time.advance(1)
        scene.pipeline.is_paused = True
        core = scene.core
        await core.chores._fall_due()

        async def seen() -> tuple[list[tuple[str, State]], int, int, int]:
            found = await scene.broker.peek(Address("q"), 0, 9)
            counts = await scene.broker.counts("q")
            states = [(each.message.message_id, each.message.state) for each in found]
            return states, counts.scheduled, counts.active, scene.broker.held(scene.broker.catalogue.queue("q"))

        assert await seen() == ([("b", State.SCHEDULED)], 1, 0, size)
        await core.accounting.refresh_sizes(scene.core.store)
        assert (await seen())[3] == size // 2
        await core.chores.requeue.step()
        # Its bytes in the pipeline count too, but only once.
        assert scene.broker.held(scene.broker.catalogue.queue("q")) == size // 2
        looking = asyncio.create_task(seen())
        cancelling = asyncio.create_task(scene.broker.cancel_scheduled("q", numbers))
        scene.pipeline.is_paused = False
        assert await looking == ([("b", State.ACTIVE)], 0, 1, size // 2)
        assert await cancelling == [Outcome.MESSAGE_NOT_FOUND, Outcome.MESSAGE_NOT_FOUND]

    play(tmp_path, plot)


def test_due_messages_are_enqueued_in_the_order_of_their_times(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        for identity, seconds in (("c", 3), ("a", 1), ("b", 2), ("also c", 3)):
            await scene.send("q", message(identity, scheduled=scene.time.now + seconds * SECOND))
        await scene.later(60)
        assert await scene.taken() == ["a", "b", "c", "also c"]

    play(tmp_path, plot)


@pytest.mark.parametrize("status", [EntityStatus.SEND_DISABLED, EntityStatus.DISABLED])
def test_a_full_or_disabled_queue_still_enqueues_messages_it_accepted_before(
    tmp_path: Path, status: EntityStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        number = await dead_letter(scene, "q", "again")
        await scene.send("q", message("due", scheduled=scene.time.now + SECOND))
        await scene.flow()
        disabled = replace(scene.broker.catalogue.queue("q"), status=status)
        await scene.broker.change(lambda catalogue, now: catalogue.update(disabled, now))
        with monkeypatch.context() as patch:
            patch.setattr(scene.core.accounting, "held", lambda entity: 1 << 40)
            await scene.broker.resubmit("q", [number])
            await scene.later(1)
        active = replace(disabled, status=EntityStatus.ACTIVE)
        await scene.broker.change(lambda catalogue, now: catalogue.update(active, now))
        assert await scene.taken() == ["again", "due"]

    play(tmp_path, plot)


@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.parametrize("has_arrived", [True, False])
def test_a_returning_message_arrives_once_and_counts_once_after_a_crash_at_any_point(
    tmp_path: Path, is_told: bool, has_arrived: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are durable in the inbox. The store may know that, and may have ingested them."""

    async def run() -> None:
        time = FakeTime()
        async with scene(tmp_path, time) as first:
            await first.queue(detects=True)
            number = await dead_letter(first, "q", "again")
            await first.send("q", message("due", bytes(100_000), scheduled=time.now + SECOND))
            await first.flow()
            time.advance(1)
            first.pipeline.is_paused = True
            await first.send("q", "a")
            await first.core.chores._fall_due()

            def die(*arguments: object) -> None:
                raise StoreFull("dead")

            if not is_told:
                monkeypatch.setattr(first.core.store._store.requeues, "end", die)
            # This step also hands over due messages.
            assert await first.broker.resubmit("q", [number]) == [Outcome.DONE]
            if has_arrived:
                first.pipeline.is_paused = False
                await first.flow()
        async with scene(tmp_path, time) as second:
            await second.flow()
            counts = await second.counts()
            assert (counts.active, counts.scheduled, counts.dead_letter, counts.transfer) == (3, 0, 0, 0)
            assert await second.peeked() == ["a", "again", "due"]
            await second.rounds(3)
            assert await second.peeked(sub_queue=DEAD) == []
            found = await second.receive()
            assert (ids(found), len(found[2].body) > 100_000) == (["a", "again", "due"], True)
            counts = await second.counts()
            assert (counts.new, counts.duplicates, counts.active) == (3, 0, 3)
            # The store does not remember origins for ever.
            await second.send("q", "last")
            await second.rounds(2)
            assert second.core.store._store._tables.origins.count() == 0

    asyncio.run(run())


def test_nothing_is_forwarded_into_a_pipeline_that_is_full(tmp_path: Path) -> None:
    """The messages are just as safe in the store, and move on when there is room."""

    async def plot(scene: Scene) -> None:
        await scene.queue("end")
        await scene.queue("q", forward_to="end")
        await scene.send("q", message("a", bytes(2000)))
        await scene.flow()
        scene.pipeline.is_paused = True
        await scene.send("end", message("b", bytes(7900)))
        appended = scene.core.entrance.acceptor.last_commit
        for _ in range(3):
            await scene.core.chores.requeue.step()
        assert scene.core.entrance.acceptor.last_commit == appended
        scene.pipeline.is_paused = False
        await scene.rounds(2)
        assert await scene.taken("end") == ["b", "a"]

    play(tmp_path, plot, most_bytes=8000)
