"""Messages of every form, sent and received by the official clients and by Qpid Proton."""

from __future__ import annotations

import asyncio
import threading
import uuid
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import proton
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpMessageBodyType
from azure.servicebus.exceptions import MessageSizeExceededError
from proton import symbol, timestamp, ulong

from .served import PATIENCE, Served, async_received, body, completed, received, texts
from .together import together

ACT = "messages"
LARGEST = 256 * 1024
OWN: dict[str | bytes, Any] = {"text": "ö", "whole": 5, "flag": True, "real": 0.5, "id": uuid.UUID(int=7)}


def text_of(value: object) -> object:
    """Return the text of a value: the client returns strings as bytes."""
    return value.decode() if isinstance(value, bytes) else value


@together
async def test_the_asyncio_client_sends_single_messages_lists_and_batches(served: Served) -> None:
    queue = served.queue()
    async with (
        served.async_client() as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as receiver,
    ):
        await sender.send_messages(ServiceBusMessage(b"0"))
        await sender.send_messages([ServiceBusMessage(b"1"), ServiceBusMessage(b"2")])
        batch = await sender.create_message_batch()
        for text in texts(range(3, 50)):
            batch.add_message(ServiceBusMessage(text))
        await sender.send_messages(batch)
        messages = await async_received(receiver, 50)
        assert [body(message) for message in messages] == texts(range(50))
        for message in messages:
            await receiver.complete_message(message)


@together
def test_everything_about_a_message_comes_back_as_it_was_sent(served: Served) -> None:
    sent = ServiceBusMessage(
        b"\x00body\xff",
        message_id="ödeme",
        session_id="s",
        partition_key="s",
        subject="subject",
        content_type="text/plain",
        correlation_id="correlation",
        to="to",
        reply_to="reply",
        reply_to_session_id="reply session",
        time_to_live=timedelta(hours=1),
        application_properties=dict(OWN),
    )
    with served.pair() as (_, sender, receiver):
        sender.send_messages(sent)
        (got,) = received(receiver, 1)
        receiver.complete_message(got)
    assert body(got) == b"\x00body\xff"
    names = ["message_id", "session_id", "partition_key", "subject", "content_type", "correlation_id", "to"]
    names += ["reply_to", "reply_to_session_id", "time_to_live"]
    assert {name: getattr(got, name) for name in names} == {name: getattr(sent, name) for name in names}
    assert {text_of(name): text_of(value) for name, value in (got.application_properties or {}).items()} == OWN
    assert (got.sequence_number, got.enqueued_sequence_number, got.delivery_count) == (1, None, 0)
    assert got.enqueued_time_utc is not None
    assert got.expires_at_utc == got.enqueued_time_utc + timedelta(hours=1)


@together
def test_a_message_up_to_the_limit_arrives_and_only_a_larger_one_is_refused(served: Served) -> None:
    content = bytes(range(256)) * (LARGEST // 256 - 1)
    with served.pair() as (_, sender, receiver):
        sender.send_messages(ServiceBusMessage(content))
        with pytest.raises(MessageSizeExceededError):
            sender.send_messages(ServiceBusMessage(bytes(LARGEST + 1)))
        sender.send_messages(ServiceBusMessage(b"small"))
        assert completed(receiver, 2) == [content, b"small"]


@together
async def test_a_batch_accepts_no_more_than_the_link_allows(served: Served) -> None:
    queue = served.queue()
    async with (
        served.async_client() as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue, prefetch_count=50) as receiver,
    ):
        batch, count = await sender.create_message_batch(), 0
        with suppress(MessageSizeExceededError):
            while True:
                batch.add_message(ServiceBusMessage(f"{count} ".encode() + bytes(5000)))
                count += 1
        assert LARGEST - 6000 < batch.size_in_bytes <= LARGEST
        await sender.send_messages(batch)
        messages = await async_received(receiver, count)
        assert [int(body(message).split()[0]) for message in messages] == list(range(count))


@together
def test_a_neutral_client_sends_and_the_official_one_receives(served: Served) -> None:
    with served.pair() as (queue, _, receiver), served.proton() as connection:
        sender = connection.create_sender(queue)
        properties: dict[str, object] = {"n": 1, "id": uuid.UUID(int=7), "at": timestamp(1_790_000_000_000)}
        sent = proton.Message(b"\x00bytes", id=ulong(7), subject="s", properties=properties, inferred=True)
        sent.annotations = {symbol("x-opt-partition-key"): "key", symbol("mine"): 1}
        sent.ttl = 100.0
        sender.send(sent)
        sender.send(proton.Message({"a": [1, 2]}, id=uuid.UUID(int=8)))
        first, second = received(receiver, 2)
        assert (body(first), first.subject, first.partition_key) == (b"\x00bytes", "s", "key")
        assert first.time_to_live == timedelta(seconds=100)
        assert first.raw_amqp_message.properties is not None
        assert first.raw_amqp_message.properties.message_id == 7
        found = {text_of(name): value for name, value in (first.application_properties or {}).items()}
        assert (found["n"], found["id"]) == (1, uuid.UUID(int=7))
        assert (second.body_type, second.body) == (AmqpMessageBodyType.VALUE, {b"a": [1, 2]})
        for message in (first, second):
            receiver.complete_message(message)


@together
def test_the_official_client_sends_and_a_neutral_one_receives(served: Served) -> None:
    with served.pair() as (queue, sender, other), served.proton() as connection:
        receiver = connection.create_receiver(queue, credit=2)
        before = datetime.now(UTC)
        sender.send_messages(ServiceBusMessage(b"\x00bytes", message_id="a", application_properties={"n": 1}))
        sender.send_messages(ServiceBusMessage(b"again", message_id="b"))
        message: Any = receiver.receive(PATIENCE)
        # Copy the body: the next message may overwrite its memory.
        content = bytes(message.body)
        assert (message.id, content, message.properties["n"], message.delivery_count) == ("a", b"\x00bytes", 1, 0)
        assert message.annotations[symbol("x-opt-sequence-number")] == 1
        enqueued = datetime.fromtimestamp(int(message.annotations[symbol("x-opt-enqueued-time")]) / 1000, UTC)
        assert enqueued >= before - timedelta(milliseconds=1)
        receiver.accept()
        receiver.receive(PATIENCE)
        receiver.release()
        connection.close()
        (again,) = received(other, 1)
        assert (again.message_id, body(again)) == ("b", b"again")


@together
def test_many_concurrent_clients_share_a_queue_and_none_gets_the_message_of_another(served: Served) -> None:
    queue, each = served.queue(), 40
    found: list[bytes] = []

    def send(name: str) -> None:
        with served.client() as client, client.get_queue_sender(queue) as sender:
            for number in range(each):
                sender.send_messages(ServiceBusMessage(f"{name}/{number:02}"))

    async def send_async(name: str) -> None:
        async with served.async_client() as client, client.get_queue_sender(queue) as sender:
            for number in range(each):
                await sender.send_messages(ServiceBusMessage(f"{name}/{number:02}"))

    def receive() -> None:
        with served.client() as client, client.get_queue_receiver(queue, prefetch_count=5) as receiver:
            while len(found) < 4 * each:
                for message in receiver.receive_messages(5, max_wait_time=2):
                    found.append(body(message))
                    receiver.complete_message(message)

    threads = [threading.Thread(target=send, args=(name,)) for name in ("a", "b")]
    threads += [threading.Thread(target=lambda name=name: asyncio.run(send_async(name))) for name in ("c", "d")]
    threads += [threading.Thread(target=receive) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(found) == [f"{name}/{number:02}".encode() for name in "abcd" for number in range(each)]
