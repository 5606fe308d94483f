"""Units of work on the store that share a store transaction."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncebus.broker.errors import BrokerClosed
from oncebus.broker.store_thread import StoreThread
from oncebus.engine.store import Highest, SessionLockLost, Store, StoreFull
from oncebus.values.errors import OncebusError
from oncebus.values.threads import OwnThread


class Refused(OncebusError):
    pass


def run(tmp_path: Path, plot: Callable[[StoreThread], Awaitable[None]]) -> Store:
    async def body() -> None:
        thread = StoreThread(Store.open(tmp_path / "store.db"), OwnThread("store"), lambda _: None)
        try:
            await plot(thread)
        finally:
            await thread.close()

    asyncio.run(body())
    return Store.open(tmp_path / "store.db")


def note(entity: int) -> Callable[[Store], int]:
    def work(store: Store) -> int:
        store._tables.progress.raise_highest([Highest(entity, 0, 1, 1)])
        return entity

    return work


def note_and(error: Exception, entity: int) -> Callable[[Store], int]:
    def work(store: Store) -> int:
        note(entity)(store)
        raise error

    return work


def noted(store: Store) -> set[int]:
    try:
        return {mark.entity for mark in store.progress.highest()}
    finally:
        store.close()


@contextmanager
def held_up(thread: StoreThread) -> Iterator[None]:
    """Let all work that is submitted in the block run in one group."""
    free = threading.Event()
    thread._thread.begin(free.wait)
    try:
        yield
    finally:
        free.set()


@pytest.mark.parametrize("error", [Refused("no"), OverflowError("too large"), KeyError("x")])
def test_work_that_raises_leaves_nothing_behind_and_does_not_disturb_the_others(
    tmp_path: Path, error: Exception
) -> None:
    async def plot(thread: StoreThread) -> None:
        with held_up(thread):
            asked = [asyncio.create_task(thread.run(work)) for work in (note(1), note_and(error, 2), note(3))]
            await asyncio.sleep(0)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert answers == [1, error, 3]

    assert noted(run(tmp_path, plot)) == {1, 3}


def test_expected_errors_cost_the_others_nothing(tmp_path: Path) -> None:
    calls = 0

    def counted(store: Store) -> int:
        nonlocal calls
        calls += 1
        return calls

    async def plot(thread: StoreThread) -> None:
        error = SessionLockLost("lost")

        def lost(store: Store) -> int:
            raise error

        with held_up(thread):
            asked = [asyncio.create_task(thread.run(work)) for work in (counted, lost)]
            await asyncio.sleep(0)
        assert await asyncio.gather(*asked, return_exceptions=True) == [1, error]

    run(tmp_path, plot).close()
    assert calls == 1


def test_a_full_disk_fails_the_whole_group_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def plot(thread: StoreThread) -> None:
        def fail(store: Store) -> int:
            raise OSError(28, "No space left on device")

        with held_up(thread):
            asked = [asyncio.create_task(thread.run(work)) for work in (note(1), fail, note(2))]
            await asyncio.sleep(0)
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            assert isinstance(answer, StoreFull)
        assert await thread.run(note(3)) == 3

    assert noted(run(tmp_path, plot)) == {3}


def test_work_that_is_cancelled_before_it_began_is_not_done(tmp_path: Path) -> None:
    async def plot(thread: StoreThread) -> None:
        with held_up(thread):
            first = asyncio.create_task(thread.run(note(1)))
            await asyncio.sleep(0.01)
            second = asyncio.create_task(thread.run(note(2)))
            await asyncio.sleep(0)
            second.cancel()
        assert await first == 1
        await asyncio.gather(second, return_exceptions=True)

    assert noted(run(tmp_path, plot)) == {1}


def test_an_answer_that_nobody_gets_is_handed_to_unwanted(tmp_path: Path) -> None:
    unwanted: list[int] = []

    async def plot(thread: StoreThread) -> None:
        with held_up(thread):
            first = asyncio.create_task(thread.run(note(1), unwanted.append))
            await asyncio.sleep(0.01)
            first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await thread.run(note(2), unwanted.append)

    assert noted(run(tmp_path, plot)) == {1, 2}
    assert unwanted == [1]


def test_closing_does_submitted_work_and_refuses_the_rest(tmp_path: Path) -> None:
    async def body() -> None:
        thread = StoreThread(Store.open(tmp_path / "store.db"), OwnThread("store"), lambda _: None)
        asked = asyncio.create_task(thread.run(note(1)))
        await asyncio.sleep(0)
        closing = asyncio.create_task(thread.close())
        await asyncio.sleep(0)
        with pytest.raises(BrokerClosed, match="shutting down"):
            await thread.run(note(2))
        await closing
        assert await asked == 1

    asyncio.run(body())
    assert noted(Store.open(tmp_path / "store.db")) == {1}
