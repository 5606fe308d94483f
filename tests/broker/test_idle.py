"""Auto-delete on idle."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from oncebus.broker.addresses import Address
from oncebus.model.entities import Rule
from tests.broker.in_process import FakeTime
from tests.broker.scenes import HOUR, MINUTE, Scene, message, play, scene

Q = Address("q")


async def send(scene: Scene) -> None:
    await scene.send("q", "a")


async def receive(scene: Scene) -> None:
    await scene.broker.receive(Q, 1)


async def peek(scene: Scene) -> None:
    await scene.broker.peek(Q, 0, 1)


async def update(scene: Scene) -> None:
    queue = replace(scene.broker.catalogue.queue("q"), user_metadata="new")
    await scene.broker.change(lambda catalogue, now: catalogue.update(queue, now))


async def nothing(scene: Scene) -> None:
    pass


async def count(scene: Scene) -> None:
    await scene.broker.counts("q")
    await scene.broker.duplicates("q")


@pytest.mark.parametrize(
    ("use", "lives"),
    [(send, True), (receive, True), (peek, True), (update, True), (nothing, False), (count, False)],
)
def test_what_counts_as_use(tmp_path: Path, use: Callable[[Scene], Awaitable[None]], lives: bool) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(auto_delete_on_idle=10 * MINUTE)
        await scene.queue("stays")
        await scene.later(599)
        await use(scene)
        await scene.later(1)
        assert (scene.broker.catalogue.find("q") is not None) is lives
        await scene.later(600)
        assert scene.broker.catalogue.find("q") is None
        assert scene.broker.catalogue.find("stays") is not None

    play(tmp_path, plot)


def test_a_topic_lives_by_its_subscriptions_but_not_these_by_the_topic(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.topic(auto_delete_on_idle=10 * MINUTE)
        used = await scene.subscription("used", auto_delete_on_idle=10 * MINUTE)
        unused = await scene.subscription("unused", auto_delete_on_idle=10 * MINUTE)
        ruled = await scene.subscription("ruled", auto_delete_on_idle=10 * MINUTE)
        await scene.later(599)
        await scene.send("t", "a")
        await scene.broker.receive(Address(used), 1)
        await scene.broker.change(lambda catalogue, now: catalogue.create_rule("t", "ruled", Rule("r"), now))
        await scene.later(1)
        assert [scene.broker.catalogue.find(path) is not None for path in ("t", used, unused, ruled)] == [
            True,
            True,
            False,
            True,
        ]
        await scene.later(600)
        assert scene.broker.catalogue.entities == {}

    play(tmp_path, plot)


def test_a_scheduled_message_counts_as_future_use(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(auto_delete_on_idle=10 * MINUTE)
        await scene.send("q", message("a", scheduled=scene.time.now + HOUR))
        await scene.later(3599)
        assert scene.broker.catalogue.find("q") is not None
        # When it falls due, the queue is used once more.
        await scene.later(1)
        await scene.later(599)
        assert scene.broker.catalogue.find("q") is not None
        await scene.later(1)
        assert scene.broker.catalogue.find("q") is None

    play(tmp_path, plot)


def test_forwarding_uses_both_entities(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("target", auto_delete_on_idle=10 * MINUTE)
        await scene.queue("source", auto_delete_on_idle=10 * MINUTE, forward_to="target")
        await scene.later(599)
        await scene.send("source", "a")
        await scene.rounds()
        await scene.later(1)
        assert {*scene.broker.catalogue.entities} == {"source", "target"}

    play(tmp_path, plot)


def test_a_restart_counts_as_use_and_a_deleted_entity_leaves_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        time = FakeTime()
        async with scene(tmp_path, time) as first:
            await first.queue(auto_delete_on_idle=10 * MINUTE)
            await first.send("q", "a")
            await first.later(599)
        time.advance(HOUR)
        async with scene(tmp_path, time) as second:
            queue = second.broker.catalogue.queue("q")
            await second.later(599)
            assert second.broker.catalogue.find("q") is not None
            await second.later(1)
            assert second.broker.catalogue.find("q") is None
            assert (await second.core.store.run(lambda store: store.entities.counts(queue.id))).active == 0
            core = second.core
            assert queue.id not in core.accesses._last
            assert queue.id not in core.accounting._last_sent
            assert queue.id not in {entity for entity, _ in core.entrance.numbers._last}

    asyncio.run(run())
