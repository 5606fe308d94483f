"""Closing, crashing and reopening at any moment of a history."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.broker.addresses import Address
from oncebus.engine.folders import Folders
from oncebus.engine.outbox import OutboxError, write_part
from oncebus.engine.store import Action, Mode, Outcome
from oncebus.ledger import Owner
from oncebus.model.entities import Queue
from oncebus.pipeline import batch, planning
from oncebus.pipeline.driver import LocalDriver
from tests.broker.in_process import SHARDS, FakeTime
from tests.broker.scenes import HOUR, MINUTE, SECOND, Scene, message, scene
from tests.properties import examples

WINDOW = 60

Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["send", "send", "forward", "schedule", "complete", "abandon", "wait", "pause", "restart", "die"]
        ),
        st.integers(0, 5),
    ),
    min_size=3,
    max_size=12,
)


@dataclass
class Known:
    """What the broker has answered."""

    # When each id was last accepted as new, according to the rules.
    accepted_at: dict[str, int] = field(default_factory=dict)
    expected: list[str] = field(default_factory=list)
    completed: set[tuple[str, int]] = field(default_factory=set)
    numbers: list[int] = field(default_factory=list)

    def sent(self, name: str, now: int) -> None:
        last = self.accepted_at.get(name)
        if last is None or now - last >= WINDOW * SECOND:
            self.accepted_at[name] = now
            self.expected.append(name)


@examples(15)
@given(STEPS)
def test_nothing_accepted_is_lost_and_nothing_completed_comes_back(steps: Sequence[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(history(Path(folder), steps))


async def history(folder: Path, steps: Sequence[Step]) -> None:
    time, known, lives = FakeTime(), Known(), 0
    data = folder / "0"
    remaining = list(steps)
    while True:
        async with scene(data, time) as stage:
            if lives == 0:
                await stage.queue("q", detects=True, duplicate_detection_history_time_window=WINDOW * SECOND)
                await stage.queue("source", forward_to="q")
            ending = await live(stage, remaining, known)
            if ending == "die":
                await copy_as_a_crash_would_leave_it(stage, data, folder / f"{lives + 1}")
            if ending is None:
                await check(stage, known)
                return
        lives += 1
        data = folder / f"{lives}" if ending == "die" else data
        if data.name != str(lives):
            data = data.rename(folder / f"{lives}")


async def copy_as_a_crash_would_leave_it(stage: Scene, data: Path, copy: Path) -> None:
    """Copy the data at one moment: nothing writes to the inbox or the store, and the pipeline is paused."""
    free = threading.Event()
    still = []
    for thread in (stage.core.entrance.acceptor._thread, stage.core.store._thread):
        started = asyncio.Event()
        thread.begin(hold_still, asyncio.get_running_loop(), started, free)
        still.append(started.wait())
    await asyncio.gather(*still)
    try:
        shutil.copytree(data, copy, copy_function=copy_unless_gone)
    finally:
        free.set()


def hold_still(loop: asyncio.AbstractEventLoop, started: asyncio.Event, free: threading.Event) -> None:
    loop.call_soon_threadsafe(started.set)
    free.wait(20)


def copy_unless_gone(source: str, target: str) -> None:
    # An outbox entry that the store has ingested may be deleted at any time.
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)


async def live(stage: Scene, steps: list[Step], known: Known) -> str | None:
    """Take steps until the broker has to end. Return why it ends."""
    broker, time = stage.broker, stage.time
    while steps:
        step, choice = steps.pop(0)
        name = f"m{choice}"
        match step:
            case "send":
                known.numbers += await stage.send("q", name)
                known.sent(name, time.now)
            case "schedule":
                known.numbers += await stage.send("q", message(name, scheduled=time.now + choice * SECOND))
                known.sent(name, time.now)
            case "forward":
                # A unique id, so that the moment of detection does not matter.
                name = f"f{len(known.expected)}"
                await stage.send("source", name)
                known.expected.append(name)
            case "complete" | "abandon":
                for each in await broker.receive(Address("q"), choice):
                    key = each.message.message_id, each.message.sequence
                    assert key not in known.completed
                    if step == "complete":
                        assert await stage.settle("q", each, Action.COMPLETE) is Outcome.DONE
                        known.completed.add(key)
                    else:
                        await stage.settle("q", each, Action.RELEASE)
            case "wait":
                await stage.later(choice * 15) if not stage.pipeline.is_paused else time.advance(choice * 15)
            case "pause":
                stage.pipeline.is_paused = True
            case _:
                return step
    return None


async def check(stage: Scene, known: Known) -> None:
    stage.pipeline.is_paused = False
    await stage.flow()
    await stage.later(HOUR / SECOND, rounds=3)
    found = []
    while batch := await stage.receive(mode=Mode.RECEIVE_AND_DELETE):
        found += [(each.message.message_id, each.message.sequence, each.message.enqueued) for each in batch]
    assert not {(name, sequence) for name, sequence, _ in found} & known.completed
    assert sorted([name for name, _, _ in found] + [name for name, _ in known.completed]) == sorted(known.expected)
    assert [sequence for _, sequence, _ in found] == sorted(sequence for _, sequence, _ in found)
    assert [enqueued for _, _, enqueued in found] == sorted(enqueued for _, _, enqueued in found)
    # No number was assigned twice, and none is assigned again.
    assert known.numbers == sorted({*known.numbers})
    [following] = await stage.send("q", "last")
    assert following > max([0, *known.numbers, *(sequence for _, sequence, _ in found)])


def test_times_do_not_go_back_over_a_restart_with_a_slower_clock(tmp_path: Path) -> None:
    async def run() -> None:
        async with scene(tmp_path, FakeTime()) as first:
            await first.queue()
            await first.send("q", "a")
            before = first.time.now
        # It must count whether or not the first message was ingested.
        for name in ("b", "c"):
            behind = FakeTime()
            behind.now -= 9 * MINUTE
            async with scene(tmp_path, behind) as later:
                await later.send("q", name)
                found = await later.broker.peek(Address("q"), 0, 10)
                assert [each.message.enqueued for each in found] == [before] * len(found)
                assert found

    asyncio.run(run())


def test_what_waits_in_the_pipeline_counts_for_the_quota_after_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        async with scene(tmp_path) as first:
            queue = await first.queue()
            first.pipeline.is_paused = True
            await first.send("q", message("a", bytes(1000)))
            held = first.broker.held(queue)
        async with scene(tmp_path) as second:
            assert second.broker.held(queue) == held > 1000
            await second.flow()
            assert second.broker.held(queue) == held
            assert second.core.accounting.in_pipeline(queue.id) == 0

    asyncio.run(run())


def test_an_interrupted_deletion_is_finished_at_the_next_start(tmp_path: Path) -> None:
    async def run() -> None:
        async with scene(tmp_path) as first:
            queue = await first.queue(detects=True)
            await first.send("q", "a", "a")
            await first.flow()
            # Crash after the version is published.
            first.core.catalogues.versions.publish(first.broker.catalogue.delete(Queue(name="q")))
        async with scene(tmp_path) as second:
            assert second.broker.catalogue.find("q") is None
            assert (await second.core.store.run(lambda store: store.entities.counts(queue.id))).active == 0
            assert await second.core.store.run(lambda store: store.duplicates.page(queue.id)) == []

    asyncio.run(run())


def test_a_pipeline_continues_at_once_if_the_last_one_was_in_another_container(tmp_path: Path) -> None:
    """Or the machine was restarted. Nobody can tell whether that process is alive, but the folder's lock can."""

    async def run() -> None:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Owner, "this_process", lambda: Owner("another container", 7, "0"))
            async with scene(tmp_path) as first:
                await first.queue("q", detects=True)
                await first.send("q", "a")
                assert await first.peeked("q") == ["a"]
        async with scene(tmp_path) as second:
            await second.send("q", "a", "b")
            assert await second.peeked("q") == ["a", "b"]

    asyncio.run(run())


@pytest.mark.parametrize("keys_first", [True, False])
def test_a_task_that_outlives_its_pipeline_makes_no_message_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys_first: bool
) -> None:
    """It has its verdicts, and publishes when the next pipeline owns the ledger; then that pipeline dies too."""

    def write_late(drafts: str, *rest: Any, before: Callable[[], object]) -> None:
        monkeypatch.setattr(batch, "write_part", write_part)
        if keys_first:
            before()
        successor = LocalDriver(Folders(tmp_path), shards=SHARDS)
        successor._ledger.join(successor._writer, 0)
        with pytest.raises(OutboxError, match="comes too late"):
            write_part(drafts, *rest, before=before)

    async def run() -> None:
        async with scene(tmp_path) as first:
            await first.queue("q", detects=True)
            await first.flow()
            first.pipeline.is_paused = True
            await first.send("q", "a")
            monkeypatch.setattr(batch, "write_part", write_late)
            assert first.pipeline.step()
            third = LocalDriver(Folders(tmp_path), shards=SHARDS)
            assert third.step()
            await first.send("q", "a")
            assert third.step()
            assert await first.peeked("q") == ["a"]
            assert [each.message_id for each in await first.duplicates("q")] == ["a"]

    asyncio.run(run())


@pytest.mark.parametrize("in_flight", [True, False])
def test_times_do_not_go_back_when_the_entity_with_the_newest_is_deleted(tmp_path: Path, in_flight: bool) -> None:
    async def run() -> None:
        async with scene(tmp_path, FakeTime()) as first:
            await first.queue("q")
            await first.send("q", "a")
            await first.queue("gone")
            await first.flow()
            first.time.advance(9 * MINUTE / SECOND)
            first.pipeline.is_paused = in_flight
            await first.send("gone", "b")
            if not in_flight:
                await first.flow()
            await first.delete_queue("gone")
            first.pipeline.is_paused = False
            await first.flow()
            newest = first.time.now
        async with scene(tmp_path, FakeTime()) as second:
            assert second.time.now < newest
            await second.send("q", "c")
            assert [each.message.enqueued for each in await second.receive()][1:] == [newest]

    asyncio.run(run())


def test_messages_left_in_the_pipeline_have_waited_since_they_were_accepted(tmp_path: Path) -> None:
    async def run() -> None:
        time = FakeTime()
        async with scene(tmp_path, time) as first:
            await first.queue()
            await first.send("q", "before")
            await first.flow()
            first.pipeline.is_paused = True
            assert first.broker.pipeline.oldest_wait == 0
            # A pulse, whose time is older than its append.
            time.advance(3600)
            await first.core.chores._pulse()
            await first.send("q", "a")
            time.advance(30)
            await first.send("q", "b")
            time.advance(30)
            assert first.broker.pipeline.oldest_wait == 60 * SECOND
        time.advance(60)
        async with scene(tmp_path, time) as second:
            second.pipeline.is_paused = True
            assert second.broker.pipeline.oldest_wait == 120 * SECOND
            time.advance(1)
            await second.send("q", "c")
            assert second.broker.pipeline.oldest_wait == 121 * SECOND
            second.pipeline.is_paused = False
            await second.flow()
            assert second.broker.pipeline.oldest_wait == 0

    asyncio.run(run())


def test_messages_left_in_the_pipeline_are_counted_by_entity_until_they_come_out(tmp_path: Path) -> None:
    async def run() -> None:
        async with scene(tmp_path) as first:
            queues = [await first.queue(name) for name in ("q0", "q1")]
            first.pipeline.is_paused = True
            for number in range(20):
                await first.send(f"q{number % 2}", message(f"m{number:02}", bytes(100 * (number % 2 + 1))))
            before = [first.core.accounting.in_pipeline(queue.id) for queue in queues]
        async with scene(tmp_path) as second:
            second.pipeline.is_paused = True
            assert [second.core.accounting.in_pipeline(queue.id) for queue in queues] == before
            # A micro-batch with this many rows, then the rest.
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(planning, "MOST_ROWS", 10)
                second.pipeline.step()
            async with asyncio.timeout(60):
                while second.core.progress.position < 10:
                    await asyncio.sleep(0.001)
            assert [second.core.accounting.in_pipeline(queue.id) * 2 for queue in queues] == before
            second.pipeline.is_paused = False
            await second.flow()
            assert [second.core.accounting.in_pipeline(queue.id) for queue in queues] == [0, 0]
            assert second.core.accounting.in_inbox == 0

    asyncio.run(run())
