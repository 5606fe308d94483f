"""Very many idle connections and a few busy ones. Prints the memory per idle connection."""

from __future__ import annotations

import asyncio
import time

import pytest

from .raw import idle_receivers, raw_sender
from .served import Served, body, received

SENDERS = 10
EACH = 20


@pytest.mark.parametrize(
    "connections", [pytest.param(100, id="100"), pytest.param(2000, id="2000", marks=pytest.mark.torture)]
)
def test_no_send_fails_while_very_many_receivers_wait(served: Served, connections: int) -> None:
    idle, busy = served.queue(), served.queue()

    async def send(number: int) -> None:
        async with raw_sender(served, busy) as sender:
            for turn in range(EACH):
                await sender.send(f"{number}/{turn:02}".encode())

    async def play() -> None:
        before, began = served.memory(), time.monotonic()
        async with idle_receivers(served, idle, connections):
            each = (served.memory() - before) / connections
            print(f"{connections} connections in {time.monotonic() - began:.1f} s, {each / 1024:.1f} KB each")
            assert served.http.metric("amqp_connections") >= connections
            began = time.monotonic()
            await asyncio.gather(*(send(number) for number in range(SENDERS)))
            print(f"{SENDERS * EACH} sends by {SENDERS} senders in {time.monotonic() - began:.2f} s")

    asyncio.run(play())
    with served.client() as client, client.get_queue_receiver(busy, prefetch_count=100) as receiver:
        found = sorted(body(message) for message in received(receiver, SENDERS * EACH))
    assert found == [f"{number}/{turn:02}".encode() for number in range(SENDERS) for turn in range(EACH)]
