"""Which messages share a commit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from oncebus.broker import acceptor
from oncebus.broker.acceptor import Acceptor, Charge, resolve
from oncebus.broker.clock import time_passed
from oncebus.broker.latencies import Latency
from oncebus.engine.inbox import InboxWriter, Row
from oncebus.values.threads import OwnThread

HOUR = 3600.0
PATIENCE = 60.0

Send = Callable[[], Awaitable[int]]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a commit wait until all callers have arrived, however quick it is."""
    monkeypatch.setattr(acceptor, "GATHER_SECONDS", HOUR)
    monkeypatch.setattr(acceptor, "QUICK_SECONDS", 0)


def groups(folder: Path, plot: Callable[[Send], Awaitable[None]]) -> list[int]:
    """Return how many calls each commit has."""
    sizes: list[int] = []

    async def play() -> None:
        accepting = Acceptor(
            InboxWriter.open(folder, 2),
            OwnThread("inbox"),
            lambda group, _: sizes.append(len(group)),
            Latency(),
            time_passed,
        )

        async def send() -> int:
            row = Row(entity=1, sequence=1, time=1, window=0, message_id="a", hops=0, size=1, head=b"h", body=b"b")
            durable: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            accepting.append([row], [Charge(1, 1, 1, 0)], 1, 1, partial(resolve, durable))
            return await durable

        async with asyncio.timeout(PATIENCE):
            await plot(send)
        await accepting.close()

    asyncio.run(play())
    return sizes


async def send_often(send: Send, times: int, turns: int = 0) -> None:
    """Send again when the answer has arrived, a number of loop iterations later."""
    for _ in range(times):
        await send()
        for _ in range(turns):
            await asyncio.sleep(0)


@pytest.mark.usefixtures("patient")
def test_senders_that_were_answered_together_share_the_next_commit(tmp_path: Path) -> None:
    async def plot(send: Send) -> None:
        await asyncio.gather(*(send_often(send, 20, turns) for turns in range(8)))

    assert groups(tmp_path, plot) == [8] * 20


@pytest.mark.usefixtures("patient")
def test_callers_that_arrive_during_a_commit_are_waited_for_as_well(tmp_path: Path) -> None:
    async def plot(send: Send) -> None:
        first = asyncio.create_task(send_often(send, 5))
        await asyncio.sleep(0)
        # The commit of the first call has begun.
        await asyncio.sleep(0)
        await asyncio.gather(first, send_often(send, 4))

    assert groups(tmp_path, plot) == [1, 2, 2, 2, 2]


@pytest.mark.usefixtures("patient")
def test_a_sender_alone_waits_for_nobody(tmp_path: Path) -> None:
    assert groups(tmp_path, lambda send: send_often(send, 5, 1)) == [1] * 5


@pytest.mark.usefixtures("patient")
def test_full_or_quick_commits_wait_for_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def plot(send: Send) -> None:
        await asyncio.gather(*(send() for _ in range(5)))
        await send_often(send, 2)

    monkeypatch.setattr(acceptor, "MOST_ROWS", 4)
    assert groups(tmp_path / "full", plot) == [4, 1, 1, 1]
    monkeypatch.setattr(acceptor, "MOST_ROWS", 5)
    monkeypatch.setattr(acceptor, "QUICK_SECONDS", HOUR)
    assert groups(tmp_path / "quick", plot) == [5, 1, 1]


def test_a_caller_that_does_not_return_is_waited_for_once_and_not_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "QUICK_SECONDS", 0)
    waits = []
    gather = Acceptor._gather

    async def counted(accepting: Acceptor) -> None:
        waits.append(accepting)
        await gather(accepting)

    monkeypatch.setattr(Acceptor, "_gather", counted)

    async def plot(send: Send) -> None:
        await asyncio.gather(send(), send(), send())
        await send_often(send, 3)

    assert groups(tmp_path, plot) == [3, 1, 1, 1]
    assert len(waits) == 1


def test_rows_that_wait_for_others_are_accepted_before_the_inbox_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "GATHER_SECONDS", 0.2)
    monkeypatch.setattr(acceptor, "QUICK_SECONDS", 0)
    answers: list[asyncio.Future[int]] = []

    async def plot(send: Send) -> None:
        await asyncio.gather(send(), send())
        answers.append(asyncio.ensure_future(send()))
        await asyncio.sleep(0)

    assert groups(tmp_path, plot) == [2, 1]
    assert [answer.result() for answer in answers] == [2]
