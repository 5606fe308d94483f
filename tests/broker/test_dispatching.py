"""Calls that wait and links share dispatchers: one look for all of them, and each has its turn."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from oncebus.broker.addresses import Address
from oncebus.broker.broker import Received
from oncebus.broker.waiting import Patience
from oncebus.engine.store import Mode, SessionLock, SubQueue
from oncebus.model.entities import NotFound
from tests.broker.scenes import SECOND, Scene, message, play

ORDERS = Address("orders")


class Link:
    """A waiter that takes as many messages as it has credit."""

    def __init__(self, credit: int) -> None:
        self.credit = credit
        self.taken: list[Received] = []
        self.finished = 0
        self.is_there = True

    @property
    def wanted(self) -> int:
        return self.credit

    @property
    def can_take(self) -> bool:
        return self.credit > 0

    def deliver(self, item: Received) -> None:
        self.credit -= 1
        self.taken.append(item)

    def finish(self) -> None:
        self.finished += 1

    def fail(self, error: Exception) -> None:
        raise error


async def settle_down() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def waiting_calls(scene: Scene, count: int, wait: float | Patience = 60.0) -> list[asyncio.Task[list[Received]]]:
    return [asyncio.create_task(scene.broker.receive(ORDERS, 1, wait=wait)) for _ in range(count)]


def test_an_arrival_causes_one_look_for_all_calls_that_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("orders")
        looks: list[int] = []
        receive_now = scene.broker.receive_now

        async def noted(*given: Any) -> list[Received]:
            looks.append(given[2])
            return await receive_now(*given)

        monkeypatch.setattr(scene.broker.receivers, "receive_now", noted)
        calls = waiting_calls(scene, 20)
        while not looks:
            await asyncio.sleep(0)
        await scene.send("orders", *(message(str(number)) for number in range(20)))
        found = await asyncio.gather(*calls)
        assert sorted(each[0].message.sequence for each in found) == list(range(1, 21))
        # One look when they come, and one for the arrival.
        assert looks == [20, 20]

    play(tmp_path, plot)


def test_calls_and_links_have_their_turns(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        entity = await scene.queue("orders")
        link = Link(2)
        scene.broker.dispatcher(entity.id, ORDERS, Mode.PEEK_LOCK).join(link)
        calls = waiting_calls(scene, 2)
        await settle_down()
        await scene.send("orders", *(message(str(number)) for number in range(4)))
        first, second = await asyncio.gather(*calls)
        assert [each.message.sequence for each in link.taken] == [1, 4]
        assert (first[0].message.sequence, second[0].message.sequence) == (2, 3)

    play(tmp_path, plot)


def test_a_hurried_waiter_gets_what_is_there_and_is_told_the_end_once(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        entity = await scene.queue("orders")
        await scene.send("orders", message("a"), message("b"))
        await scene.flow()
        link = Link(5)
        scene.broker.dispatcher(entity.id, ORDERS, Mode.PEEK_LOCK).hurry(link)
        while not link.finished:
            await asyncio.sleep(0)
        assert (len(link.taken), link.finished) == (2, 1)
        # It has been removed.
        await scene.send("orders", message("c"))
        await scene.flow()
        assert (len(link.taken), link.finished) == (2, 1)

    play(tmp_path, plot)


def test_a_call_ends_with_its_patience_and_the_others_wait_on(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("orders")
        patience = Patience(3600)
        (hasty,), (patient,) = waiting_calls(scene, 1, patience), waiting_calls(scene, 1)
        await settle_down()
        patience.end()
        assert await hasty == []
        assert not patient.done()
        await scene.send("orders", message("a"))
        assert len(await patient) == 1

    play(tmp_path, plot)


def test_what_was_dealt_to_a_cancelled_call_goes_to_the_next(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("orders")
        first, second = waiting_calls(scene, 2)
        await settle_down()
        await scene.send("orders", message("a"))
        while not (first.done() or second.done()):
            first.cancel()
            await asyncio.sleep(0)
        (received,) = await second
        assert received.message.deliveries == 1

    play(tmp_path, plot)


def test_those_who_wait_learn_that_their_queue_was_deleted(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("orders")
        calls = waiting_calls(scene, 3)
        await settle_down()
        await scene.delete_queue("orders")
        for call in calls:
            with pytest.raises(NotFound):
                await call

    play(tmp_path, plot)


def test_free_sessions_are_dealt_in_turn(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("orders", requires_session=True)

        async def accept() -> SessionLock | None:
            return await scene.broker.accept_session(ORDERS, None, 60.0)

        accepting = [asyncio.create_task(accept()) for _ in range(3)]
        await settle_down()
        await scene.send("orders", message("1", session="a"), message("2", session="b"))
        first, second = [await accepting[number] for number in range(2)]
        assert first is not None
        assert second is not None
        assert {first.session, second.session} == {"a", "b"}
        assert not accepting[2].done()
        await scene.broker.release_session(first)
        third = await accepting[2]
        assert third is not None
        assert third.session == first.session

    play(tmp_path, plot)


def test_a_link_that_takes_back_its_hurry_waits_on(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        queue = await scene.queue("orders")
        link = Link(1)
        dispatcher = scene.broker.dispatcher(queue.id, ORDERS, Mode.PEEK_LOCK)
        dispatcher.hurry(link)
        dispatcher.join(link)
        await dispatcher.wait_for_look()
        await settle_down()
        await scene.send("orders", "a")
        while not link.taken:
            await asyncio.sleep(0)
        assert link.finished == 0

    play(tmp_path, plot)


def test_a_link_that_cannot_take_a_message_fails_alone(tmp_path: Path) -> None:
    class Broken(Link):
        def deliver(self, item: Received) -> None:
            raise ValueError(f"cannot take {item.message.message_id}")

    async def plot(scene: Scene) -> None:
        queue = await scene.queue("orders")
        broken, link = Broken(1), Link(2)
        dispatcher = scene.broker.dispatcher(queue.id, ORDERS, Mode.PEEK_LOCK)
        for each in (broken, link):
            dispatcher.join(each)
        await scene.send("orders", "a", "b", "c")
        while len(link.taken) < 2:
            await asyncio.sleep(0)
        # `Link.fail` raises, and even that hurts nobody else.
        link.credit += 1
        dispatcher.join(link)
        await scene.send("orders", "d")
        while len(link.taken) < 3:
            await asyncio.sleep(0)

    play(tmp_path, plot)


@pytest.mark.parametrize("is_locked", [True, False], ids=["too often", "too old"])
def test_a_look_wakes_those_who_wait_for_what_it_dead_letters(tmp_path: Path, is_locked: bool) -> None:
    letters = Address("orders", SubQueue.DEAD_LETTER)

    async def plot(scene: Scene) -> None:
        await scene.queue("orders", max_delivery_count=1, dead_lettering_on_message_expiration=True)
        await scene.send("orders", message("a", ttl=None if is_locked else 30 * SECOND))
        await scene.flow()
        if is_locked:
            await scene.receive("orders", 1)
        waiting = asyncio.create_task(scene.broker.receive(letters, 1, wait=60))
        await settle_down()
        scene.time.advance(61)
        # It ends the lock, or finds the expired message, before the chores do.
        assert await scene.broker.receive(ORDERS, 1) == []
        assert [each.message.message_id for each in await waiting] == ["a"]

    play(tmp_path, plot)


def test_locking_a_session_wakes_those_who_wait_for_the_sessions_that_it_frees(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("orders", requires_session=True)
        await scene.send("orders", *(message(name, session=name) for name in "abc"))
        await scene.flow()
        for name in "abc":
            assert await scene.broker.accept_session(ORDERS, name) is not None
        waiting = asyncio.create_task(scene.broker.accept_session(ORDERS, None, wait=60))
        await settle_down()
        scene.time.advance(61)
        assert await scene.broker.accept_session(ORDERS, "b") is not None
        found = await waiting
        assert found is not None
        assert found.session == "a"

    play(tmp_path, plot)
