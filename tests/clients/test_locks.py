"""Locks of ten seconds: renewed by hand, renewed by the clients' auto-renewers, and lost."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import AutoLockRenewer, ServiceBusMessage
from azure.servicebus.aio import AutoLockRenewer as AsyncRenewer
from azure.servicebus.exceptions import AutoLockRenewTimeout, MessageLockLostError

from .served import Served, async_received, body, is_empty, received
from .together import together

ACT = "locks"
LOCK = 10.0
LONGER = LOCK + 1.5
"""Longer than a lock, plus the time to release the message, in seconds."""


@together
def test_an_expired_lock_is_reported_and_the_message_is_delivered_again(served: Served) -> None:
    with served.pair("short") as (queue, sender, receiver):
        sender.send_messages([ServiceBusMessage(b"a"), ServiceBusMessage(b"b"), ServiceBusMessage(b"c")])
        served.arrived(queue, 3)
        first, second, third = received(receiver, 3)
        assert first.locked_until_utc is not None
        assert first.locked_until_utc - datetime.now(UTC) <= timedelta(seconds=LOCK)
        time.sleep(LONGER)
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(first)
        with pytest.raises(MessageLockLostError):
            receiver.renew_message_lock(second)
        # Simulate a wrong clock at the client, so that the broker has to report the lost lock.
        third._expiry = datetime.now(UTC) + timedelta(hours=1)
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(third)
        again = received(receiver, 3)
        assert [(body(message), message.delivery_count) for message in again] == [(b"a", 1), (b"b", 1), (b"c", 1)]
        for message in again:
            receiver.complete_message(message)


@together
def test_a_renewed_lock_outlives_its_first_expiry(served: Served) -> None:
    with served.pair("short") as (_, sender, receiver):
        sender.send_messages(ServiceBusMessage(b"a"))
        (message,) = received(receiver, 1)
        before = message.locked_until_utc
        assert before is not None
        for _ in range(6):
            time.sleep(LOCK * 0.2)
            assert receiver.renew_message_lock(message) > before
        assert datetime.now(UTC) > before
        receiver.complete_message(message)
        assert is_empty(receiver)


@together
def test_the_clients_auto_renewer_keeps_a_lock_for_the_configured_time(served: Served) -> None:
    with served.pair("short") as (queue, sender, receiver), AutoLockRenewer() as renewer:
        sender.send_messages([ServiceBusMessage(b"kept"), ServiceBusMessage(b"given up")])
        served.arrived(queue, 2)
        kept, given_up = received(receiver, 2)
        renewer.register(receiver, kept, max_lock_renewal_duration=60)
        renewer.register(receiver, given_up, max_lock_renewal_duration=1)
        time.sleep(LOCK * 1.6)
        receiver.complete_message(kept)
        (again,) = received(receiver, 1)
        assert (body(again), again.delivery_count) == (b"given up", 1)
        receiver.complete_message(again)
        assert isinstance(given_up.auto_renew_error, AutoLockRenewTimeout)


@together
async def test_the_asyncio_clients_auto_renewer_keeps_a_lock(served: Served) -> None:
    queue = served.queue("short")
    renewer = AsyncRenewer()
    async with (
        served.async_client() as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue, auto_lock_renewer=renewer) as receiver,
    ):
        await sender.send_messages(ServiceBusMessage(b"a"))
        (message,) = await async_received(receiver, 1)
        await asyncio.sleep(LOCK * 1.6)
        await receiver.complete_message(message)
        assert await receiver.peek_messages(5, sequence_number=1) == []
        await renewer.close()


@together
async def test_the_asyncio_client_gets_an_error_for_an_expired_lock_and_the_message_again(served: Served) -> None:
    queue = served.queue("short")
    async with (
        served.async_client() as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as receiver,
    ):
        await sender.send_messages([ServiceBusMessage(b"a"), ServiceBusMessage(b"b"), ServiceBusMessage(b"c")])
        served.arrived(queue, 3)
        first, second, third = await async_received(receiver, 3)
        await asyncio.sleep(LONGER)
        with pytest.raises(MessageLockLostError):
            await receiver.complete_message(first)
        for message in (second, third):
            # Simulate a wrong clock at the client, so that the broker has to report the lost lock.
            message._expiry = datetime.now(UTC) + timedelta(hours=1)
        with pytest.raises(MessageLockLostError):
            await receiver.renew_message_lock(second)
        with pytest.raises(MessageLockLostError):
            await receiver.complete_message(third)
        again = await async_received(receiver, 3)
        assert [(body(message), message.delivery_count) for message in again] == [(b"a", 1), (b"b", 1), (b"c", 1)]
        for message in again:
            await receiver.complete_message(message)


@together
def test_a_lock_outlives_the_receiver_that_closed(served: Served) -> None:
    queue = served.queue("short")
    with served.client() as client, client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage(b"a"))
        with client.get_queue_receiver(queue) as receiver:
            (message,) = received(receiver, 1)
            until = receiver.renew_message_lock(message)
        with client.get_queue_receiver(queue) as other:
            (again,) = received(other, 1)
            assert datetime.now(UTC) >= until
            assert again.delivery_count == 1
            other.complete_message(again)
