"""On a partitioned entity a transaction belongs to one partition."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from oncebus.broker.addresses import Address
from oncebus.broker.transactions import RolledBack
from oncebus.engine.store import Outcome
from oncebus.model.entities import InvalidOperation
from tests.broker.scenes import DAY, Scene, message, play
from tests.broker.test_transactions import Client

# Their partitions are 6 and 11, as for the partition keys in Microsoft's own test.
HERE: dict[str, Any] = {"partition_key": "1"}
THERE: dict[str, Any] = {"partition_key": "2"}
SPANS = "cannot span several partitions"


async def send(scene: Scene, client: Client, where: dict[str, Any]) -> None:
    client.send("q", "sent", **where)


async def schedule(scene: Scene, client: Client, where: dict[str, Any]) -> None:
    with client.all.work(client.transaction.id) as work:
        await work.schedule("q", [message("scheduled", scheduled=scene.time.now + DAY, **where)])


async def cancel(scene: Scene, client: Client, where: dict[str, Any]) -> None:
    [number] = await scene.send("q", message("cancelled", scheduled=scene.time.now + DAY, **where))
    await scene.flow()
    with client.all.work(client.transaction.id) as work:
        assert await work.cancel_scheduled("q", [number]) == [Outcome.DONE]


async def settle(scene: Scene, client: Client, where: dict[str, Any]) -> None:
    [number] = await scene.send("q", message("locked", **where))
    [received] = [each for each in await scene.receive("q") if each.message.sequence == number]
    assert await client.settle(received) is Outcome.DONE


DOING: list[Callable[[Scene, Client, dict[str, Any]], Awaitable[None]]] = [send, schedule, cancel, settle]


@pytest.mark.parametrize("first", DOING, ids=lambda each: each.__name__)
@pytest.mark.parametrize("second", DOING, ids=lambda each: each.__name__)
def test_every_operation_keeps_to_the_partition_of_the_first(tmp_path: Path, first: Any, second: Any) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(enable_partitioning=True)
        client = Client(scene)
        await first(scene, client, HERE)
        await second(scene, client, HERE)
        await client.commit()
        client.declare()
        await first(scene, client, HERE)
        with pytest.raises(InvalidOperation, match=SPANS):
            await second(scene, client, THERE)
        with pytest.raises(RolledBack, match=SPANS):
            await client.commit()
        # Without partitions, all of it is one place.
        await scene.delete_queue()
        await scene.queue()
        client.declare()
        await first(scene, client, HERE)
        await second(scene, client, THERE)
        await client.commit()

    play(tmp_path, plot)


def test_one_request_cannot_span_partitions_either(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(enable_partitioning=True, detects=True)
        client = Client(scene)
        with pytest.raises(InvalidOperation, match=SPANS):
            client.send("q", "1", "2")
        client.declare()
        client.send("q", "1", "1")
        client.send("q", "any", **HERE)
        await client.commit()

    play(tmp_path, plot)


@pytest.mark.parametrize("detects", [False, True])
def test_a_message_needs_a_partition_key(tmp_path: Path, detects: bool) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(enable_partitioning=True, detects=detects)
        client = Client(scene)
        with (
            pytest.raises(InvalidOperation, match="needs a partition key"),
            client.all.work(client.transaction.id) as work,
        ):
            work.send("q", [message(None if detects else "any")])
        with pytest.raises(RolledBack):
            await client.commit()

    play(tmp_path, plot)


def test_messages_that_go_via_the_entity_are_free(tmp_path: Path) -> None:
    """They are on their way to their own entities."""

    async def plot(scene: Scene) -> None:
        via = await scene.queue(enable_partitioning=True)
        await scene.queue("other", enable_partitioning=True)
        await scene.send("q", message("locked", **HERE))
        [received] = await scene.receive()
        client = Client(scene)
        await client.settle(received, via=via.id)
        client.send("other", "a", via=via.id, **HERE)
        client.send("other", "b", via=via.id, **THERE)
        client.send("other", "c", via=via.id)
        with pytest.raises(InvalidOperation, match=SPANS):
            client.send("q", "d", via=via.id, **THERE)

    play(tmp_path, plot)


def test_a_subscription_has_the_partitions_of_its_topic(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.topic(enable_partitioning=True)
        path = await scene.subscription()
        await scene.send("t", message("1", **HERE), message("2", **THERE), message("3", **HERE))
        received = {each.message.message_id: each for each in await scene.receive(path)}
        client = Client(scene)
        await client.settle(received["1"], path=path)
        await client.settle(received["3"], path=path)
        client.send("t", "a", **HERE)
        with pytest.raises(InvalidOperation, match=SPANS):
            await client.settle(received["2"], path=path)
        client.declare()
        await client.settle(received["2"], path=path)
        await client.commit()

    play(tmp_path, plot)


def test_the_state_of_a_session_is_in_the_partition_of_the_session(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(enable_partitioning=True, requires_session=True)
        await scene.send("q", message("a", session="1"), message("b", session="2"))
        await scene.flow()
        locks = [await scene.broker.accept_session(Address("q"), name) for name in "12"]
        client = Client(scene)
        client.send("q", "c", session="1")
        for lock in locks:
            assert lock is not None
            with client.all.work(client.transaction.id) as work:
                if lock.session == "1":
                    await work.set_session_state(lock, b"x")
                else:
                    with pytest.raises(InvalidOperation, match=SPANS):
                        await work.set_session_state(lock, b"x")

    play(tmp_path, plot)
