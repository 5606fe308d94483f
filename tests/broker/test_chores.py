"""Chores: one that fails does not affect the others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from oncebus.broker.chores import EVERY_SECONDS, IDLE_EVERY_SECONDS, Chore
from oncebus.engine.inbox import InboxFull
from tests.broker.scenes import SECOND, Scene, message, play


def test_a_pulse_that_fails_holds_nothing_else_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise InboxFull("no room")

    async def plot(scene: Scene) -> None:
        await scene.queue("target")
        await scene.queue("q", lock_duration=5 * SECOND, forward_to="target")
        await scene.queue("held", lock_duration=5 * SECOND)
        await scene.send("q", message("due", scheduled=scene.time.now + SECOND))
        await scene.send("held", "held")
        await scene.receive("held")
        monkeypatch.setattr(scene.core.entrance, "pulse", fail)
        scene.time.advance(6)
        await scene.rounds(2, trouble="no room")
        assert await scene.taken("target") == ["due"]
        assert await scene.taken("held") == ["held"]
        monkeypatch.undo()
        await scene.rounds()
        assert scene.broker.pipeline.trouble is None

    play(tmp_path, plot)


def test_a_chore_that_fails_is_left_alone_for_a_while_and_then_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        now = [100.0]
        monkeypatch.setattr(loop, "time", lambda: now[0])
        tried: list[float] = []
        outcomes: list[bool | Exception | None] = [ValueError("odd"), ValueError("odd"), True, False, None]

        async def do() -> bool | None:
            tried.append(now[0])
            outcome = outcomes.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        chore = Chore("something", do, every=1.0)
        more = []
        while outcomes:
            more.append(await chore.attempt())
            assert chore.trouble.text == ("odd" if len(tried) < 3 else None)
            now[0] += 0.25
        monkeypatch.undo()
        # Twice after a failure, at once while there is more to do, and then at its usual interval.
        assert tried == [100.0, 100.5, 101.0, 101.25, 102.25]
        assert more.count(True) == 1

    asyncio.run(run())
    assert [record.message for record in caplog.records] == ["A chore failed and will be retried: something: odd"]


def test_rounds_are_rare_while_nobody_uses_the_store_but_never_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def plot(scene: Scene) -> None:
        chores = scene.core.chores
        await scene.queue("q", lock_duration=5 * SECOND)
        await scene.send("q", "a")
        await scene.receive("q")
        assert chores._pause() == EVERY_SECONDS
        await scene.rounds()
        # As if that had been long ago. The rounds themselves do not count as use.
        monkeypatch.setattr(chores, "_last_used", float("-inf"))
        monkeypatch.setattr(chores, "_uses", scene.core.store.submitted)
        assert chores._pause() == IDLE_EVERY_SECONDS
        scene.time.advance(4.7)
        assert chores._pause() == pytest.approx(0.3)
        scene.time.advance(0.299)
        assert chores._pause() == EVERY_SECONDS

    play(tmp_path, plot)
