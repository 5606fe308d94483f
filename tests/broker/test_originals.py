"""The number of the original, for a scheduled duplicate that asks for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncebus.broker import senders
from oncebus.model.entities import BadRequest
from tests.broker.scenes import HOUR, Scene, message, play


def test_only_duplicates_that_ask_get_another_number(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        due = scene.time.now + HOUR
        (first,) = await scene.send("q", message("a", scheduled=due))
        numbers = await scene.broker.schedule("q", [message(each, scheduled=due) for each in ("a", "b", "a")], [0, 1])
        assert numbers == [first, 3, 4]
        (binary,) = await scene.send("q", message(b"\0\xff", scheduled=due))
        numbers = await scene.broker.schedule("q", [message(b"\0\xff", scheduled=due), message(scheduled=due)], [0, 1])
        assert numbers == [binary, 7], "a message without an id is never a duplicate"
        assert len(await scene.duplicates()) == 3

    play(tmp_path, plot)


def test_every_duplicate_of_a_large_request_gets_the_number_of_its_original(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        due = scene.time.now + HOUR
        (first,) = await scene.send("q", message("a", scheduled=due))
        numbers = await scene.broker.schedule("q", [message("a", scheduled=due)] * 2_500, range(2_500))
        assert set(numbers) == {first}

    play(tmp_path, plot, read_your_sends=60)


def test_originals_are_looked_up_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(senders, "RECORDS_AT_ONCE", 3)
    monkeypatch.setattr(senders, "IDS_AT_ONCE", 2)

    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        due = scene.time.now + HOUR
        names = [f"id {at}" for at in range(5)]
        originals = await scene.send("q", *(message(each, scheduled=due) for each in names))
        messages = [message(each, scheduled=due) for each in names * 2] + [message("new", scheduled=due)]
        # Earlier drops of the same ids belong to other requests.
        await scene.broker.schedule("q", messages[:5])
        numbers = await scene.broker.schedule("q", messages, range(len(messages)))
        assert numbers == [*originals, *originals, 21]

    play(tmp_path, plot)


def test_without_a_verdict_in_time_the_number_is_its_own(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        due = scene.time.now + HOUR
        await scene.send("q", message("a", scheduled=due))
        await scene.flow()
        scene.pipeline.is_paused = True
        assert await scene.broker.schedule("q", [message("a", scheduled=due)], [0]) == [2]
        scene.pipeline.is_paused = False
        assert len(await scene.duplicates()) == 1

    play(tmp_path, plot, read_your_sends=0.01)


def test_a_transaction_cannot_ask(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        transactions = scene.broker.transactions()
        work = transactions.work(transactions.declare(1).id)
        with pytest.raises(BadRequest, match="A transaction cannot ask for the number of an original"):
            await work.schedule("q", [message("a", scheduled=scene.time.now + HOUR)], [0])

    play(tmp_path, plot)
