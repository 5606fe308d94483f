"""Receivers in receive-and-delete mode: on a link that stays open, no message is lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from oncebus import amqp
from oncebus.amqp.performatives import Flow, Transfer
from oncebus.broker.addresses import Address
from oncebus.engine.store import Mode
from oncebus.protocols.servicebus.messages import incoming_message
from oncebus.protocols.servicebus.receiver import Receiver
from tests.amqp.client import credit, frames

from .bus import PATIENCE
from .raw import RawClient, Stage, message, of, play


async def put(stage: Stage, *bodies: bytes) -> None:
    await stage.broker.send("orders", [incoming_message(message(body)) for body in bodies])
    await stage.broker.counts("orders")


def body(payload: bytes) -> bytes:
    found = amqp.decode_body(amqp.split(payload).body)
    assert isinstance(found, bytes)
    return found


async def looking(stage: Stage) -> RawClient:
    """Return a receiver with a credit of five, while the broker receives three messages for it."""
    await put(stage, b"a", b"b", b"c")
    client = stage.client()
    await client.attached(of("orders", snd_settle_mode=1))
    client.do(credit(5))
    await asyncio.sleep(0)
    return client


def test_messages_in_flight_come_before_the_answer_to_a_drain(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = await looking(stage)
        client.do(credit(5, drain=True))
        # `received` skips other frames: the flow must not be among those.
        assert [body(payload) for _, payload in await client.received(3)] == [b"a", b"b", b"c"]
        flow, _ = await client.next(Flow)
        assert (flow.link_credit, flow.delivery_count, flow.drain) == (0, 5, True)
        assert (await stage.broker.counts("orders")).active == 0

    play(tmp_path, scenario)


@pytest.mark.parametrize("drain", [False, True], ids=["kept", "drained"])
def test_messages_in_flight_come_even_if_the_credit_is_revoked(tmp_path: Path, drain: bool) -> None:
    async def scenario(stage: Stage) -> None:
        client = await looking(stage)
        client.do(credit(0, drain=drain))
        assert [body(payload) for _, payload in await client.received(3)] == [b"a", b"b", b"c"]
        if drain:
            flow, _ = await client.next(Flow)
            assert (flow.link_credit, flow.delivery_count, flow.drain) == (0, 3, True)
        # No other message comes than those in flight.
        await put(stage, b"d")
        assert (await stage.broker.counts("orders")).active == 1
        client.do(credit(1, delivery_count=3))
        assert [body(payload) for _, payload in await client.received(1)] == [b"d"]

    play(tmp_path, scenario)


def test_messages_in_flight_come_even_if_the_client_does_not_read_for_a_while(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = await looking(stage)
        client.connection.pause()
        client.do(credit(5))
        while (await stage.broker.counts("orders")).active:
            await asyncio.sleep(0)
        client.peer.on_events(client.connection.resume())
        assert [body(payload) for _, payload in await client.received(3)] == [b"a", b"b", b"c"]

    play(tmp_path, scenario)


def is_quiet(client: RawClient) -> bool:
    """Return whether nothing is in flight to a client."""
    (receiver,) = client.peer.links
    assert isinstance(receiver, Receiver)
    dispatcher = receiver._dispatcher
    is_looking = dispatcher is not None and (dispatcher._looking is not None or receiver in dispatcher._hurried)
    return not is_looking and receiver.link.session.outbound.room > 0


@pytest.mark.parametrize("seed", range(3))
def test_receivers_that_drain_and_change_credit_at_random_lose_nothing(tmp_path: Path, seed: int) -> None:
    async def scenario(stage: Stage) -> None:
        chance = random.Random(seed)
        clients = [stage.client() for _ in range(4)]
        counts = dict.fromkeys(clients, 0)
        for client in clients:
            await client.attached(of("orders", snd_settle_mode=1))
        came: list[bytes] = []

        def read(client: RawClient) -> None:
            for sent in frames(b"".join(client.connection.output())):
                match sent.performative:
                    case Transfer():
                        counts[client] += 1
                        came.append(body(sent.payload))
                    case Flow(delivery_count=int() as count):
                        counts[client] = count

        def flow(most: int, *, drain: bool = False) -> Callable[[RawClient], None]:
            return lambda client: client.do(credit(chance.randrange(most), delivery_count=counts[client], drain=drain))

        acts: list[Callable[[RawClient], None]] = [
            read,
            read,
            flow(5),
            flow(2),
            flow(4, drain=True),
            lambda client: client.connection.pause(),
            lambda client: client.peer.on_events(client.connection.resume()),
            lambda client: client.peer.on_events(client.connection.resume()),
        ]
        bodies = [str(number).encode() for number in range(150)]
        for start in range(0, 150, 5):
            await put(stage, *bodies[start : start + 5])
            for _ in range(8):
                for client in clients:
                    chance.choice(acts)(client)
                await asyncio.sleep(0)
        for client in clients:
            client.peer.on_events(client.connection.resume())
            client.do(credit(0, delivery_count=counts[client], drain=True))
        async with asyncio.timeout(PATIENCE):
            while not all(is_quiet(client) for client in clients):
                await asyncio.sleep(0.001)
                for client in clients:
                    read(client)
                    client.peer.on_events(client.connection.relieve())
        for client in clients:
            read(client)
        assert len(came) > 50
        left = await stage.broker.receive(Address("orders"), 200, mode=Mode.RECEIVE_AND_DELETE)
        came += [found for each in left if isinstance(found := amqp.decode_body(each.body), bytes)]
        assert sorted(came) == sorted(bodies)

    play(tmp_path, scenario)
