"""Repairs: of a broker that ran with a clock one year ahead, and of a lost ledger."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from oncebus.broker.addresses import Address
from oncebus.broker.broker import Broker
from oncebus.broker.clock import TimesAhead
from oncebus.broker.repair import CannotRepair, Repaired, give_up_ledger, repair_clock
from oncebus.engine.agreement import DataMismatch, RepairUnfinished, check_no_repair
from oncebus.engine.folders import Folders
from oncebus.engine.inbox import InboxInUse, InboxReader
from oncebus.engine.outbox import Outbox
from oncebus.engine.store import Action, Mode, Outcome
from oncebus.ledger.names import parse_run_names
from oncebus.ledger.run import Run
from oncebus.ledger.storage import storage_at
from oncebus.programs.cli import main
from tests.broker.in_process import SHARDS, FakeTime, InProcessPipeline
from tests.broker.scenes import DAY, HOUR, MINUTE, SECOND, Scene, message, scene

YEAR = 365 * DAY
WINDOW = 10 * MINUTE
START = FakeTime().now
LARGE = bytes(100_000)


async def poisoned(data: Path, time: FakeTime) -> None:
    """Send messages under a right clock, then under a wrong one: ingested, only processed, only accepted. Lock one."""
    async with scene(data, time) as right:
        await right.queue(detects=True)
        await right.send("q", "right", message("later", scheduled=START + 2 * HOUR))
        await right.flow()
    time.advance(60)
    time.set_wrong(YEAR / SECOND)
    async with scene(data, time) as wrong:
        await wrong.send("q", "held", message("short", ttl=HOUR), message("soon", scheduled=START + YEAR + HOUR))
        await wrong.send("q", "held")
        # By now the message that was scheduled under the right clock has fallen due.
        await wrong.rounds()
        [first, held] = await wrong.receive(count=2)
        assert (first.message.message_id, held.message.message_id) == ("right", "held")
        wrong.pipeline.is_paused = True
        wrong.core._tasks[0].cancel()
        await wrong.send("q", message("judged", LARGE, ttl=HOUR), "held")
        assert wrong.pipeline.step()
        await wrong.send("q", "waits", message("waits shortly", ttl=HOUR))
    time.set_wrong(0)


async def opens(data: Path, time: FakeTime) -> None:
    broker = await Broker.open(Folders(data), shards=SHARDS, clock=time.clock())
    await broker.close()


async def everything(stage: Scene) -> list[tuple[str, int]]:
    """Return the ids and enqueued times of all messages that can be received."""
    found = await stage.receive(mode=Mode.RECEIVE_AND_DELETE)
    return [(each.message.message_id, each.message.enqueued) for each in found]


def test_stored_times_in_the_future_are_refused_and_can_be_repaired(tmp_path: Path) -> None:
    async def run() -> None:
        time = FakeTime()
        await poisoned(tmp_path, time)
        with pytest.raises(TimesAhead) as refused:
            await opens(tmp_path, time)
        assert str(refused.value) == (
            f"The newest message in store '{tmp_path}/store.db' was sent at 2027-09-21T14:14:20Z, "
            "but the clock says 2026-09-21T14:14:20Z. If the clock is wrong now, correct it. "
            f"If it was wrong then, run: oncebus repair clock --data '{tmp_path}'"
        )
        now = time.now
        done = repair_clock(Folders(tmp_path), now)
        assert (done.now, done.ids, done.messages) == (now, 4, 4)
        assert done.rows >= 4
        async with scene(tmp_path, time) as stage:
            # Ids of the wrong clock are remembered from the repair on, the others for the rest of their window.
            await stage.send("q", "held", "short", "judged", "waits", "right", "new")
            dropped = [each.message_id for each in await stage.duplicates()]
            assert dropped[-5:] == ["held", "short", "judged", "waits", "right"]
            counts = await stage.counts()
            assert (counts.active, counts.scheduled) == (8, 1)
            # One window after the right clock accepted the first, and one window after the repair for the other.
            await stage.later((WINDOW - MINUTE) / SECOND)
            await stage.send("q", "right", "held")
            assert [each.message_id for each in await stage.duplicates()][-1] == "held"
            await stage.later(MINUTE / SECOND)
            await stage.send("q", "held")
            # The locked message is free again.
            found = await everything(stage)
            assert [name for name, _ in found] == [
                "right", "held", "short", "later", "judged", "waits", "waits shortly", "new", "right", "held",
            ]  # fmt: skip
            times = [enqueued for _, enqueued in found]
            assert times == sorted(times)
            assert set(times[1:7]) == {now}
            assert times[0] == START
            await stage.later((YEAR + 3 * HOUR) / SECOND)
            assert [name for name, _ in await everything(stage)] == ["soon"]

    asyncio.run(run())


@pytest.mark.parametrize("use", ["message lock", "session lock", "resubmission"])
def test_a_wrong_clock_is_noticed_even_if_nothing_was_sent_under_it(tmp_path: Path, use: str) -> None:
    """Otherwise nobody could receive the message for a year."""

    async def run() -> None:
        time = FakeTime()
        async with scene(tmp_path, time) as right:
            await right.topic()
            name = await right.subscription(requires_session=use == "session lock")
            await right.send("t", message("a", session="s"))
            if use == "resubmission":
                [held] = await right.receive(name)
                await right.settle(name, held, Action.DEAD_LETTER)
            await right.flow()
        time.set_wrong(YEAR / SECOND)
        async with scene(tmp_path, time) as wrong:
            if use == "resubmission":
                assert await wrong.broker.resubmit(name, [1]) == [Outcome.DONE]
            elif use == "session lock":
                assert await wrong.broker.accept_session(Address(name), "s") is not None
            else:
                assert len(await wrong.broker.receive(Address(name), 1)) == 1
        time.set_wrong(0)
        with pytest.raises(TimesAhead, match="oncebus repair clock --data"):
            await opens(tmp_path, time)
        repair_clock(Folders(tmp_path), time.now)
        async with scene(tmp_path, time) as stage:
            await stage.later(5 * MINUTE / SECOND)
            lock = await stage.broker.accept_session(Address(name), "s") if use == "session lock" else None
            [found] = await stage.broker.receive(Address(name), 9, session=lock)
            assert found.message.enqueued <= time.now

    asyncio.run(run())


def test_messages_keep_their_time_to_live(tmp_path: Path) -> None:
    async def run() -> None:
        time = FakeTime()
        await poisoned(tmp_path, time)
        repair_clock(Folders(tmp_path), time.now)
        async with scene(tmp_path, time) as stage:
            await stage.flow()
            time.advance(HOUR / SECOND - 1)
            assert {"short", "judged", "waits shortly"} <= {*await stage.peeked()}
            await stage.later(2)
            assert not {"short", "judged", "waits shortly"} & {*await stage.peeked()}

    asyncio.run(run())


def state_of(data: Path) -> list[Any]:
    """Return everything that the parts hold."""
    found: list[Any] = []
    copy = data.parent / "looked-at.db"
    for name in ("", "-wal"):
        if data.joinpath(f"store.db{name}").exists():
            shutil.copy(data / f"store.db{name}", f"{copy}{name}")
    with sqlite3.connect(copy) as database:
        tables = ("message", "session", "highest", "progress", "dropped")
        found += [database.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in tables]
    database.close()
    for left in copy.parent.glob("looked-at.db*"):
        left.unlink()
    storage = storage_at(data / "ledger")
    for run in parse_run_names(storage.names()):
        entries = Run("", storage.read(str(run))).entries()
        found.append((str(run), entries.time.tolist(), entries.high.tolist()))
    reader = InboxReader(data / "inbox")
    found += [batch.to_pylist() for batch in reader.read(reader.oldest() or 1, reader.durable())]
    outbox = Outbox(data / "outbox")
    after = 0
    for part in sorted(path.name for path in (data / "outbox").glob("*of*")):
        after = int(part.split("-")[0]) - 1
        entry = outbox.next_entry(after)
        found.append(None if entry is None else entry.rows().to_pylist())
    return found


class Killed(BaseException):
    pass


def test_a_repair_that_is_killed_at_any_instant_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = FakeTime()
    asyncio.run(poisoned(tmp_path / "data", time))
    shutil.copytree(tmp_path / "data", tmp_path / "clean")
    repair_clock(Folders(tmp_path / "clean"), time.now)
    expected = state_of(tmp_path / "clean")

    left = 0

    def dying(do: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any, **more: Any) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            do(*arguments, **more)

        return call

    instants = 0
    while True:
        data = tmp_path / f"killed{instants}"
        shutil.copytree(tmp_path / "data", data)
        left = instants
        with monkeypatch.context() as patched:
            patched.setattr(os, "replace", dying(os.replace))
            patched.setattr(os, "unlink", dying(os.unlink))
            try:
                repair_clock(Folders(data), time.now)
                break
            except Killed:
                pass
        is_begun = (data / "repair.json").exists()
        with pytest.raises(RepairUnfinished if is_begun else TimesAhead, match="oncebus repair clock --data"):
            asyncio.run(opens(data, time))
        if is_begun:
            with pytest.raises(RepairUnfinished):
                check_no_repair(Folders(data))
        repair_clock(Folders(data), time.now + (DAY if is_begun else 0))
        assert state_of(data) == expected
        assert not (data / "repair.json").exists()
        shutil.rmtree(data)
        instants += 1
    assert instants > 8
    assert state_of(data) == expected


def test_a_folder_without_times_in_the_future_stays_as_it_is(tmp_path: Path) -> None:
    async def run() -> None:
        async with scene(tmp_path / "data") as stage:
            await stage.queue(detects=True)
            await stage.send("q", "a")
            await stage.flow()

    asyncio.run(run())
    before = state_of(tmp_path / "data")
    assert repair_clock(Folders(tmp_path / "data"), START) == Repaired(START, 0, 0, 0)
    assert state_of(tmp_path / "data") == before


def test_a_running_broker_is_not_repaired(tmp_path: Path) -> None:
    async def run() -> None:
        data = tmp_path / "data"
        async with scene(data) as stage:
            await stage.queue()
            with pytest.raises(InboxInUse):
                repair_clock(Folders(data), START)
        assert not (data / "repair.json").exists()

    asyncio.run(run())
    with pytest.raises(CannotRepair):
        repair_clock(Folders(tmp_path / "nothing"), START)


def repair(data: Path) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["repair", "clock", "--data", str(data)])
    return done.exit_code, done.output


@pytest.mark.parametrize(("lock", "who"), [("serve.lock", "broker"), ("pipeline.lock", "pipeline")])
def test_the_command_asks_to_stop_the_broker(tmp_path: Path, lock: str, who: str) -> None:
    with (tmp_path / lock).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        text = f"oncebus: A {who} uses data folder '{tmp_path}'. Stop it first.\n"
        assert repair(tmp_path) == (1, text)


def test_the_command_names_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    said = f"oncebus: There is no data folder '{missing}'. Give the broker's data folder with --data.\n"
    assert repair(missing) == (1, said)
    assert not missing.exists()
    empty = f"oncebus: Data folder '{tmp_path}' has no inbox or no store. Give the folder of a broker.\n"
    assert repair(tmp_path) == (1, empty)


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_ledger_that_is_given_up_is_replaced_by_a_new_one(tmp_path: Path, is_lost: bool) -> None:
    async def run() -> None:
        data, time = tmp_path / "data", FakeTime()
        async with scene(data, time) as first:
            await first.queue(detects=True)
            await first.send("q", "a")
            await first.flow()
            first.core._tasks[0].cancel()
            first.pipeline.is_paused = True
            await first.send("q", "b", "a")
            assert first.pipeline.step()
            await first.send("q", "c")
        shutil.copytree(data / "ledger", tmp_path / "kept")
        for run in (data / "ledger").glob("*.run"):
            run.unlink()
        if is_lost:
            shutil.rmtree(data / "ledger")
        with pytest.raises(DataMismatch, match="run 'oncebus repair ledger'"):
            await opens(data, time)
        done = CliRunner().invoke(main, ["repair", "ledger", "--data", str(data)])
        assert (done.exit_code, done.stderr) == (0, "")
        assert done.stdout.startswith("All ids are forgotten.")
        assert [*data.glob("ledger-*")] == ([] if is_lost else [Path(done.stdout.split("'")[1])])
        for _ in range(2):
            async with scene(data, time) as stage:
                await stage.send("q", "a", "c")
        async with scene(data, time) as stage:
            assert await stage.taken() == ["a", "b", "c", "a"]

    asyncio.run(run())


def test_one_repair_is_finished_before_another_is_begun(tmp_path: Path) -> None:
    asyncio.run(poisoned(tmp_path, FakeTime()))
    (tmp_path / "repair.json").write_text('{"repairs": "ledger", "now": 1}')
    with pytest.raises(RepairUnfinished, match="Finish it first: oncebus repair ledger --data"):
        repair_clock(Folders(tmp_path), START)
    assert give_up_ledger(Folders(tmp_path), START) == tmp_path / "ledger-1"
    assert not (tmp_path / "repair.json").exists()


def test_the_pipeline_accepts_a_repaired_folder(tmp_path: Path) -> None:
    """The ledger and the outbox still match."""
    time = FakeTime()
    asyncio.run(poisoned(tmp_path, time))
    repair_clock(Folders(tmp_path), time.now)
    assert InProcessPipeline(Folders(tmp_path)).step()
