"""Repeated ids, sent in every way that clients have: one delivery, and a record for each dropped duplicate."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import proton
import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSender
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties
from proton import ulong

from .served import PATIENCE, Served, async_received, body, completed, left, received
from .together import together

ACT = "rules"
SOON = timedelta(seconds=2)
LATER = timedelta(hours=1)


def typed(message_id: object, content: bytes = b"again") -> AmqpAnnotatedMessage:
    """Return an AMQP message whose id keeps its type."""
    properties = AmqpMessageProperties(message_id=message_id)  # type: ignore[arg-type]
    return AmqpAnnotatedMessage(data_body=content, properties=properties, header=AmqpMessageHeader(durable=True))


def id_of(message: ServiceBusReceivedMessage) -> object:
    """Return the id in its AMQP type. The client shows text as bytes."""
    assert message.raw_amqp_message.properties is not None
    found: object = message.raw_amqp_message.properties.message_id
    return found.decode() if isinstance(found, bytes) else found


def send_in_every_way(sender: ServiceBusSender, identity: uuid.UUID, **more: Any) -> int:
    """Send an id once with the body `first`, then with `again`: as text and uuid, single and in batches, and scheduled.

    Return the number of duplicates.
    """
    sender.send_messages(ServiceBusMessage(b"first", message_id=str(identity), **more))
    return send_again(sender, str(identity), **more) + send_again(sender, identity, **more)


def send_again(sender: ServiceBusSender, message_id: Any, **more: Any) -> int:
    def again(**scheduled: Any) -> ServiceBusMessage:
        return ServiceBusMessage(b"again", message_id=message_id, **scheduled, **more)

    sender.send_messages(again())
    sender.send_messages([again(), again()])
    batch = sender.create_message_batch()
    batch.add_message(again())
    sender.send_messages(batch)
    past = datetime.now(UTC) - timedelta(seconds=1)
    sender.schedule_messages([again(), again()], past)
    sender.schedule_messages(again(), past + timedelta(hours=1))
    sender.send_messages(again(scheduled_enqueue_time_utc=past))
    return 8


@together
def test_the_same_id_is_delivered_once_as_text_and_as_uuid_single_and_in_batches(served: Served) -> None:
    identity = uuid.uuid4()
    with served.pair("detecting") as (queue, sender, receiver):
        sent = send_in_every_way(sender, identity)
        sender.send_messages(ServiceBusMessage(b"last", message_id="last"))
        assert completed(receiver, 2) == [b"first", b"last"]
        assert served.http.drops(queue)[0]["original"]["sequenceNumber"] == 1
        assert served.dropped(queue, sent) == [str(identity)] * sent


@together
def test_a_uuid_id_is_received_as_a_uuid_and_its_text_is_a_duplicate(served: Served) -> None:
    identity = uuid.uuid4()
    with served.pair("detecting") as (queue, sender, receiver):
        sender.send_messages(typed(identity, b"first"))
        sender.send_messages(ServiceBusMessage(b"again", message_id=str(identity)))
        # Ids are compared exactly: upper case is another id.
        sender.send_messages(ServiceBusMessage(b"upper", message_id=str(identity).upper()))
        first, upper = received(receiver, 2)
        assert (body(first), id_of(first)) == (b"first", identity)
        assert (body(upper), id_of(upper)) == (b"upper", str(identity).upper())
        assert served.dropped(queue, 1) == [str(identity)]


@together
def test_ids_of_every_type_come_back_unchanged_through_a_neutral_client(served: Served) -> None:
    queue = served.queue("detecting")
    identity = uuid.uuid4()
    ids: list[object] = [identity, ulong(17), b"\x00\xff", "12345.2017/Payment", "ödeme", "a" * 128]
    with served.proton() as connection:
        sender = connection.create_sender(queue)
        for turn in range(2):
            for each in ids:
                sender.send(proton.Message(str(turn), id=each))
        sender.send(proton.Message("0", id="17"))
        sender.send(proton.Message("0", id="last"))
        receiver = connection.create_receiver(queue, credit=10)
        found: list[tuple[object, object]] = []
        while "last" not in [each for each, _ in found]:
            message = receiver.receive(PATIENCE)
            found.append((message.id if not isinstance(message.id, memoryview) else bytes(message.id), message.body))
            receiver.accept()
        assert found == [(each, "0") for each in [*ids, "last"]]
        # The client returns every whole number as int.
        assert [type(each) for each, _ in found] == [uuid.UUID, int, bytes, str, str, str, str]
        # The number and its decimal text are the same id.
        assert len(served.dropped(queue, len(ids) + 1)) == len(ids) + 1


@together
async def test_the_asyncio_client_repeats_ids_and_each_is_delivered_once(served: Served) -> None:
    queue = served.queue("detecting")
    async with (
        served.async_client() as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue, prefetch_count=20) as receiver,
    ):
        for _ in range(2):
            await sender.send_messages(
                [ServiceBusMessage(b"x", message_id=f"id-{number % 10}") for number in range(20)]
            )
        await sender.send_messages(ServiceBusMessage(b"x", message_id="last"))
        messages = await async_received(receiver, 11)
        assert [message.message_id for message in messages] == [*(f"id-{number}" for number in range(10)), "last"]
        assert len(served.dropped(queue, 30)) == 30


@together
def test_a_message_scheduled_first_wins_over_one_sent_later(served: Served) -> None:
    with served.pair("detecting") as (queue, sender, receiver):
        now = datetime.now(UTC)
        (cancelled,) = sender.schedule_messages(ServiceBusMessage(b"cancelled", message_id="b"), now + LATER)
        served.arrived(queue, 1, "scheduled")
        sender.cancel_scheduled_messages(cancelled)
        at = datetime.now(UTC) + SOON
        (number,) = sender.schedule_messages(ServiceBusMessage(b"scheduled", message_id="a"), at)
        sender.send_messages(ServiceBusMessage(b"direct", message_id="a"))
        # The id is remembered although its message was never delivered.
        sender.send_messages(ServiceBusMessage(b"again", message_id="b"))
        sender.schedule_messages(ServiceBusMessage(b"last", message_id="last"), at + SOON)
        assert completed(receiver, 2) == [b"scheduled", b"last"]
        assert served.dropped(queue, 2) == ["a", "b"]
        assert served.http.drops(queue)[0]["original"]["sequenceNumber"] == number


@together
def test_a_topic_is_checked_once_before_its_copies_are_made(served: Served) -> None:
    topic, identity = served.topic("detecting-topic"), uuid.uuid4()
    with served.client() as client, client.get_topic_sender(topic) as sender:
        sent = send_in_every_way(sender, identity)
        # An id is remembered even if only one subscription selects its message.
        for price in (50, 150):
            sender.send_messages(ServiceBusMessage(b"p", message_id="p", application_properties={"price": price}))
        sender.send_messages(ServiceBusMessage(b"last", message_id="last", application_properties={"price": 200}))
        with (
            client.get_subscription_receiver(topic, "all") as everything,
            client.get_subscription_receiver(topic, "dear") as dear,
        ):
            assert completed(everything, 3) == [b"first", b"p", b"last"]
            assert completed(dear, 1) == [b"last"]
        assert served.dropped(topic, sent + 1) == [str(identity)] * sent + ["p"]


@together
def test_on_a_queue_with_sessions_an_id_counts_across_all_of_them(served: Served) -> None:
    queue, identity = served.queue("detecting-sessions"), uuid.uuid4()
    with served.client() as client, client.get_queue_sender(queue) as sender:
        sent = send_in_every_way(sender, identity, session_id="a")
        sender.send_messages(ServiceBusMessage(b"other", message_id=str(identity), session_id="b"))
        sender.send_messages([ServiceBusMessage(b"last", message_id=f"last {name}", session_id=name) for name in "ab"])
        with client.get_queue_receiver(queue, session_id="a") as first:
            assert completed(first, 2) == [b"first", b"last"]
        with client.get_queue_receiver(queue, session_id="b") as second:
            assert completed(second, 1) == [b"last"]
        assert len(served.dropped(queue, sent + 1)) == sent + 1


def all_of(served: Served, queue: str, sent: int, drops: int) -> list[ServiceBusReceivedMessage]:
    """Wait for detection, then return all messages of a partitioned queue. Partitions have no common order."""
    served.dropped(queue, drops)
    accepted = sent - drops
    served.accepted(queue, accepted)
    with served.client() as client, client.get_queue_receiver(queue) as receiver:
        messages = received(receiver, accepted)
        for message in messages:
            receiver.complete_message(message)
        assert left(receiver) == []
    return messages


@together
def test_on_a_partitioned_queue_without_a_key_only_the_id_counts(served: Served) -> None:
    queue, identity = served.queue("detecting-partitioned"), uuid.uuid4()
    with served.client() as client, client.get_queue_sender(queue) as sender:
        sent = send_in_every_way(sender, identity)
        for number in range(20):
            sender.send_messages([ServiceBusMessage(f"{number}", message_id=f"id-{number}") for _ in range(2)])
    messages = all_of(served, queue, sent + 1 + 40, sent + 20)
    found = sorted(body(message) for message in messages)
    assert found == sorted([b"first", *(str(number).encode() for number in range(20))])
    assert len({(message.sequence_number or 0) >> 48 for message in messages}) > 1


@pytest.mark.parametrize("keyed", ["partition_key", "session_id"])
def test_on_a_partitioned_queue_the_key_counts_with_the_id(served: Served, keyed: str) -> None:
    queue = served.queue("detecting-partitioned")

    def options(key: str) -> dict[str, Any]:
        return {keyed: key}

    def message(key: str, content: str) -> ServiceBusMessage:
        return ServiceBusMessage(content, message_id="same", **options(key))

    with served.client() as client, client.get_queue_sender(queue) as sender:
        for turn in ("first", "again"):
            for key in ("a", "b", "c"):
                sender.send_messages(message(key, f"{turn} {key}"))
            sender.send_messages([message("d", f"{turn} d"), message("d", "again d")])
    messages = all_of(served, queue, 10, 6)
    assert sorted(body(each) for each in messages) == [b"first a", b"first b", b"first c", b"first d"]
    assert {getattr(each, keyed) for each in messages} == set("abcd")


def numbers(messages: Sequence[ServiceBusReceivedMessage]) -> list[int]:
    return [message.sequence_number or 0 for message in messages]


@together
def test_messages_without_an_id_are_never_duplicates(served: Served) -> None:
    with served.pair("detecting") as (queue, sender, receiver):
        for _ in range(3):
            sender.send_messages(ServiceBusMessage(b"x"))
        messages = received(receiver, 3)
        assert len({message.message_id for message in messages}) == 3
        assert served.http.drops(queue) == []
        assert numbers(messages) == [1, 2, 3]
