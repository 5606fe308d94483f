"""The history of the counters, as the broker shows it."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from oncebus.engine.store import Action, Span
from oncebus.engine.store.sampler import Sampler
from tests.broker.in_process import running_broker
from tests.broker.scenes import Scene, play


def test_the_history_shows_what_happened_and_survives_a_restart(tmp_path: Path) -> None:
    async def busy(scene: Scene) -> None:
        queue = await scene.queue(detects=True)
        await scene.send("q", "a", "b", "c", "a")
        first, *_ = await scene.receive()
        await scene.settle("q", first, Action.COMPLETE)
        await scene.later(4)
        for entity in (queue, None):
            seen = await scene.broker.history(entity, Span.TEN_MINUTES)
            found = {name: sum(filter(None, getattr(seen, name))) for name in ("incoming", "new", "duplicates")}
            assert found == {"incoming": 4, "new": 3, "duplicates": 1}
            assert (sum(filter(None, seen.outgoing)), sum(filter(None, seen.completed))) == (3, 1)
            assert (seen.backlog[0], seen.backlog[-1]) == (None, 2)

    async def later(scene: Scene) -> None:
        await scene.later(4)
        queue = scene.broker.catalogue.queue("q")
        for entity in (queue, None):
            seen = await scene.broker.history(entity, Span.TEN_MINUTES)
            assert (sum(filter(None, seen.incoming)), seen.backlog[-1]) == (4, 2)

    play(tmp_path, busy)
    play(tmp_path, later)


def test_the_chores_take_samples(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        await scene.send("q", "a")
        await scene.flow()
        await scene.later(2)
        await scene.send("q", "b", "c")
        await scene.flow()
        await scene.later(2)
        # Nobody has asked in between.
        assert (await scene.broker.history(None, Span.TEN_MINUTES)).new[-2:] == [1, 2]

    play(tmp_path, plot)


def test_a_broker_whose_last_samples_fail_closes_its_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        with monkeypatch.context() as broken:

            def fail(self: Sampler, now: int) -> None:
                raise sqlite3.OperationalError("disk I/O error")

            async with running_broker(tmp_path):
                broken.setattr(Sampler, "end", fail)
        # It could not be opened again if it were still open.
        async with running_broker(tmp_path) as broker:
            assert broker.catalogue is not None

    asyncio.run(run())
