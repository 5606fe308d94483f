"""Extensions beyond Azure, with a broker and its pipeline in the test's process. See docs/reference/extensions.md."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from oncebus.model.entities import BadRequest, Catalogue, EntityError, OutOfRange, Queue, Tier, Topic
from oncebus.model.entities.descriptions import DEFAULT_WINDOW
from tests.broker.in_process import FakeTime
from tests.broker.scenes import DAY, SECOND, Scene, play, scene


def window(microseconds: int) -> dict[str, Any]:
    return {"duplicate_detection_history_time_window": microseconds}


# Windows beyond 7 days


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_a_window_of_a_year_ends_to_the_microsecond(tmp_path: Path, kind: str) -> None:
    async def plot(scene: Scene) -> None:
        await getattr(scene, kind)("e", detects=True, **window(365 * DAY))
        await scene.send("e", "a")
        for days in (8, 100, 256):
            await scene.later(days * 86_400)
            await scene.send("e", f"after {days}", "a")
        await scene.later(86_400 - 0.000001)
        await scene.send("e", "a")
        assert (await scene.counts("e")).duplicates == 4
        await scene.later(0.000001)
        await scene.send("e", "a")
        counts = await scene.counts("e")
        assert (counts.new, counts.duplicates) == (5, 4)

    play(tmp_path, plot, longest_window=365 * DAY)


def test_the_ledger_remembers_a_long_window_across_a_restart(tmp_path: Path) -> None:
    time = FakeTime()

    async def run() -> None:
        async with scene(tmp_path, time, longest_window=90 * DAY) as stage:
            await stage.queue(detects=True, **window(90 * DAY))
            await stage.send("q", "a")
            await stage.flow()
        time.advance(89 * 86_400)
        async with scene(tmp_path, time, longest_window=90 * DAY) as stage:
            # The limit is a setting of the running broker, not a part of its files.
            await stage.queue("other", detects=True, **window(90 * DAY))
            await stage.send("q", "a", "b")
            assert await stage.taken() == ["a", "b"]
            assert (await stage.counts()).duplicates == 1

    asyncio.run(run())


def test_an_entity_keeps_its_long_window_when_the_operator_lowers_the_limit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    time = FakeTime()

    async def run() -> None:
        async with scene(tmp_path, time, longest_window=30 * DAY) as stage:
            await stage.queue(detects=True, **window(30 * DAY))
            await stage.send("q", "a")
            await stage.flow()
        time.advance(20 * 86_400)
        with caplog.at_level(logging.WARNING):
            async with scene(tmp_path, time) as stage:
                queue = stage.broker.catalogue.queue("q")
                await stage.broker.change(lambda c, now: c.update(replace(queue, max_delivery_count=3), now))
                await stage.broker.change(lambda c, _: c.change_tier(Tier.PREMIUM))
                assert stage.broker.catalogue.queue("q").window == 30 * DAY
                await stage.send("q", "a")
                assert (await stage.counts()).duplicates == 1
                with pytest.raises(OutOfRange, match=r"must be between 00:00:20 and 7\.00:00:00"):
                    await stage.broker.change(lambda c, now: c.update(replace(queue, **window(30 * DAY - SECOND)), now))
        assert "'q' keeps its window of 30 days, although the longest window is now 7 days" in caplog.text

    asyncio.run(run())


def _detecting(path: str, window: int | None, catalogue: Catalogue, now: int) -> Catalogue:
    return catalogue.switch_on_detection(path, window, now)


# Detection switched on for an existing entity


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_detection_is_switched_on_from_now_on(tmp_path: Path, kind: str) -> None:
    async def plot(scene: Scene) -> None:
        entity = await getattr(scene, kind)("e")
        await scene.send("e", "a", "a", "b")
        after = await scene.broker.change(lambda c, now: c.switch_on_detection("e", 60 * SECOND, now))
        found = after.find("e")
        assert isinstance(found, Queue | Topic)
        assert (found.id, found.window) == (entity.id, 60 * SECOND)
        # Messages that were accepted before are not remembered.
        await scene.send("e", "a", "a", "c")
        counts = await scene.counts("e")
        assert (counts.new, counts.duplicates) == (5, 1)
        await scene.later(60)
        await scene.send("e", "a")
        assert (await scene.counts("e")).duplicates == 1

    play(tmp_path, plot)


def test_messages_that_the_pipeline_has_not_processed_yet_are_not_judged(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        scene.pipeline.is_paused = True
        await scene.send("q", "a", "a")
        await scene.broker.change(lambda c, now: c.switch_on_detection("q", None, now))
        await scene.send("q", "a", "a")
        scene.pipeline.is_paused = False
        assert await scene.taken() == ["a", "a", "a"]
        assert scene.broker.catalogue.queue("q").window == DEFAULT_WINDOW

    play(tmp_path, plot)


def test_detection_stays_on_after_a_restart_and_cannot_be_switched_off(tmp_path: Path) -> None:
    time = FakeTime()

    async def run() -> None:
        async with scene(tmp_path, time) as stage:
            await stage.queue()
            await stage.broker.change(lambda c, now: c.switch_on_detection("q", None, now))
            await stage.send("q", "a")
            await stage.flow()
        async with scene(tmp_path, time) as stage:
            await stage.send("q", "a")
            assert (await stage.counts()).duplicates == 1
            off = replace(stage.broker.catalogue.queue("q"), requires_duplicate_detection=False)
            with pytest.raises(BadRequest, match="RequiresDuplicateDetection property of an existing Queue cannot"):
                await stage.broker.change(lambda c, now: c.update(off, now))

    asyncio.run(run())


def test_what_detection_cannot_be_switched_on_for(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("on", detects=True)
        await scene.queue("express", enable_express=True)
        await scene.topic()
        await scene.subscription()
        for path, window, text in (
            ("on", None, "The queue 'on' detects duplicates already."),
            ("express", None, "Both DelayedPersistence and RequiresDuplicateDetection"),
            ("t", 8 * DAY, r"must be between 00:00:20 and 7\.00:00:00"),
            ("t/Subscriptions/s", None, "The subscription 't/Subscriptions/s' has the detection of its topic."),
            ("gone", None, "'gone' could not be found"),
        ):
            version = scene.broker.catalogue.version
            with pytest.raises(EntityError, match=text):
                await scene.broker.change(partial(_detecting, path, window))
            assert scene.broker.catalogue.version == version

    play(tmp_path, plot)


def test_detection_cannot_be_switched_on_in_the_basic_tier(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        with pytest.raises(BadRequest, match="'RequiresDuplicateDetection' cannot be set when updating a Queue"):
            await scene.broker.change(lambda c, now: c.switch_on_detection("q", None, now))

    play(tmp_path, plot, tier=Tier.BASIC)
