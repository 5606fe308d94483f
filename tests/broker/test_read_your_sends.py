"""Read your sends: a query sees messages that were sent just before it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from oncebus.broker.addresses import Address
from oncebus.engine.store import Action, Mode, Outcome
from tests.broker.in_process import FakeTime
from tests.broker.scenes import HOUR, Scene, ids, message, play, scene

Look = Callable[[Scene, str], Awaitable[object]]


async def peek(scene: Scene, path: str) -> object:
    return ids(await scene.broker.peek(Address(path), 0, 10))


async def count(scene: Scene, path: str) -> object:
    return (await scene.broker.counts(path)).active


async def sessions(scene: Scene, path: str) -> object:
    return await scene.broker.sessions(Address(path))


async def duplicates(scene: Scene, path: str) -> object:
    # A subscription has no record of duplicates of its own.
    return len(await scene.broker.duplicates(path.split("/")[0]))


async def delete(scene: Scene, path: str) -> object:
    return await scene.broker.delete_messages(Address(path), scene.time.now + HOUR, 10)


LOOKS: list[tuple[Look, object, object]] = [
    (peek, ["a", "b"], []),
    (count, 2, 0),
    (sessions, ["s"], []),
    (duplicates, 1, 0),
    (delete, 2, 0),
]


@pytest.mark.parametrize("kind", ["queue", "topic"])
@pytest.mark.parametrize(("look", "expected", "_"), LOOKS)
def test_a_query_right_after_a_send_sees_it(tmp_path: Path, kind: str, look: Look, expected: object, _: object) -> None:
    async def plot(scene: Scene) -> None:
        path = await prepared(scene, kind)
        await scene.send(kind, message("a", session="s"), message("b", session="s"), message("a", session="s"))
        assert await look(scene, path) == expected

    play(tmp_path, plot, read_your_sends=20.0)


@pytest.mark.parametrize("kind", ["queue", "topic"])
@pytest.mark.parametrize(("look", "_", "expected"), LOOKS)
def test_queries_are_answered_even_if_the_pipeline_is_down(
    tmp_path: Path, kind: str, look: Look, _: object, expected: object
) -> None:
    async def plot(scene: Scene) -> None:
        path = await prepared(scene, kind)
        scene.pipeline.is_paused = True
        await scene.send(kind, message("a", session="s"), message("b", session="s"), message("a", session="s"))
        assert await look(scene, path) == expected
        assert scene.core.progress._waiting == []

    play(tmp_path, plot, read_your_sends=0.01)


async def prepared(scene: Scene, kind: str) -> str:
    if kind == "queue":
        await scene.queue("queue", detects=True, requires_session=True)
        return "queue"
    await scene.topic("topic", detects=True)
    return await scene.subscription(topic="topic", requires_session=True)


def test_a_scheduled_message_can_be_cancelled_at_once(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        await scene.topic()
        for path in ("q", "t"):
            numbers = await scene.send(path, message("a", scheduled=scene.time.now + HOUR))
            assert await scene.broker.cancel_scheduled(path, [*numbers, 99]) == [
                Outcome.DONE,
                Outcome.MESSAGE_NOT_FOUND,
            ]
            assert (await scene.counts(path)).scheduled == 0

    play(tmp_path, plot, read_your_sends=20.0)


def test_a_deferred_message_is_received_by_its_number(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        await scene.send("q", "a", "b")
        first, second = await scene.receive()
        await scene.settle("q", first, Action.DEFER)
        await scene.settle("q", second, Action.DEFER)
        assert await scene.receive() == []
        found = await scene.broker.receive_deferred(Address("q"), [2, 1, 7], mode=Mode.PEEK_LOCK)
        assert ids(found) == ["b", "a"]

    play(tmp_path, plot)


def test_other_entities_are_not_waited_for(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("busy")
        await scene.queue("quiet")
        scene.pipeline.is_paused = True
        await scene.flow()
        await scene.send("busy", "a")
        async with asyncio.timeout(30):
            await scene.broker.counts("quiet")

    play(tmp_path, plot, read_your_sends=600.0)


def test_after_a_restart_what_was_sent_before_it_is_waited_for(tmp_path: Path) -> None:
    async def run() -> None:
        time = FakeTime()
        async with scene(tmp_path, time) as before:
            await before.queue()
            before.pipeline.is_paused = True
            await before.send("q", "a")
        async with scene(tmp_path, time, read_your_sends=20.0) as after:
            assert await peek(after, "q") == ["a"]

    asyncio.run(run())


def test_a_receiver_does_not_wait_for_the_pipeline_but_for_a_message(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        scene.pipeline.is_paused = True
        await scene.send("q", "a")
        async with asyncio.timeout(30):
            assert await scene.broker.receive(Address("q"), 1) == []
        waiting = asyncio.create_task(scene.broker.receive(Address("q"), 1, wait=20))
        await asyncio.sleep(0)
        scene.pipeline.is_paused = False
        assert ids(await waiting) == ["a"]

    play(tmp_path, plot, read_your_sends=600.0)
