"""Who has just sent sees it: looks, receives, counts and cancels at once, though all of it goes through Spark first.

Not played at the same time as others: a broker that is busy may answer before it is done, after two seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusSender as AsyncSender

from . import javascript
from .served import PATIENCE, Pair, Served, body, left, texts

T = TypeVar("T")
KINDS = ["plain", "detecting"]


def send_ten(pair: Pair) -> None:
    for text in texts(range(10)):
        pair.sender.send_messages(ServiceBusMessage(text, message_id=text.decode()))


def told(what: str, look: Callable[[], T]) -> T:
    """What is seen, and how long it took."""
    began = time.monotonic()
    found = look()
    print(f"{what}: {time.monotonic() - began:.2f} s")
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_ten_messages_are_peeked_as_soon_as_they_were_sent(served: Served, kind: str) -> None:
    with served.pair(kind) as pair:
        send_ten(pair)
        peeked = told("peek", lambda: pair.receiver.peek_messages(10))
        assert [body(message) for message in peeked] == texts(range(10))


@pytest.mark.parametrize("kind", KINDS)
def test_ten_messages_are_counted_as_soon_as_they_were_sent(served: Served, kind: str) -> None:
    with served.pair(kind) as pair, served.administration() as admin:
        send_ten(pair)
        counts = told("count", lambda: admin.get_queue_runtime_properties(pair.queue))
        assert (counts.active_message_count, counts.total_message_count) == (10, 10)
        later = datetime.now(UTC) + timedelta(hours=1)
        pair.sender.schedule_messages(ServiceBusMessage(b"x", message_id="later"), later)
        assert admin.get_queue_runtime_properties(pair.queue).scheduled_message_count == 1
        if kind == "detecting":
            send_ten(pair)
            assert admin.get_queue_runtime_properties(pair.queue).active_message_count == 10


@pytest.mark.parametrize("wait", [5.0, 1.0])
def test_ten_messages_are_received_as_soon_as_they_were_sent(served: Served, wait: float) -> None:
    with served.pair() as pair:
        send_ten(pair)
        found: list[ServiceBusReceivedMessage] = []
        deadline = time.monotonic() + PATIENCE
        while len(found) < 10:
            assert time.monotonic() < deadline, f"{len(found)} of 10 came"
            some = told("receive", lambda: pair.receiver.receive_messages(10, max_wait_time=wait))
            print(f"{len(some)} messages")
            assert some or found or wait < 5.0, "nothing has come to who was ready to wait"
            found += some
        assert [body(message) for message in found] == texts(range(10))
        assert {message.delivery_count for message in found} == {0}


def test_a_message_that_was_just_scheduled_is_cancelled(served: Served) -> None:
    with served.pair() as pair:
        at = datetime.now(UTC) + timedelta(hours=1)
        numbers = pair.sender.schedule_messages([ServiceBusMessage(text) for text in texts(range(10))], at)
        told("cancel", lambda: pair.sender.cancel_scheduled_messages(numbers))
        assert left(pair.receiver) == []


async def async_send_ten(sender: AsyncSender) -> None:
    for text in texts(range(10)):
        await sender.send_messages(ServiceBusMessage(text, message_id=text.decode()))


@pytest.mark.parametrize("kind", KINDS)
def test_the_asyncio_client_sees_and_counts_ten_messages_as_soon_as_it_has_sent_them(served: Served, kind: str) -> None:
    async def play() -> None:
        peeked, counted = served.queue(kind), served.queue(kind)
        async with (
            served.async_client() as client,
            client.get_queue_sender(peeked) as first,
            client.get_queue_receiver(peeked) as receiver,
            client.get_queue_sender(counted) as second,
        ):
            await async_send_ten(first)
            assert [body(message) for message in await receiver.peek_messages(10)] == texts(range(10))
            await async_send_ten(second)
            with served.administration() as admin:
                # The administration client for asyncio needs a library that nothing else here does.
                counts = admin.get_queue_runtime_properties(counted)
            assert (counts.active_message_count, counts.total_message_count) == (10, 10)

    asyncio.run(play())


def test_the_asyncio_client_cancels_messages_that_it_has_just_scheduled(served: Served) -> None:
    async def play() -> None:
        queue = served.queue()
        async with (
            served.async_client() as client,
            client.get_queue_sender(queue) as sender,
            client.get_queue_receiver(queue) as receiver,
        ):
            at = datetime.now(UTC) + timedelta(hours=1)
            numbers = await sender.schedule_messages([ServiceBusMessage(text) for text in texts(range(10))], at)
            await sender.cancel_scheduled_messages(numbers)
            assert await receiver.peek_messages(10, sequence_number=1) == []

    asyncio.run(play())


def test_the_javascript_client_sees_counts_and_cancels_what_it_has_just_sent(served: Served) -> None:
    javascript.play("looking_at_once.mjs", served, plain=3, detecting=2)
