"""A lost ledger is given up; a folder that a wrong clock has written needs that clock."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from oncebus.broker.addresses import Address
from oncebus.broker.broker import Broker
from oncebus.engine.agreement import DataMismatch, RepairUnfinished, check_no_repair
from oncebus.engine.engine import Engine
from oncebus.engine.folders import Folders
from oncebus.engine.inbox import InboxInUse
from oncebus.engine.repair import CannotRepair, give_up_ledger
from oncebus.engine.store import Action, Mode, Outcome
from oncebus.engine.stored_times import TimesAhead
from oncebus.programs.cli import main
from tests.broker.in_process import SHARDS, FakeTime
from tests.broker.scenes import DAY, HOUR, SECOND, message, scene

YEAR = 365 * DAY
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
    broker = await Broker.open(Engine.files(Folders(data), SHARDS), clock=time.clock())
    await broker.close()


def test_stored_times_in_the_future_are_refused_until_the_clock_has_come_so_far(tmp_path: Path) -> None:
    async def run() -> None:
        time = FakeTime()
        await poisoned(tmp_path, time)
        with pytest.raises(TimesAhead) as refused:
            await opens(tmp_path, time)
        assert str(refused.value) == (
            f"The newest message in store '{tmp_path}/store.db' was sent at 2027-09-21T14:14:20Z, "
            "but the clock says 2026-09-21T14:14:20Z. If the clock is wrong now, correct it. If it was wrong then, "
            f"data folder '{tmp_path}' can be used when the clock has come so far, or with the clock of then. "
            "See 'A clock that was wrong' in docs/reference/serve.md."
        )
        time.set_wrong(YEAR / SECOND)
        async with scene(tmp_path, time) as stage:
            await stage.flow()
            found = await stage.receive(mode=Mode.RECEIVE_AND_DELETE)
            names = ["short", "later", "judged", "waits", "waits shortly"]
            assert [each.message.message_id for each in found] == names

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
        with pytest.raises(TimesAhead, match="with the clock of then"):
            await opens(tmp_path, time)

    asyncio.run(run())


async def judged(data: Path, time: FakeTime) -> None:
    """Process messages with keys: ingested, only processed, only accepted."""
    async with scene(data, time) as first:
        await first.queue(detects=True)
        await first.send("q", "a")
        await first.flow()
        first.core._tasks[0].cancel()
        first.pipeline.is_paused = True
        await first.send("q", "b", "a")
        assert first.pipeline.step()
        await first.send("q", "c")


class Killed(BaseException):
    pass


def test_a_repair_that_is_killed_at_any_instant_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = FakeTime()
    asyncio.run(judged(tmp_path / "data", time))
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
                give_up_ledger(Folders(data), time.now)
                break
            except Killed:
                pass
        if (data / "repair.json").exists():
            with pytest.raises(RepairUnfinished, match="Finish it first: oncebus repair ledger --data"):
                asyncio.run(opens(data, time))
            with pytest.raises(RepairUnfinished):
                check_no_repair(Folders(data))
        give_up_ledger(Folders(data), time.now + DAY)
        asyncio.run(all_arrive(data, time))
        shutil.rmtree(data)
        instants += 1
    assert instants > 3
    asyncio.run(all_arrive(data, time))


async def all_arrive(data: Path, time: FakeTime) -> None:
    async with scene(data, time) as stage:
        await stage.send("q", "a")
    async with scene(data, time) as stage:
        assert await stage.taken() == ["a", "b", "c", "a"]


def test_a_running_broker_is_not_repaired(tmp_path: Path) -> None:
    async def run() -> None:
        data = tmp_path / "data"
        async with scene(data) as stage:
            await stage.queue()
            with pytest.raises(InboxInUse):
                give_up_ledger(Folders(data), START)
        assert not (data / "repair.json").exists()

    asyncio.run(run())
    with pytest.raises(CannotRepair):
        give_up_ledger(Folders(tmp_path / "nothing"), START)


def repair(data: Path) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["repair", "ledger", "--data", str(data)])
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
        await judged(data, time)
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
