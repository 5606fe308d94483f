"""Threads: where they are made, their order, and what becomes of errors and of work that nobody waits for."""

from __future__ import annotations

import ast
import asyncio
import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import oncebus
from oncebus.values.threads import OwnThread, Threads

SOURCE = Path(oncebus.__file__).parent
MADE = {"Thread", "Timer", "ThreadPoolExecutor", "ProcessPoolExecutor", "to_thread", "run_in_executor"}
ELSEWHERE = {
    "connector": "runs where no broker is, with the client library of Azure",
    "doctor": "watches a trial from outside",
    "programs/dedup": "a progress display beside Spark",
    "testing": "a whole broker in a thread of the users' tests",
    "protocols/monitoring/span_export.py": "the exporter of OpenTelemetry may hang when it is closed",
}
"""Threads that a simulated broker never meets."""


def threads_made(tree: ast.AST) -> Iterator[str]:
    """Yield the name of each use of something that makes a thread."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in ("threading", "concurrent.futures", "asyncio"):
            yield from (each.name for each in node.names if each.name in MADE)
        elif isinstance(node, ast.Attribute) and node.attr in MADE:
            yield node.attr


def test_all_threads_of_a_broker_come_from_one_module() -> None:
    found = {
        str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if any(threads_made(ast.parse(path.read_text())))
    } - {"values/threads.py"}
    assert {each for each in found if not each.startswith(tuple(ELSEWHERE))} == set()
    assert {place for place in ELSEWHERE if not any(each.startswith(place) for each in found)} == set()


def test_the_check_finds_all_ways_to_make_a_thread() -> None:
    hidden = """
from concurrent.futures import ThreadPoolExecutor
from asyncio import to_thread
threading.Thread(target=work)
asyncio.to_thread(work)
loop.run_in_executor(None, work)
"""
    assert [*threads_made(ast.parse(hidden))] == [
        "ThreadPoolExecutor", "to_thread", "Thread", "to_thread", "run_in_executor",
    ]  # fmt: skip


def test_an_own_thread_does_work_in_order_and_in_one_thread() -> None:
    async def play() -> None:
        thread, done = OwnThread("own"), list[tuple[int, int]]()

        def note(number: int) -> None:
            done.append((number, threading.get_ident()))

        await asyncio.gather(*(thread.run(note, number) for number in range(100)))
        thread.close()
        assert [number for number, _ in done] == list(range(100))
        assert len({ident for _, ident in done}) == 1

    asyncio.run(play())


def test_work_in_any_thread_does_not_wait_for_other_work() -> None:
    async def play() -> None:
        threads, meet = Threads(), threading.Barrier(3)
        assert sorted(await asyncio.gather(*(threads.run(meet.wait, 60) for _ in range(3)))) == [0, 1, 2]

    asyncio.run(play())


def test_errors_reach_the_caller() -> None:
    async def play() -> None:
        threads = Threads()
        for run in (threads.run, threads.own("own").run):
            with pytest.raises(ZeroDivisionError):
                await run(divmod, 1, 0)
            assert await run(divmod, 7, 2) == (3, 1)

    asyncio.run(play())
    thread = OwnThread("own")
    assert isinstance(thread.begin(divmod, 1, 0).exception(), ZeroDivisionError)
    assert thread.begin(divmod, 7, 2).result() == (3, 1)


def test_work_is_done_even_if_nobody_waits_for_it() -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), list[int]()

    def work() -> None:
        begun.set()
        may_end.wait()
        ended.append(1)

    async def play() -> OwnThread:
        thread = OwnThread("own")
        first, second = thread.run(work), thread.run(ended.append, 2)
        while not begun.is_set():
            await asyncio.sleep(0)
        first.cancel()
        second.cancel()
        return thread

    thread = asyncio.run(play())
    # The loop has closed: the answers are dropped.
    may_end.set()
    thread.close()
    assert ended == [1, 2]


def test_threads_end_with_their_owner() -> None:
    thread = OwnThread("own")
    runs = thread.begin(threading.current_thread).result()
    assert runs.is_alive()
    del thread
    gc.collect()
    runs.join(60)
    assert not runs.is_alive()


def test_a_thread_that_cannot_be_started_is_started_for_the_next_work(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        thread = OwnThread("own")
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", _refuse)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                await thread.run(int)
        assert await thread.run(int, "3") == 3
        thread.close()

    asyncio.run(work())


def _refuse(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_work_whose_future_is_cancelled_does_not_end_the_thread() -> None:
    thread, may_go_on = OwnThread("own"), threading.Event()
    thread.begin(may_go_on.wait)
    cancelled = thread.begin(int, "3")
    assert cancelled.cancel()
    may_go_on.set()
    assert thread.begin(int, "4").result(60) == 4
    thread.close()
