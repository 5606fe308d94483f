"""azure-servicebus sends header fields, annotations and a footer, and gets them back wherever the message goes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader
from azure.servicebus.exceptions import ServiceBusError

from oncebus.model.entities import Rule, SqlAction, TrueFilter

from .bus import PATIENCE, Bus

OWN: dict[str, Any] = {"text": "ö", "number": 5, "nothing": None}
DEAD = ServiceBusSubQueue.DEAD_LETTER
DELETE = ServiceBusReceiveMode.RECEIVE_AND_DELETE


def annotated(data: bytes = b"body") -> AmqpAnnotatedMessage:
    # The client writes delivery annotations behind the body.
    return AmqpAnnotatedMessage(
        data_body=data,
        header=AmqpMessageHeader(durable=True, priority=7, first_acquirer=False),
        annotations=dict(OWN),
        delivery_annotations=dict(OWN),
        footer=dict(OWN),
    )


def check(message: ServiceBusReceivedMessage, count: int = 0) -> ServiceBusReceivedMessage:
    raw = message.raw_amqp_message
    assert raw.header is not None
    header = raw.header
    assert (header.durable, header.priority, header.first_acquirer) == (True, 7, False)
    assert header.delivery_count == count
    for found in (raw.annotations, raw.delivery_annotations, raw.footer):
        assert found is not None
        assert found.items() >= {b"text": "ö".encode(), b"number": 5, b"nothing": None}.items()
    assert b"".join(message.body) == b"body"
    return message


def taken(receiver: Any) -> ServiceBusReceivedMessage:
    (message,) = receiver.receive_messages(1, max_wait_time=PATIENCE)
    assert isinstance(message, ServiceBusReceivedMessage)
    return message


def test_they_survive_receiving_peeking_deferring_abandoning_and_dead_lettering(bus: Bus) -> None:
    queue, sender, receiver = bus.pair()
    sender.send_messages(annotated())
    (peeked,) = receiver.peek_messages(1)
    check(peeked)
    assert b"x-opt-lock-token" not in (peeked.raw_amqp_message.delivery_annotations or {})
    message = check(taken(receiver))
    assert (message.raw_amqp_message.delivery_annotations or {})[b"x-opt-lock-token"] == message.lock_token
    receiver.abandon_message(message)
    message = check(taken(receiver), count=1)
    receiver.defer_message(message)
    assert message.sequence_number is not None
    (deferred,) = receiver.receive_deferred_messages(message.sequence_number)
    assert check(deferred, count=2).state.name == "DEFERRED"
    receiver.dead_letter_message(deferred, reason="why")
    dead = bus.receiver(queue, sub_queue=DEAD)
    # The attempt that ended with the dead letter does not count, nor do attempts there.
    for _ in range(2):
        letter = check(taken(dead), count=2)
        assert letter.dead_letter_reason == "why"
        dead.abandon_message(letter)


def test_they_survive_schedules_batches_topics_and_actions(bus: Bus) -> None:
    topic = bus.topic()
    bus.subscription(topic, "plain")
    bus.subscription(topic, "changed")
    changing = Rule("change", TrueFilter(), SqlAction("SET n = 1; SET sys.To = 'there'"))
    bus.run(bus.broker.change(lambda catalogue, now: catalogue.create_rule(topic, "changed", changing, now)))
    bus.run(bus.broker.change(lambda catalogue, _: catalogue.delete_rule(topic, "changed", "$Default")))
    sender, plain, changed = bus.together(
        lambda: bus.sender(topic), lambda: bus.receiver(f"{topic}/plain"), lambda: bus.receiver(f"{topic}/changed")
    )
    batch = sender.create_message_batch()
    batch.add_message(annotated())
    batch.add_message(annotated())
    sender.send_messages(batch)
    for number in (1, 2):
        message = check(taken(plain))
        assert (message.enqueued_sequence_number, message.sequence_number) == (number, number)
        message = check(taken(changed))
        assert (message.to, message.application_properties) == ("there", {b"n": 1, b"RuleName": b"change"})


def test_an_ordinary_message_has_no_more_than_the_service_writes(bus: Bus) -> None:
    _, sender, receiver = bus.pair()
    sender.send_messages(ServiceBusMessage(b"x"))
    message = taken(receiver)
    raw = message.raw_amqp_message
    assert raw.header is not None
    assert (raw.header.durable, raw.header.priority, raw.header.first_acquirer) == (None, None, None)
    assert set(raw.annotations or {}) == {b"x-opt-enqueued-time", b"x-opt-sequence-number", b"x-opt-locked-until"}
    assert raw.delivery_annotations == {b"x-opt-lock-token": message.lock_token}
    assert raw.footer is None
    assert (message.enqueued_sequence_number, message.state.name) == (None, "ACTIVE")


def test_a_message_that_is_received_and_deleted_has_no_lock(bus: Bus) -> None:
    queue, sender, _ = bus.pair()
    sender.send_messages([ServiceBusMessage(b"a"), ServiceBusMessage(b"b")])
    receiver = bus.receiver(queue, receive_mode=DELETE)
    for _ in range(2):
        message = taken(receiver)
        assert not message.raw_amqp_message.delivery_annotations
        assert set(message.raw_amqp_message.annotations or {}) == {b"x-opt-enqueued-time", b"x-opt-sequence-number"}
        assert message.lock_token is None


def test_a_message_of_a_schedule_is_scheduled_and_one_of_the_past_is_active(bus: Bus) -> None:
    topic = bus.topic("s")
    _, sender, receiver = bus.pair()
    to_topic, of_topic = bus.together(lambda: bus.sender(topic), lambda: bus.receiver(f"{topic}/s"))
    for send, receive in ((sender, receiver), (to_topic, of_topic)):
        soon = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
        send.schedule_messages(ServiceBusMessage(b"later"), soon)
        past = datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)
        send.send_messages(ServiceBusMessage(b"at once", scheduled_enqueue_time_utc=past))
        first = taken(receive)
        assert (b"".join(first.body), first.state.name) == (b"at once", "ACTIVE")
        assert first.scheduled_enqueue_time_utc == past
        second = taken(receive)
        assert (b"".join(second.body), second.state.name) == (b"later", "SCHEDULED")
        assert second.scheduled_enqueue_time_utc == soon
        assert second.enqueued_time_utc is not None
        assert second.enqueued_time_utc >= soon


def test_a_decimal_comes_back(bus: Bus) -> None:
    _, sender, receiver = bus.pair()
    own: dict[str | bytes, Any] = {"price": Decimal("19.95")}
    sender.send_messages(ServiceBusMessage(b"x", application_properties=own))
    assert (taken(receiver).application_properties or {})[b"price"] == own["price"]


def test_an_empty_session_is_a_session(bus: Bus) -> None:
    queue = bus.queue(requires_session=True)
    sender = bus.sender(queue)
    sender.send_messages([ServiceBusMessage(b"a", session_id=""), ServiceBusMessage(b"b", session_id="")])
    receiver = bus.receiver(queue, session_id=NEXT_AVAILABLE_SESSION, receive_mode=DELETE)
    assert receiver.session.session_id == ""
    assert [taken(receiver).session_id for _ in range(2)] == ["", ""]


def test_a_dead_letter_cannot_be_dead_lettered_again(bus: Bus) -> None:
    queue, sender, receiver = bus.pair()
    sender.send_messages(ServiceBusMessage(b"x"))
    receiver.dead_letter_message(taken(receiver), reason="first")
    dead = bus.receiver(queue, sub_queue=DEAD)
    letter = taken(dead)
    with pytest.raises(ServiceBusError, match="cannot be dead-lettered again"):
        dead.dead_letter_message(letter, reason="second")
    (peeked,) = dead.peek_messages(1, sequence_number=1)
    assert peeked.dead_letter_reason == "first"
