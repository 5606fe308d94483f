"""Work on large bodies: in a thread, for one key after the other."""

from __future__ import annotations

import asyncio
import threading

import pytest

from oncebus.protocols.http.worker import SMALL, Worker
from oncebus.values.threads import OwnThread


def test_keys_take_turns_and_small_work_does_not_wait() -> None:
    order: list[str] = []

    async def play() -> None:
        worker, begun, may_end = Worker(OwnThread("bodies")), threading.Event(), threading.Event()

        def first() -> str:
            begun.set()
            may_end.wait(60)
            order.append("many 0")
            return threading.current_thread().name

        def later(name: str) -> None:
            order.append(name)

        jobs = [asyncio.create_task(worker.run("many", SMALL + 1, first))]
        await asyncio.to_thread(begun.wait, 60)
        jobs_of_many = [
            asyncio.create_task(worker.run("many", SMALL + 1, lambda at=at: later(f"many {at}")))  # type: ignore[misc]
            for at in (1, 2, 3)
        ]
        one = asyncio.create_task(worker.run("few", SMALL + 1, lambda: later("few")))
        await asyncio.sleep(0)
        # A client that has gone gets no work done.
        jobs_of_many[1].cancel()
        assert await worker.run("many", SMALL, lambda: threading.current_thread().name) == "MainThread"
        may_end.set()
        await asyncio.gather(*jobs, *jobs_of_many, one, return_exceptions=True)
        assert (await jobs[0]).startswith("bodies")

    asyncio.run(play())
    assert order == ["many 0", "many 1", "few", "many 3"]


def test_an_error_reaches_the_caller_and_the_next_work_is_done() -> None:
    async def play() -> None:
        worker = Worker(OwnThread("bodies"))

        def fail() -> None:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await worker.run("key", SMALL + 1, fail)
        assert await worker.run("key", SMALL + 1, lambda: 1) == 1

    asyncio.run(play())
