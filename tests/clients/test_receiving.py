"""Receiving, peeking and settling in every way that the official clients have."""

from __future__ import annotations

import pytest
from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import MessageNotFoundError

from .served import PATIENCE, SHORT, Served, async_received, body, completed, is_empty, left, received, texts
from .together import together

ACT = "messages"
DEAD = ServiceBusSubQueue.DEAD_LETTER
DELETE = ServiceBusReceiveMode.RECEIVE_AND_DELETE


@together
async def test_the_asyncio_client_settles_in_every_way(served: Served) -> None:
    queue = served.queue()
    async with (
        served.async_client() as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as receiver,
        client.get_queue_receiver(queue, sub_queue=DEAD) as dead,
    ):
        await sender.send_messages([ServiceBusMessage(text) for text in texts(range(4))])
        complete, abandon, defer, reject = await async_received(receiver, 4)
        await receiver.complete_message(complete)
        await receiver.abandon_message(abandon)
        await receiver.defer_message(defer)
        await receiver.dead_letter_message(reject, reason="why", error_description="in words")
        (again,) = await async_received(receiver, 1)
        assert (body(again), again.delivery_count) == (b"1", 1)
        await receiver.complete_message(again)
        (deferred,) = await receiver.receive_deferred_messages(defer.sequence_number or 0)
        assert body(deferred) == b"2"
        await receiver.complete_message(deferred)
        (letter,) = await async_received(dead, 1)
        assert (body(letter), letter.dead_letter_reason) == (b"3", "why")
        assert letter.dead_letter_error_description == "in words"
        await dead.complete_message(letter)
        assert await receiver.peek_messages(5, sequence_number=1) == []
        assert await dead.peek_messages(5, sequence_number=1) == []


@together
def test_dead_letters_have_their_reasons_and_can_be_sent_again(served: Served) -> None:
    with served.pair() as (queue, sender, receiver), served.client() as client:
        with client.get_queue_receiver(queue, sub_queue=DEAD) as dead:
            sent = ServiceBusMessage(b"a", message_id="a", application_properties={"n": 1})
            sender.send_messages([sent, ServiceBusMessage(b"b")])
            first, second = received(receiver, 2)
            receiver.dead_letter_message(first, reason="why", error_description="in words")
            receiver.dead_letter_message(second)
            letters = received(dead, 2)
            found = [(body(x), x.dead_letter_reason, x.dead_letter_error_description) for x in letters]
            assert found == [(b"a", "why", "in words"), (b"b", None, None)]
            assert (letters[0].application_properties or {})[b"n"] == 1
            # The client converts the received message to one that it can send.
            sender.send_messages(letters[0])
            dead.complete_message(letters[0])
            dead.abandon_message(letters[1])
            (again,) = received(dead, 1)
            # Attempts do not count in a dead-letter queue.
            assert (again.delivery_count or 0) == (letters[1].delivery_count or 0)
            dead.complete_message(again)
            assert is_empty(dead)
        (back,) = received(receiver, 1)
        assert (body(back), back.message_id, back.delivery_count) == (b"a", "a", 0)


@together
def test_a_message_delivered_too_often_is_dead_lettered(served: Served) -> None:
    with (
        served.pair("twice") as (queue, sender, receiver),
        served.client() as client,
        client.get_queue_receiver(queue, sub_queue=DEAD) as dead,
    ):
        sender.send_messages(ServiceBusMessage(b"poison", message_id="p"))
        for count in range(2):
            (message,) = received(receiver, 1)
            assert message.delivery_count == count
            receiver.abandon_message(message)
        (letter,) = received(dead, 1)
        assert (letter.message_id, letter.dead_letter_reason) == ("p", "MaxDeliveryCountExceeded")
        dead.complete_message(letter)


@together
def test_deferred_messages_are_received_only_by_their_numbers(served: Served) -> None:
    with served.pair() as (queue, sender, receiver), served.client() as client:
        sender.send_messages([ServiceBusMessage(text) for text in texts(range(3))])
        messages = received(receiver, 3)
        numbers = [message.sequence_number or 0 for message in messages]
        for message in messages:
            receiver.defer_message(message)
        assert is_empty(receiver)
        assert [peeked.state for peeked in receiver.peek_messages(5, sequence_number=1)] == [
            ServiceBusMessageState.DEFERRED
        ] * 3
        first, second = receiver.receive_deferred_messages(numbers[:2])
        assert (body(first), body(second), first.delivery_count) == (b"0", b"1", 1)
        receiver.renew_message_lock(first)
        receiver.complete_message(first)
        receiver.abandon_message(second)
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages(numbers[:1])
        (again,) = receiver.receive_deferred_messages(numbers[1])
        receiver.dead_letter_message(again, reason="by token")
        with client.get_queue_receiver(queue, receive_mode=DELETE) as deleting:
            (last,) = deleting.receive_deferred_messages(numbers[2])
            assert body(last) == b"2"
        with client.get_queue_receiver(queue, sub_queue=DEAD) as dead:
            (letter,) = received(dead, 1)
            assert (body(letter), letter.dead_letter_reason) == (b"1", "by token")
        assert left(receiver) == []


@together
def test_messages_are_peeked_from_the_last_position_or_from_a_number(served: Served) -> None:
    with served.pair() as (queue, sender, receiver):
        sender.send_messages([ServiceBusMessage(text) for text in texts(range(120))])
        served.arrived(queue, 120)
        seen = [body(message) for _ in range(2) for message in receiver.peek_messages(60)]
        assert seen == texts(range(120))
        assert receiver.peek_messages(60) == []
        (one,) = receiver.peek_messages(1, sequence_number=17)
        assert (one.sequence_number, one.lock_token) == (17, None)
        with pytest.raises(ValueError, match=r"settle|peek"):
            receiver.complete_message(one)


@together
async def test_a_message_received_and_deleted_by_the_asyncio_client_is_removed_at_once(served: Served) -> None:
    queue = served.queue()
    async with (
        served.async_client() as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue, receive_mode=DELETE, prefetch_count=7) as receiver,
    ):
        await sender.send_messages([ServiceBusMessage(text) for text in texts(range(30))])
        messages = await async_received(receiver, 30)
        assert [body(message) for message in messages] == texts(range(30))
        with pytest.raises(ValueError, match=r"receive-and-delete|RECEIVE_AND_DELETE|receive_and_delete"):
            await receiver.complete_message(messages[0])
        assert await receiver.peek_messages(5, sequence_number=1) == []


@together
def test_prefetched_messages_come_in_order_and_are_released_when_the_receiver_closes(served: Served) -> None:
    queue = served.queue()
    with served.client() as client, client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(text) for text in texts(range(20))])
        with client.get_queue_receiver(queue, prefetch_count=10) as receiver:
            assert completed(receiver, 5) == texts(range(5))
        with client.get_queue_receiver(queue) as after:
            rest = received(after, 15)
        assert [(body(message), message.delivery_count) for message in rest] == [
            (text, 0) for text in texts(range(5, 20))
        ]


@together
def test_a_receiver_of_an_empty_queue_times_out_and_later_gets_new_messages(served: Served) -> None:
    with served.pair(max_wait_time=SHORT) as (_, sender, receiver):
        assert receiver.receive_messages(5) == []
        assert receiver.receive_messages(5, max_wait_time=SHORT) == []
        assert list(receiver) == []
        sender.send_messages(ServiceBusMessage(b"a"))
        (message,) = receiver.receive_messages(5, max_wait_time=PATIENCE)
        receiver.complete_message(message)


@together
async def test_an_asyncio_receiver_of_an_empty_queue_times_out_and_later_gets_new_messages(served: Served) -> None:
    queue = served.queue()
    async with (
        served.async_client() as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue, max_wait_time=SHORT) as receiver,
    ):
        assert await receiver.receive_messages(5) == []
        assert await receiver.receive_messages(5, max_wait_time=SHORT) == []
        assert [message async for message in receiver] == []
        await sender.send_messages(ServiceBusMessage(b"a"))
        (message,) = await receiver.receive_messages(5, max_wait_time=PATIENCE)
        assert body(message) == b"a"
        await receiver.complete_message(message)


@together
async def test_an_asyncio_receiver_is_an_iterator_that_ends_when_nothing_comes(served: Served) -> None:
    queue = served.queue()
    async with served.async_client() as client, client.get_queue_sender(queue) as sender:
        await sender.send_messages([ServiceBusMessage(text) for text in texts(range(10))])
        found = []
        served.arrived(queue, 10)
        async with client.get_queue_receiver(queue, max_wait_time=6, prefetch_count=4) as receiver:
            async for message in receiver:
                found.append(body(message))
                await receiver.complete_message(message)
        assert found == texts(range(10))
