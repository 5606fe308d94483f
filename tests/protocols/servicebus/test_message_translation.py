"""Translation of messages without a socket: azure-servicebus encodes the incoming and decodes the outgoing ones."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties

from oncebus import amqp
from oncebus.amqp.decoding import decode
from oncebus.amqp.encoding import encode
from oncebus.amqp.head import Properties
from oncebus.amqp.message import BATCH_FORMAT
from oncebus.amqp.sections import sections
from oncebus.amqp.types import DecodeError, Symbol, Timestamp, ULong
from oncebus.broker.broker import Received
from oncebus.broker.sending import Incoming
from oncebus.engine.store import Message, SubQueue
from oncebus.engine.store.values import Stage
from oncebus.model.entities import NO_LIMIT, BadRequest
from oncebus.protocols.servicebus.messages import incoming, incoming_message, outgoing, tag_of
from oncebus.values.durations import DAY, SECOND

from .bus import encoded

NOW = 1_790_000_000_000_000


def held(incoming: Incoming, **changes: Any) -> Message:
    message = Message(
        id=1,
        entity=7,
        sub_queue=SubQueue.MAIN,
        stage=Stage.LOCKED,
        session_key="",
        sequence=42,
        enqueued=NOW,
        expires=None,
        scheduled=None,
        deliveries=1,
        hops=0,
        size=incoming.size,
        locked_until=NOW + 60 * SECOND,
        token=bytes(range(16)),
        body_file=None,
        content=1,
        enqueued_sequence=41,
        reason=None,
        description=None,
        source=None,
        origin=None,
        message_id=str(incoming.message_id),
        session=incoming.session,
        partition_key=incoming.partition_key,
        head=incoming.head,
        body=incoming.body,
    )
    return message._replace(**changes)


def seen(message: Message, source: str | None = None, **options: Any) -> ServiceBusReceivedMessage:
    """Return a message as the client decodes it."""
    payload = outgoing(Received(message, message.body or b""), source, **options)
    return ServiceBusReceivedMessage.from_bytes(payload)


def test_a_message_of_the_official_client_is_read() -> None:
    sent = ServiceBusMessage(
        b"body",
        message_id="12345.2017/Payment",
        session_id="s",
        partition_key="s",
        time_to_live=timedelta(seconds=90),
        scheduled_enqueue_time_utc=datetime(2027, 1, 2, 3, 4, 5, tzinfo=UTC),
        subject="label",
        application_properties={"colour": "red"},
    )
    message = incoming_message(encoded(sent))
    assert message.message_id == "12345.2017/Payment"
    assert (message.session, message.partition_key) == ("s", "s")
    assert message.ttl == 90 * SECOND
    assert message.scheduled == int(datetime(2027, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()) * SECOND
    assert amqp.properties(message.head).subject == "label"
    assert amqp.application_properties(message.head) == {"colour": "red"}
    assert amqp.decode_body(message.body) == b"body"


@pytest.mark.parametrize(
    ("identity", "text"),
    [
        ("a", "a"),
        (uuid.UUID(int=5), str(uuid.UUID(int=5))),
        (ULong(17), "17"),
        (b"\x00\xff", b"\x00\xff"),
        (None, None),
    ],
)
def test_ids_of_every_type_are_compared_by_their_text(identity: amqp.Id | None, text: str | bytes | None) -> None:
    head, body = amqp.encode_message(Properties(message_id=identity), None, b"x")
    assert incoming_message(head + body).message_id == text


def test_a_batch_is_recognized_by_its_format() -> None:
    inner = [encoded(ServiceBusMessage(b"x", message_id=str(number))) for number in range(3)]
    batch = b"".join(amqp.encode_body(each) for each in inner)
    assert [each.message_id for each in incoming(batch, BATCH_FORMAT)] == ["0", "1", "2"]
    (single,) = incoming(batch)
    assert single.message_id is None
    with pytest.raises(BadRequest, match="The batch of messages is empty"):
        incoming(b"", BATCH_FORMAT)


def test_a_time_to_live_too_long_for_the_header_is_read_from_the_properties() -> None:
    header = amqp.deliverable(b"", b"", amqp.Header(ttl=400 * DAY), {})[0]
    created = Timestamp(NOW // 1000)
    properties = Properties(creation_time=created, absolute_expiry_time=Timestamp(created + 100 * DAY // 1000))
    head, body = amqp.encode_message(properties, None, b"x")
    assert incoming_message(header + head + body).ttl == 100 * DAY
    assert incoming_message(header + body).ttl == (2**32 - 1) * 1000


@pytest.mark.parametrize(
    "annotations",
    [{"x-opt-partition-key": 5}, {"x-opt-partition-key": b"\xff"}, {"x-opt-scheduled-enqueue-time": "tomorrow"}],
)
def test_annotations_of_a_wrong_type_are_refused_by_name_and_value(annotations: dict[str, object]) -> None:
    payload = b"".join(amqp.deliverable(b"", amqp.encode_body(b"x"), amqp.Header(), annotations))
    (name,) = annotations
    with pytest.raises(BadRequest, match=name):
        incoming_message(payload)


def test_bytes_that_are_not_a_message_are_refused() -> None:
    with pytest.raises(DecodeError):
        incoming(b"\x00\x53\x75\xa0\x09short")
    with pytest.raises(DecodeError):
        incoming(amqp.encode_body(b"not a message"), BATCH_FORMAT)


def test_a_received_message_has_its_sequence_number_and_its_lock() -> None:
    sent = incoming_message(encoded(ServiceBusMessage(b"body", message_id="a", application_properties={"n": 1})))
    message = seen(held(sent, partition_key="key", expires=NOW + 30 * SECOND), is_copy=True)
    assert message.message_id == "a"
    assert b"".join(message.body) == b"body"
    assert message.application_properties == {b"n": 1}
    assert message.sequence_number == 42
    assert message.enqueued_sequence_number == 41
    assert message.enqueued_time_utc == datetime.fromtimestamp(NOW / SECOND, UTC)
    assert message.delivery_count == 0
    assert message.partition_key == "key"
    assert message.time_to_live == timedelta(seconds=30)
    assert message.state.name == "ACTIVE"
    raw = message.raw_amqp_message
    assert raw.annotations is not None
    assert raw.annotations[b"x-opt-locked-until"] == (NOW + 60 * SECOND) // 1000
    assert raw.delivery_annotations == {b"x-opt-lock-token": uuid.UUID(bytes=bytes(range(16)))}


def test_an_ordinary_message_of_a_queue_has_only_these_annotations() -> None:
    raw = seen(held(incoming_message(encoded(ServiceBusMessage(b"body"))))).raw_amqp_message
    assert raw.annotations is not None
    assert set(raw.annotations) == {b"x-opt-sequence-number", b"x-opt-enqueued-time", b"x-opt-locked-until"}
    assert raw.header is not None
    assert (raw.header.durable, raw.header.priority, raw.header.time_to_live) == (None, None, None)
    assert raw.header.delivery_count == 0


def test_a_message_that_was_received_and_deleted_has_no_delivery_annotations() -> None:
    sent = incoming_message(encoded(ServiceBusMessage(b"body")))
    raw = seen(held(sent, token=None, locked_until=None)).raw_amqp_message
    assert not raw.delivery_annotations
    assert raw.annotations is not None
    assert set(raw.annotations) == {b"x-opt-sequence-number", b"x-opt-enqueued-time"}


OWN: dict[str, Any] = {"text": "a", "number": 5, "nothing": None, "x-opt-via-partition-key": "via"}


def annotated() -> AmqpAnnotatedMessage:
    return AmqpAnnotatedMessage(
        data_body=b"body",
        header=AmqpMessageHeader(durable=True, priority=7, first_acquirer=True, delivery_count=5),
        annotations=dict(OWN),
        delivery_annotations={"delivery": "b", "nothing": None},
        footer={"footer": "c", "nothing": None},
        properties=AmqpMessageProperties(message_id="a"),
    )


def test_what_a_sender_writes_in_header_annotations_and_footer_comes_back() -> None:
    # This client writes delivery annotations behind the body.
    sent = incoming_message(encoded(annotated()))
    assert sent.message_id == "a"
    raw = seen(held(sent)).raw_amqp_message
    assert raw.header is not None
    assert (raw.header.durable, raw.header.priority, raw.header.first_acquirer) == (True, 7, True)
    assert raw.header.delivery_count == 0
    assert raw.annotations is not None
    assert raw.annotations.items() >= {b"text": b"a", b"number": 5, b"nothing": None}.items()
    assert raw.annotations[b"x-opt-sequence-number"] == 42
    assert raw.delivery_annotations is not None
    assert raw.delivery_annotations.items() >= {b"delivery": b"b", b"nothing": None}.items()
    assert raw.footer == {b"footer": b"c", b"nothing": None}
    assert b"".join(raw.body) == b"body"


def test_what_a_sender_writes_survives_new_properties_and_the_reason_of_a_dead_letter() -> None:
    sent = incoming_message(encoded(annotated()))
    head = amqp.with_application_properties(sent.head, {"new": 1})
    message = seen(held(sent, head=head, reason="why", sub_queue=SubQueue.DEAD_LETTER))
    assert message.application_properties == {b"new": 1, b"DeadLetterReason": b"why"}
    raw = message.raw_amqp_message
    assert raw.header is not None
    assert raw.header.priority == 7
    assert raw.annotations is not None
    assert raw.annotations[b"text"] == b"a"
    assert raw.delivery_annotations is not None
    assert raw.delivery_annotations[b"delivery"] == b"b"


def test_annotations_of_the_broker_are_not_taken_from_a_sender() -> None:
    first = held(incoming_message(encoded(ServiceBusMessage(b"x"))), scheduled=None)
    resent = incoming_message(outgoing(Received(first, first.body or b""), "orders", is_copy=True))
    assert resent.head == first.head
    raw = seen(held(resent, sequence=50, token=None, locked_until=None)).raw_amqp_message
    assert raw.annotations is not None
    assert set(raw.annotations) == {b"x-opt-sequence-number", b"x-opt-enqueued-time"}
    assert raw.annotations[b"x-opt-sequence-number"] == 50


def test_a_scheduled_time_in_the_past_stays_and_the_message_is_active() -> None:
    past = datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)
    sent = incoming_message(encoded(ServiceBusMessage(b"x", scheduled_enqueue_time_utc=past)))
    message = seen(held(sent))
    assert message.scheduled_enqueue_time_utc == past
    assert message.state.name == "ACTIVE"


def test_a_message_that_waited_for_its_time_is_received_as_scheduled() -> None:
    sent = incoming_message(encoded(ServiceBusMessage(b"x")))
    assert seen(held(sent, scheduled=NOW)).state.name == "SCHEDULED"


def test_a_partition_key_may_be_a_binary() -> None:
    payload = b"".join(amqp.deliverable(b"", amqp.encode_body(b"x"), amqp.Header(), {"x-opt-partition-key": b"key"}))
    sent = incoming_message(payload)
    assert sent.partition_key == "key"
    assert seen(held(sent)).partition_key == "key"


def test_attempts_in_a_dead_letter_queue_do_not_count() -> None:
    sent = incoming_message(encoded(ServiceBusMessage(b"x")))
    dead = held(sent, sub_queue=SubQueue.DEAD_LETTER, deliveries=2)
    assert seen(dead).delivery_count == seen(dead, is_peeked=True).delivery_count == 2


def test_the_bytes_of_the_bare_message_are_unchanged() -> None:
    payload = encoded(ServiceBusMessage(b"body", message_id="a", subject="s", application_properties={"n": 1}))
    parts = amqp.split(payload)
    out = outgoing(Received(held(incoming_message(payload)), parts.body))
    assert out.endswith(parts.head + parts.body)


def test_a_second_delivery_has_the_delivery_count_one() -> None:
    sent = incoming_message(encoded(ServiceBusMessage(b"x")))
    assert seen(held(sent, deliveries=2)).delivery_count == 1
    assert seen(held(sent, deliveries=2), is_peeked=True).delivery_count == 2


@pytest.mark.parametrize(
    ("ttl", "default_ttl", "has_times"),
    [(DAY, DAY, True), (DAY, 2 * DAY, False), (100 * DAY, NO_LIMIT, True), (None, NO_LIMIT, False)],
)
def test_the_lifetime_of_the_entity_comes_with_its_times(ttl: int | None, default_ttl: int, has_times: bool) -> None:
    sent = incoming_message(encoded(ServiceBusMessage(b"x", message_id="a")))
    message = held(sent, expires=None if ttl is None else NOW + ttl)
    payload = outgoing(Received(message, sent.body), default_ttl=default_ttl)
    found = amqp.properties(amqp.split(payload).head)
    times = (NOW // 1000, (NOW + (ttl or 0)) // 1000) if has_times else (None, None)
    assert (found.creation_time, found.absolute_expiry_time, found.message_id) == (*times, "a")


def test_keys_of_a_footer_become_symbols() -> None:
    given = encoded(ServiceBusMessage(b"x"))
    sent = incoming_message(given + b"\x00\x53\x78" + encode({"a": 1, Symbol("b"): "c"}))
    *_, (_, _, at, stop) = sections(sent.body)
    found = decode(sent.body, at, stop)[0]
    assert found == {"a": 1, "b": "c"}
    assert [type(key) for key in found] == [Symbol, Symbol]


def test_a_message_that_is_received_and_deleted_has_empty_delivery_annotations() -> None:
    sent = incoming_message(encoded(ServiceBusMessage(b"x")))
    deleted, section = Received(held(sent, token=None, locked_until=None), sent.body), b"\x00\x53\x71"
    assert amqp.split(outgoing(deleted)).delivery_annotations == {}
    assert section in outgoing(deleted)
    assert section not in outgoing(deleted, is_peeked=True)


def test_a_peeked_message_shows_the_end_of_its_lock_and_its_state() -> None:
    sent = incoming_message(encoded(ServiceBusMessage(b"x")))
    peeked = seen(held(sent, stage=Stage.DEFERRED_LOCKED, scheduled=NOW), is_peeked=True)
    annotations = peeked.raw_amqp_message.annotations
    assert annotations is not None
    assert b"x-opt-lock-token" not in annotations
    assert b"x-opt-locked-until" in annotations
    assert peeked.state.name == "DEFERRED"
    assert peeked.scheduled_enqueue_time_utc == datetime.fromtimestamp(NOW / SECOND, UTC)


def test_a_dead_letter_has_its_reason_and_its_source() -> None:
    sent = incoming_message(encoded(ServiceBusMessage(b"x", application_properties={"n": 1})))
    message = seen(held(sent, reason="why", description="in words"), "orders")
    assert (message.dead_letter_reason, message.dead_letter_error_description) == ("why", "in words")
    assert message.dead_letter_source == "orders"
    assert message.application_properties == {
        b"n": 1,
        b"DeadLetterReason": b"why",
        b"DeadLetterErrorDescription": b"in words",
    }


def test_a_delivery_tag_is_the_lock_token_as_dotnet_orders_it() -> None:
    token = uuid.uuid4()
    assert tag_of(token.bytes) == token.bytes_le
    assert tag_of(tag_of(token.bytes)) == token.bytes
