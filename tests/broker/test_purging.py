"""Purging: deletes what is there now and nobody holds, in small steps, and forgets no id."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from oncebus.broker import maintenance
from oncebus.broker.addresses import Address
from oncebus.engine.store import Action
from oncebus.model.entities import BadRequest, NotFound
from tests.broker.scenes import DEAD, HOUR, Scene, ids, message, play


def test_a_purge_leaves_what_is_locked_deferred_or_scheduled(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        await scene.send("q", "locked", "deferred", "one", "two")
        await scene.send("q", message("scheduled", scheduled=scene.time.now + HOUR))
        _, deferred = await scene.receive(count=2)
        await scene.settle("q", deferred, Action.DEFER)
        done = await scene.broker.purge(Address("q"))
        assert (done.deleted, done.left, done.has_more) == (2, 3, False)
        assert sorted(await scene.peeked()) == ["deferred", "locked", "scheduled"]
        counts = await scene.counts()
        assert (counts.active, counts.deferred, counts.scheduled) == (1, 1, 1)
        await scene.send("q", "one")
        assert len(await scene.duplicates()) == 1, "a purged id is still remembered"

    play(tmp_path, plot)


def test_a_purge_waits_for_what_was_sent_and_spares_what_comes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "PURGED_AT_ONCE", 2)
    monkeypatch.setattr(maintenance, "MOST_PURGED", 4)

    async def plot(scene: Scene) -> None:
        await scene.queue()
        scene.pipeline.is_paused = True
        await scene.send("q", *(f"id {at}" for at in range(7)))
        purging = asyncio.create_task(scene.broker.purge(Address("q")))
        await asyncio.sleep(0.01)
        scene.pipeline.is_paused = False
        first = await purging
        assert (first.deleted, first.has_more) == (4, True)
        scene.time.advance(1)
        await scene.send("q", "later")
        rest = await scene.broker.purge(Address("q"), first.before)
        assert (rest.deleted, rest.left, rest.has_more) == (3, 1, False)
        assert await scene.taken() == ["later"]

    play(tmp_path, plot)


def test_a_purge_goes_on_after_many_messages_that_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "PURGE_READS_AT_ONCE", 2)

    async def plot(scene: Scene) -> None:
        await scene.queue()
        await scene.send("q", *(f"deferred {at}" for at in range(5)), "one", "two", "three")
        for each in await scene.receive(count=5):
            await scene.settle("q", each, Action.DEFER)
        done = await scene.broker.purge(Address("q"))
        assert (done.deleted, done.left, done.has_more) == (3, 5, False)

    play(tmp_path, plot)


def test_others_use_the_store_while_a_purge_is_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "PURGED_AT_ONCE", 5)

    async def plot(scene: Scene) -> None:
        await scene.queue()
        await scene.send("q", *(f"id {at}" for at in range(200)))
        await scene.flow()
        purging = asyncio.create_task(scene.broker.purge(Address("q")))
        seen = []
        while not purging.done():
            (found,) = await scene.broker.counts_now([scene.broker.catalogue.queue("q").id])
            seen.append(found.active)
        assert (await purging).deleted == 200
        assert len({count for count in seen if 0 < count < 200}) > 3

    play(tmp_path, plot)


def test_sessions_subscriptions_and_dead_letters_are_purged(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(requires_session=True)
        await scene.send("q", message("a", session="1"), message("b", session="2"), message("c", session="1"))
        assert (await scene.broker.purge(Address("q"))).deleted == 3
        assert await scene.broker.sessions(Address("q")) == []
        await scene.topic()
        path = await scene.subscription()
        await scene.send("t", "x", "y")
        x, _ = await scene.receive(path)
        await scene.settle(path, x, Action.DEAD_LETTER)
        done = await scene.broker.purge(Address(path, DEAD))
        assert (done.deleted, done.left) == (1, 0)
        assert ids(await scene.broker.peek(Address(path), 0, 9)) == ["y"]
        with pytest.raises(BadRequest, match="subscription of the topic 't'"):
            await scene.broker.purge(Address("t"))
        with pytest.raises(NotFound):
            await scene.broker.purge(Address("none"))

    play(tmp_path, plot)
