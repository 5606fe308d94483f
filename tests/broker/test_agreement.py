"""Data folders with parts from different copies."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from oncebus.broker.broker import Broker
from oncebus.engine.agreement import DataMismatch, is_ahead, knows
from oncebus.engine.engine import Engine
from oncebus.engine.folders import Folders
from oncebus.engine.outbox import Batch
from oncebus.ledger import Generation
from oncebus.pipeline.driver import LocalDriver
from oncebus.protocols.monitoring.health import Health
from tests.broker.in_process import SHARDS, FakeTime
from tests.broker.scenes import Scene, message, play, scene
from tests.broker.test_restart import copy_as_a_crash_would_leave_it

PARTS = ["store", "outbox", "inbox", "ledger", "catalogue", "bodies", "checkpoint"]
LARGE = bytes(100_000)

# Each start makes a new checkpoint and deletes bodies that nobody names, and entities that nobody has used yet have
# nothing that other parts could lack.
HARMLESS = {("checkpoint", "older"), ("checkpoint", "newer"), ("bodies", "newer"), ("catalogue", "newer")}


async def work(stage: Scene, name: str, idles: bool) -> None:
    """Write something to every part: each send makes an entry of its own. An idle broker also sends a pulse."""
    await stage.queue(name, detects=True)
    for number in range(3):
        await stage.send(name, f"{name}{number}")
        await stage.flow()
        stage.time.advance(1)
    await stage.send(name, message(f"{name} large", LARGE))
    await stage.flow()
    if idles:
        stage.core.chores._last_commit, stage.core.chores._last_pulse = None, float("-inf")
        await stage.core.chores._pulse()
        await stage.flow()


async def two_copies(folder: Path, time: FakeTime, lives: int, idles: bool = True) -> tuple[Path, Path]:
    """Return an older and a newer copy of a broker's data, from one run of the broker or from two."""
    data, older = folder / "data", folder / "older"
    async with scene(data, time) as stage:
        await work(stage, "a", idles)
        if lives == 1:
            await copy_as_a_crash_would_leave_it(stage, data, older)
            await work(stage, "b", idles)
    if lives == 2:
        shutil.copytree(data, older)
        async with scene(data, time) as stage:
            await work(stage, "b", idles)
    return older, data


def replace_part(part: str, source: Path, target: Path) -> None:
    for name in {path.name for path in (*source.iterdir(), *target.iterdir())}:
        if name.split(".")[0] == part:
            if (target / name).is_dir():
                shutil.rmtree(target / name)
            else:
                (target / name).unlink(missing_ok=True)
            if (source / name).is_dir():
                shutil.copytree(source / name, target / name)
            elif (source / name).exists():
                shutil.copy2(source / name, target / name)


async def refusal(data: Path, time: FakeTime) -> str | None:
    """Open the gateway. Return its error, after which the data must be unchanged; None if it opens."""
    before = {path: path.stat().st_size for path in data.rglob("*") if path.is_file() and "store" not in path.name}
    try:
        broker = await Broker.open(Engine.files(Folders(data), 2), clock=time.clock())
    except DataMismatch as error:
        assert {path: path.stat().st_size for path in before if path.exists()} == before
        return str(error)
    await broker.close()
    return None


@pytest.mark.parametrize("lives", [1, 2])
@pytest.mark.parametrize("age", ["older", "newer"])
@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_was_restored_alone_is_refused_or_harmless(tmp_path: Path, part: str, age: str, lives: int) -> None:
    async def run() -> None:
        time = FakeTime()
        older, newer = await two_copies(tmp_path, time, lives)
        source, target = (older, newer) if age == "older" else (newer, older)
        replace_part(part, source, target)
        said = await refusal(target, time)
        if (part, age) not in HARMLESS:
            assert said is not None
            assert "Restore all of it from the same backup." in said
            assert "\n" not in said
            return
        assert said is None
        async with scene(target, time) as stage:
            assert sorted(await stage.peeked("a")) == ["a large", "a0", "a1", "a2"]
            await stage.send("a", "a1", "new")
            assert await stage.taken("a") == ["a0", "a1", "a2", "a large", "new"]
            assert [each.message_id for each in await stage.duplicates("a")] == ["a1"]

    asyncio.run(run())


@pytest.mark.parametrize("lives", [1, 2])
@pytest.mark.parametrize(("part", "age"), [("outbox", "older"), ("ledger", "older"), ("ledger", "newer")])
def test_the_pipeline_refuses_a_ledger_and_an_outbox_of_different_times(
    tmp_path: Path, part: str, age: str, lives: int
) -> None:
    async def run() -> None:
        older, newer = await two_copies(tmp_path, FakeTime(), lives, idles=False)
        source, target = (older, newer) if age == "older" else (newer, older)
        replace_part(part, source, target)
        with pytest.raises(DataMismatch, match="Restore all of it from the same backup"):
            LocalDriver(Folders(target), shards=SHARDS)

    asyncio.run(run())


@pytest.mark.parametrize("part", ["inbox", "outbox", "ledger", "catalogue", "bodies"])
def test_a_part_that_is_lost_is_refused(tmp_path: Path, part: str) -> None:
    async def run() -> None:
        time = FakeTime()
        _, data = await two_copies(tmp_path, time, 1)
        shutil.rmtree(data / part)
        said = await refusal(data, time)
        assert said is not None
        assert part in said.lower()

    asyncio.run(run())


def test_a_body_that_is_given_up_blocks_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        time = FakeTime()
        _, data = await two_copies(tmp_path, time, 1)
        for body in (data / "bodies").iterdir():
            body.unlink()
            body.touch()
        async with scene(data, time) as stage:
            assert await stage.taken("a") == ["a0", "a1", "a2"]

    asyncio.run(run())


def test_health_is_bad_if_the_next_entry_can_never_come(tmp_path: Path) -> None:
    """The broker was already open when the entry was lost."""

    async def plot(stage: Scene) -> None:
        await stage.queue()
        await stage.send("q", "a")
        await stage.flow()
        health = Health(stage.broker, lag=3_600_000_000, heartbeat=3_600_000_000)
        assert health.problem() is None
        stage.core.ingester._next_check = float("inf")
        stage.pipeline.is_paused = True
        ingesting = stage.core._tasks[0]
        ingesting.cancel()
        await asyncio.gather(ingesting, return_exceptions=True)
        for name in ("b", "c"):
            await stage.send("q", name)
            assert stage.pipeline.step()
        [lost] = (tmp_path / "outbox").glob(f"{2:020d}-*")
        lost.unlink()
        stage.core.ingester._next_check = 0.0
        stage.core._tasks[0] = asyncio.create_task(stage.core.ingester.run())
        async with asyncio.timeout(60):
            while health.problem() is None:
                await asyncio.sleep(0.001)
        assert "continues after commit 2, but the store has ingested none after commit 1" in (
            stage.broker.pipeline.trouble or ""
        )

    play(tmp_path, plot)


def generation(number: int, query: str, keeps_below: int = 0) -> Generation:
    return Generation(number, f"{number}", query, 0, keeps_below, 0, None)


@pytest.mark.parametrize(
    ("generations", "recorded", "newest", "ahead"),
    [
        ([], None, None, False),
        # The first batch was interrupted several times.
        ([generation(1, "q"), generation(2, "r")], 0, None, False),
        ([generation(1, "q")], 1, None, True),
        ([generation(1, "q"), generation(2, "r", 1)], None, None, True),
        # The batch after the newest entry was interrupted.
        ([generation(1, "q")], 6, Batch("q", 5), False),
        ([generation(1, "q")], 7, Batch("q", 5), True),
        # Batches without keys leave nothing in the ledger.
        ([generation(1, "q")], None, Batch("q", 5), False),
        # Later queries completed nothing.
        ([generation(1, "q"), generation(2, "r", 6), generation(3, "s")], 0, Batch("q", 5), False),
        ([generation(1, "q"), generation(2, "r", 7), generation(3, "s")], 0, Batch("q", 5), True),
        ([generation(1, "q"), generation(2, "r", 6), generation(3, "s", 1)], 0, Batch("q", 5), True),
        ([generation(1, "q"), generation(2, "r", 6), generation(3, "s")], 1, Batch("q", 5), True),
        # A query that began after the ledger was read.
        ([generation(1, "q"), generation(2, "r", 6)], 9, Batch("s", 0), False),
    ],
)
def test_what_a_ledger_may_count(
    generations: list[Generation], recorded: int | None, newest: Batch | None, ahead: bool
) -> None:
    assert is_ahead(generations, recorded, None, newest) is ahead


def test_what_was_confirmed_has_its_entry() -> None:
    assert not is_ahead([generation(1, "q")], None, 5, Batch("q", 5))
    assert is_ahead([generation(1, "q")], None, 6, Batch("q", 5))


def test_a_query_is_known_to_the_ledger_that_it_wrote() -> None:
    one, other = generation(1, "q"), generation(2, "r")
    assert knows([one, other], None, Batch("q", 3))
    assert not knows([], None, Batch("q", 3))
    assert not knows([other], 1, Batch("q", 3))
    assert not knows([one, other], None, Batch("s", 3))
    # The ledger has forgotten it, and no later query has completed anything.
    many = [generation(number, f"r{number}") for number in range(5, 70)]
    assert knows(many, 0, Batch("q", 3))
    assert not knows([*many, generation(70, "z", 1)], 0, Batch("q", 3))
