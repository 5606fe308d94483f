"""Peers that do not read, or send a byte now and then, do not affect others."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from azure.servicebus import ServiceBusMessage

from tests.amqp.sockets import Socket, connected

from .raw import attach_receiver, attach_sender, raw_sender, signed_in, signing_in
from .served import Served, async_received, body, texts

LARGE = 200_000
MANY = 40
"""Messages for the peer that does not read: far more than the socket buffers hold."""


async def drip(socket: Socket, data: bytes) -> None:
    """Send one byte per second."""
    for byte in data:
        await socket.say(bytes([byte]))
        await asyncio.sleep(1)


async def go_on(served: Served, queue: str) -> None:
    """Send, receive, settle and peek with another client."""
    async with (
        served.async_client() as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as receiver,
    ):
        for text in texts(range(20)):
            await sender.send_messages(ServiceBusMessage(text))
        messages = await async_received(receiver, 20)
        assert [body(message) for message in messages] == texts(range(20))
        for message in messages:
            await receiver.complete_message(message)
        assert await receiver.peek_messages(5, sequence_number=1) == []


def test_peers_that_do_not_read_or_hardly_send_do_not_delay_others(served: Served) -> None:
    flooded, dripped, busy = served.queue(), served.queue(), served.queue()

    async def play() -> None:
        async with AsyncExitStack() as stack:
            deaf = await stack.enter_async_context(signed_in(served, limit=1024))
            await attach_receiver(deaf, flooded, 1000)
            # Read only the few bytes that are already in the buffer.
            deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
            async with raw_sender(served, flooded) as sender:
                for _ in range(MANY):
                    await sender.send(bytes(LARGE))
            stranger = await stack.enter_async_context(connected(served.port))
            known = await stack.enter_async_context(signed_in(served))
            slow = await attach_sender(known, dripped)
            message = slow.frames(b"slowly")
            dripping = [
                asyncio.create_task(drip(stranger, signing_in(served))),
                asyncio.create_task(drip(known, message[:-1])),
            ]
            await go_on(served, busy)
            async with raw_sender(served, busy) as sender:
                await sender.send(b"more")
            # The slow senders are still connected.
            assert not any(task.done() for task in dripping)
            for task in dripping:
                task.cancel()
            await asyncio.gather(*dripping, return_exceptions=True)
            deaf.writer.transport.resume_reading()  # type: ignore[attr-defined]
            size = 0
            while size < MANY * LARGE:
                size += len((await deaf.frame()).payload)

    asyncio.run(play())
