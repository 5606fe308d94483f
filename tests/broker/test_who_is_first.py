"""The place in the inbox decides which message is first, even if the clock stands still and the numbers differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncebus.broker.broker import Received
from oncebus.broker.sending import Incoming
from tests.broker.scenes import DAY, Scene, message, play
from tests.broker.test_transactions import Client


async def schedule(scene: Scene, client: Client, *names: str) -> list[int]:
    """Schedule messages for tomorrow in a client's transaction. Return their numbers, which are reserved at once."""
    with client.all.work(client.transaction.id) as work:
        return await work.schedule("q", [message(name, scheduled=scene.time.now + DAY) for name in names])


async def process(scene: Scene, *, together: bool) -> None:
    """Let a paused pipeline process everything, in one micro-batch or in one for each commit."""
    while scene.pipeline.step(1 << 62 if together else 1):
        pass
    await scene.flow()


async def drops(scene: Scene, path: str = "q") -> list[tuple[int, int | None]]:
    """Return the numbers of dropped messages, each with that of its original."""
    return [(drop.sequence, drop.original_sequence) for drop in await scene.duplicates(path)]


async def lock_one(scene: Scene) -> Received:
    await scene.send("q", "locked")
    [received] = await scene.receive()
    return received


@pytest.mark.parametrize("settles", [False, True])
@pytest.mark.parametrize("sends_first", [False, True])
def test_within_a_transaction_the_first_operation_is_first(tmp_path: Path, settles: bool, sends_first: bool) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        received = await lock_one(scene)
        client = Client(scene)
        if settles:
            await client.settle(received)
        if sends_first:
            client.send("q", "k")
        [reserved] = await schedule(scene, client, "k")
        if not sends_first:
            client.send("q", "k")
        await client.commit()
        counts = await scene.counts()
        assert counts.scheduled == (0 if sends_first else 1)
        assert await scene.taken() == (["k"] if sends_first else [])
        sent = reserved + 1
        assert await drops(scene) == [(reserved, sent) if sends_first else (sent, reserved)]

    play(tmp_path, plot)


@pytest.mark.parametrize("settles", [False, True])
@pytest.mark.parametrize("together", [False, True])
def test_an_answered_send_is_before_a_transaction_that_commits_later(
    tmp_path: Path, settles: bool, together: bool
) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        received = await lock_one(scene)
        scene.pipeline.is_paused = True
        client = Client(scene)
        [reserved] = await schedule(scene, client, "k")
        [sent] = await scene.send("q", "k")
        if settles:
            await client.settle(received)
        await client.commit()
        await process(scene, together=together)
        assert await scene.taken() == ["k"]
        assert await drops(scene) == [(reserved, sent)]

    play(tmp_path, plot)


@pytest.mark.parametrize("together", [False, True])
def test_a_forget_is_before_a_transaction_that_commits_later(tmp_path: Path, together: bool) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        await scene.send("q", "k")
        client = Client(scene)
        await schedule(scene, client, "k")
        forget = await scene.broker.forget("q", "k")
        assert forget is not None
        scene.pipeline.is_paused = True
        await client.commit()
        await scene.send("q", "k")
        await process(scene, together=together)
        counts = await scene.counts()
        assert (counts.active, counts.scheduled, counts.duplicates) == (1, 1, 1)

    play(tmp_path, plot)


def body(name: str) -> Incoming:
    return message(name, b"same")


def property_(name: str) -> Incoming:
    return message(name, user={"order": "same"})


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(("key", "make"), [("body", body), ("property:order", property_)])
def test_messages_of_several_partitions_are_in_the_order_of_the_inbox(
    tmp_path: Path, key: str, make: type, together: bool
) -> None:
    """The number of a partition stands in the top bits of its sequence numbers."""

    async def plot(scene: Scene) -> None:
        names = [f"m{number}" for number in range(8)]
        for path in ("batch", "single"):
            await scene.queue(path, detects=True, enable_partitioning=True, detection_key=key)
        scene.pipeline.is_paused = True
        first, *others = await scene.send("batch", *map(make, names))
        alone, *later = [number for name in names for number in await scene.send("single", make(name))]
        assert any(number < first for number in others)
        await process(scene, together=together)
        assert await scene.taken("batch") == await scene.taken("single") == ["m0"]
        assert sorted(await drops(scene, "batch")) == sorted((number, first) for number in others)
        assert sorted(await drops(scene, "single")) == sorted((number, alone) for number in later)

    play(tmp_path, plot)


def test_forwarded_messages_are_in_the_order_of_the_inbox(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("target", detects=True, enable_partitioning=True, detection_key="body")
        await scene.queue("source", forward_to="target")
        await scene.send("source", *(body(f"m{number}") for number in range(8)))
        await scene.rounds(2)
        assert await scene.taken("target") == ["m0"]
        assert len({original for _, original in await drops(scene, "target")}) == 1

    play(tmp_path, plot)
