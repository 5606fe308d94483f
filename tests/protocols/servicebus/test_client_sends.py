"""azure-servicebus sends: single messages, batches, too large messages and duplicates."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType, AmqpMessageProperties
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

from oncebus import amqp
from oncebus.protocols.http.sending import message as http_message

from .bus import PATIENCE, Bus


def bodies(bus: Bus, queue: str, count: int) -> list[object]:
    """Receive and delete `count` messages, and return their bodies."""
    return [amqp.decode_body(body) for _, body in bus.take(queue, count)]


def text_of(value: object) -> object:
    """Return the text of a value: the client returns strings as bytes."""
    return value.decode() if isinstance(value, bytes) else value


def test_single_messages_lists_and_batches_arrive_in_the_order_they_were_sent(bus: Bus) -> None:
    queue, sender, _ = bus.pair()
    sender.send_messages(ServiceBusMessage(b"0"))
    sender.send_messages([ServiceBusMessage(b"1"), ServiceBusMessage(b"2")])
    batch = sender.create_message_batch()
    assert batch.max_size_in_bytes == 256 * 1024
    for number in range(3, 50):
        batch.add_message(ServiceBusMessage(str(number).encode()))
    sender.send_messages(batch)
    sender.send_messages(ServiceBusMessage(b"50"))
    assert bodies(bus, queue, 51) == [str(number).encode() for number in range(51)]


def test_everything_about_a_message_comes_back_as_it_was_sent(bus: Bus) -> None:
    _, sender, receiver = bus.pair()
    own: dict[str | bytes, Any] = {"text": "ö", "whole": 5, "flag": True, "real": 0.5, "id": uuid.UUID(int=7)}
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
        application_properties=dict(own),
    )
    sender.send_messages(sent)
    (got,) = receiver.receive_messages(max_wait_time=PATIENCE)
    receiver.complete_message(got)
    assert b"".join(got.body) == b"\x00body\xff"
    for name in [
        "message_id",
        "session_id",
        "partition_key",
        "subject",
        "content_type",
        "correlation_id",
        "to",
        "reply_to",
        "reply_to_session_id",
        "time_to_live",
    ]:
        assert getattr(got, name) == getattr(sent, name), name
    found = {text_of(name): text_of(value) for name, value in (got.application_properties or {}).items()}
    assert found == own
    assert (got.sequence_number, got.enqueued_sequence_number, got.delivery_count) == (1, None, 0)
    assert abs(datetime.now(UTC) - got.enqueued_time_utc) < timedelta(minutes=1)  # type: ignore[operator]


def test_bodies_that_are_values_and_sequences_come_back_as_such(bus: Bus) -> None:
    _, sender, receiver = bus.pair()
    sender.send_messages(AmqpAnnotatedMessage(value_body={"a": [1, None, 2.5]}))
    sender.send_messages(AmqpAnnotatedMessage(sequence_body=[[1, "x"]]))
    sender.send_messages(AmqpAnnotatedMessage(data_body=[b"one", b"two"]))
    value, sequence, data = (receiver.receive_messages(max_wait_time=PATIENCE)[0] for _ in range(3))
    assert value.body_type is AmqpMessageBodyType.VALUE
    assert value.body == {b"a": [1, None, 2.5]}
    assert sequence.body_type is AmqpMessageBodyType.SEQUENCE
    assert list(sequence.body) == [[1, b"x"]]
    assert (data.body_type, list(data.body)) == (AmqpMessageBodyType.DATA, [b"one", b"two"])


def test_a_message_of_many_frames_arrives_complete_and_only_a_too_large_one_is_refused(bus: Bus) -> None:
    queue, sender, _ = bus.pair()
    content = bytes(range(256)) * 900
    sender.send_messages(ServiceBusMessage(content))
    with pytest.raises(MessageSizeExceededError):
        sender.send_messages(ServiceBusMessage(bytes(256 * 1024 + 1)))
    sender.send_messages(ServiceBusMessage(b"small"))
    assert bodies(bus, queue, 2) == [content, b"small"]


def test_a_refusal_has_the_text_of_the_entity(bus: Bus) -> None:
    queue = bus.queue(requires_session=True)
    sender = bus.sender(queue)
    with pytest.raises(ServiceBusError, match="SessionId was not set") as refused:
        sender.send_messages(ServiceBusMessage(b"without a session"))
    assert "amqp:not-allowed" in str(refused.value)
    with pytest.raises(ServiceBusError, match="PartitionKey:b cannot be set"):
        sender.send_messages(
            AmqpAnnotatedMessage(
                data_body=b"x",
                properties=AmqpMessageProperties(group_id="a"),
                annotations={"x-opt-partition-key": "b"},
            )
        )
    sender.send_messages(ServiceBusMessage(b"with one", session_id="s"))


def test_the_same_id_is_delivered_once_however_it_is_sent(bus: Bus) -> None:
    queue = bus.queue(requires_duplicate_detection=True)
    identity = uuid.uuid4()

    def again(message_id: object = str(identity)) -> AmqpAnnotatedMessage:
        # The client's own message class accepts only text as an id.
        return AmqpAnnotatedMessage(data_body=b"again", properties=AmqpMessageProperties(message_id=message_id))  # type: ignore[arg-type]

    sender = bus.sender(queue)
    sender.send_messages(ServiceBusMessage(b"first", message_id=str(identity)))
    sender.send_messages(again())
    sender.send_messages(again(identity))
    sender.send_messages([again(), again(identity)])
    past = datetime.now(UTC) - timedelta(seconds=1)
    sender.schedule_messages([ServiceBusMessage(b"again", message_id=str(identity)) for _ in range(2)], past)
    sender.send_messages(ServiceBusMessage(b"again", message_id=str(identity), scheduled_enqueue_time_utc=past))
    sender.send_messages(ServiceBusMessage(b"other", message_id="other"))
    assert bodies(bus, queue, 2) == [b"first", b"other"]
    drops = bus.run(bus.broker.duplicates(queue))
    assert [drop.message_id for drop in drops] == [str(identity)] * 7
    assert {drop.original_sequence for drop in drops} == {1}


def test_the_same_body_is_delivered_once_where_bodies_count(bus: Bus) -> None:
    queue = bus.queue(requires_duplicate_detection=True, detection_key="body")
    sender = bus.sender(queue)
    sender.send_messages(ServiceBusMessage(b"one", message_id="1"))
    sender.send_messages(ServiceBusMessage("one", message_id="2", application_properties={"a": 1}))
    sender.send_messages(AmqpAnnotatedMessage(data_body=[b"o", b"ne"]))
    sender.send_messages([ServiceBusMessage(b"two", message_id="1"), ServiceBusMessage(b"two")])
    # Over HTTP, the same bytes are the same id.
    _, body = amqp.encode_message(None, None, b"two")
    bus.run(bus.broker.send(queue, [http_message([], None, b"two")]))
    assert http_message([], None, b"two").body == body
    sender.send_messages(AmqpAnnotatedMessage(value_body="two"))
    assert len(bus.take(queue, 3)) == 3
    drops = bus.run(bus.broker.duplicates(queue))
    assert [drop.original_sequence for drop in drops] == [1, 1, 4, 4]
    assert {drop.counted_by for drop in drops} == {"body"}


def test_the_same_property_is_delivered_once_where_it_counts(bus: Bus) -> None:
    queue = bus.queue(requires_duplicate_detection=True, detection_key="property:order")
    sender = bus.sender(queue)
    for order in (42, "42", 43, None):
        properties: dict[str | bytes, Any] = {} if order is None else {"order": order}
        sender.send_messages([ServiceBusMessage(b"x", application_properties=properties) for _ in range(2)])
    # 42 and 43 once each, and both messages without the property.
    assert len(bus.take(queue, 4)) == 4
    drops = bus.run(bus.broker.duplicates(queue))
    assert [drop.counted_id for drop in drops] == ["42", "42", "42", "43"]


def test_ids_sent_before_detection_was_switched_on_are_not_remembered(bus: Bus) -> None:
    queue = bus.queue()
    sender = bus.sender(queue)
    sender.send_messages(ServiceBusMessage(b"before", message_id="1"))
    bus.run(bus.broker.change(lambda catalogue, now: catalogue.switch_on_detection(queue, None, now)))
    for body in (b"after", b"again"):
        sender.send_messages(ServiceBusMessage(body, message_id="1"))
    assert bodies(bus, queue, 2) == [b"before", b"after"]
    assert len(bus.run(bus.broker.duplicates(queue))) == 1


def test_the_asyncio_client_sends_and_receives_at_once_on_many_links(bus: Bus) -> None:
    queue = bus.queue()

    async def play() -> list[bytes]:
        async with bus.async_client() as client:
            receiver = client.get_queue_receiver(queue, prefetch_count=10)
            senders = [client.get_queue_sender(queue) for _ in range(4)]

            async def send(number: int) -> None:
                for turn in range(5):
                    await senders[number].send_messages(ServiceBusMessage(f"{number}/{turn}".encode()))

            sending = asyncio.gather(*(send(number) for number in range(4)))
            found: list[bytes] = []
            while len(found) < 20:
                # One by one: for more, the client returns prefetched messages only after the wait.
                for message in await receiver.receive_messages(1, max_wait_time=PATIENCE):
                    found.append(b"".join(message.body))
                    await receiver.complete_message(message)
            await sending
            await asyncio.gather(receiver.close(), *(sender.close() for sender in senders))
            return found

    found = asyncio.run(play())
    assert sorted(found) == sorted(f"{number}/{turn}".encode() for number in range(4) for turn in range(5))
    for number in range(4):
        of_one = [each for each in found if each.startswith(f"{number}/".encode())]
        assert of_one == sorted(of_one)
    assert bus.run(bus.broker.counts(queue)).active == 0
