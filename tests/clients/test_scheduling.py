"""Scheduled messages: peeked, cancelled and due."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import MessageNotFoundError

from .served import Served, async_received, body, completed, received
from .together import together

ACT = "messages"
LATER = timedelta(hours=1)
SOON = timedelta(seconds=10)
ROUNDED = timedelta(milliseconds=1)
"""Times have whole milliseconds."""


@together
def test_scheduled_messages_arrive_at_their_time_under_a_new_number(served: Served) -> None:
    with served.pair() as (_, sender, receiver):
        at = datetime.now(UTC) + SOON
        numbers = sender.schedule_messages([ServiceBusMessage(b"a"), ServiceBusMessage(b"b")], at)
        sender.send_messages(ServiceBusMessage(b"c", scheduled_enqueue_time_utc=at + timedelta(seconds=1)))
        sender.send_messages(ServiceBusMessage(b"now"))
        messages = received(receiver, 4)
        due = [message for message in messages if body(message) != b"now"]
        assert [body(message) for message in due] == [b"a", b"b", b"c"]
        for message in due:
            assert message.enqueued_time_utc is not None
            assert message.enqueued_time_utc >= at - ROUNDED
            assert message.sequence_number is not None
            assert message.sequence_number > max(numbers)
            # As in the service, a message that waited for its time keeps this state.
            assert message.state is ServiceBusMessageState.SCHEDULED


@pytest.mark.parametrize("kind", ["plain", "sessions"])
def test_a_due_message_does_not_overtake_messages_accepted_before_it(served: Served, kind: str) -> None:
    """Send other messages while some fall due. Some come before them and some after."""

    async def received() -> list[int]:
        queue, session = served.queue(kind), "s" if kind == "sessions" else None
        sent = due = 5
        at = datetime.now(UTC) + timedelta(seconds=3)
        numbers: list[int] = []

        async def send(client: ServiceBusClient) -> None:
            nonlocal sent
            async with client.get_queue_sender(queue) as sender:
                for millisecond in range(due):
                    message = ServiceBusMessage(b"due", session_id=session)
                    await sender.schedule_messages(message, at + timedelta(milliseconds=20 * millisecond))
                sent = 0
                while datetime.now(UTC) < at + timedelta(seconds=1):
                    await sender.send_messages(ServiceBusMessage(b"sent", session_id=session))
                    sent += 1

        async with served.async_client() as client:
            sending = asyncio.create_task(send(client))
            async with client.get_queue_receiver(queue, session_id=session) as receiver:
                while not sending.done() or len(numbers) < sent + due:
                    for message in await receiver.receive_messages(20, max_wait_time=1):
                        assert message.sequence_number is not None
                        numbers.append(message.sequence_number)
            await sending
        return numbers

    numbers = asyncio.run(received())
    assert numbers == sorted(numbers)
    assert len(numbers) == len(set(numbers))


@together
def test_a_scheduled_message_is_peeked_and_cancelled_once(served: Served) -> None:
    with served.pair() as (queue, sender, receiver):
        at = datetime.now(UTC) + LATER
        numbers = sender.schedule_messages([ServiceBusMessage(b"a"), ServiceBusMessage(b"b")], at)
        served.arrived(queue, 2, "scheduled")
        peeked = receiver.peek_messages(5)
        assert [(message.sequence_number, message.state) for message in peeked] == [
            (number, ServiceBusMessageState.SCHEDULED) for number in numbers
        ]
        shown = peeked[0].scheduled_enqueue_time_utc
        assert shown is not None
        assert abs(shown - at) <= ROUNDED
        sender.cancel_scheduled_messages(numbers[0])
        assert [message.sequence_number for message in receiver.peek_messages(5, sequence_number=1)] == numbers[1:]
        with served.client(retry_total=0) as client, client.get_queue_sender(queue) as other:
            for number in (numbers[0], 999):
                with pytest.raises(MessageNotFoundError):
                    other.cancel_scheduled_messages(number)
        sender.send_messages(ServiceBusMessage(b"now"))
        assert completed(receiver, 1) == [b"now"]


@together
async def test_the_asyncio_client_schedules_and_cancels(served: Served) -> None:
    queue = served.queue()
    async with (
        served.async_client() as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as receiver,
    ):
        now = datetime.now(UTC)
        kept, cancelled = await sender.schedule_messages(
            [ServiceBusMessage(b"kept"), ServiceBusMessage(b"cancelled")], now + LATER
        )
        served.arrived(queue, 2, "scheduled")
        await sender.cancel_scheduled_messages([cancelled])
        assert [message.sequence_number for message in await receiver.peek_messages(5)] == [kept]
        await sender.schedule_messages(ServiceBusMessage(b"soon"), now + SOON)
        (message,) = await async_received(receiver, 1)
        assert body(message) == b"soon"


@together
def test_a_message_scheduled_to_a_topic_is_routed_when_it_falls_due(served: Served) -> None:
    topic = served.topic()
    with (
        served.client() as client,
        client.get_topic_sender(topic) as sender,
        client.get_subscription_receiver(topic, "dear") as dear,
        client.get_subscription_receiver(topic, "all") as everything,
    ):
        at = datetime.now(UTC) + SOON

        def priced(price: int) -> ServiceBusMessage:
            return ServiceBusMessage(str(price).encode(), application_properties={"price": price})

        sender.schedule_messages([priced(50), priced(150)], at)
        assert completed(everything, 2) == [b"50", b"150"]
        assert completed(dear, 1) == [b"150"]
