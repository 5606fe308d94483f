"""Translates incoming and outgoing messages. The bytes of the bare message stay unchanged.

The header's ttl and the annotations x-opt-partition-key and x-opt-scheduled-enqueue-time of an incoming message are
read. An outgoing message gets a new header and these annotations:

    x-opt-sequence-number           long        x-opt-enqueue-sequence-number   long
    x-opt-enqueued-time             timestamp   x-opt-message-state             int: 0 active, 1 deferred, 2 scheduled
    x-opt-locked-until              timestamp   x-opt-lock-token                uuid      while it is locked
    x-opt-partition-key             string      x-opt-scheduled-enqueue-time    timestamp if set
    x-opt-deadletter-source         string      for a dead letter that was forwarded
"""

from __future__ import annotations

import uuid

from oncebus import amqp
from oncebus.amqp import Header, Int
from oncebus.broker.broker import Received
from oncebus.broker.sending import MOST_MESSAGES, Incoming
from oncebus.entities import BadRequest
from oncebus.servicebus.times import of_timestamp, timestamp

SEQUENCE_NUMBER = "x-opt-sequence-number"
ENQUEUED_SEQUENCE_NUMBER = "x-opt-enqueue-sequence-number"
ENQUEUED_TIME = "x-opt-enqueued-time"
LOCKED_UNTIL = "x-opt-locked-until"
LOCK_TOKEN = "x-opt-lock-token"
PARTITION_KEY = "x-opt-partition-key"
SCHEDULED_TIME = "x-opt-scheduled-enqueue-time"
DEAD_LETTER_SOURCE = "x-opt-deadletter-source"
MESSAGE_STATE = "x-opt-message-state"

DEAD_LETTER_REASON = "DeadLetterReason"
DEAD_LETTER_DESCRIPTION = "DeadLetterErrorDescription"

_LONGEST_TTL = (2**32 - 1) * 1000
"""The longest time to live in the header. For a longer one, clients also set expiry and creation time."""


def incoming(payload: bytes, message_format: int = 0) -> list[Incoming]:
    """Return the messages of one transfer: a single message or a batch. Raises `DecodeError` or `BadRequest`."""
    if message_format != amqp.BATCH_FORMAT:
        return [incoming_message(payload)]
    split = amqp.split_batch(payload, MOST_MESSAGES + 1)
    if not split:
        raise BadRequest("The batch of messages is empty.")
    if len(split) > MOST_MESSAGES:
        raise BadRequest(f"The batch holds more than {MOST_MESSAGES} messages, which is the limit.")
    return [incoming_message(each) for each in split]


def incoming_message(payload: bytes) -> Incoming:
    """Return one encoded message as the broker takes it. Raises `DecodeError` or `BadRequest`."""
    header, annotations, head, body = amqp.split(payload)
    message_id, group_id = amqp.identity(head)
    scheduled = partition_key = None
    if annotations:
        scheduled = annotations.get(SCHEDULED_TIME)
        if scheduled is not None and (not isinstance(scheduled, int) or isinstance(scheduled, bool)):
            raise _bad(SCHEDULED_TIME, scheduled, "a timestamp")
        partition_key = annotations.get(PARTITION_KEY)
        if partition_key is not None and not isinstance(partition_key, str):
            raise _bad(PARTITION_KEY, partition_key, "a string")
    return Incoming(
        head,
        body,
        None if message_id is None else amqp.id_text(message_id),
        group_id,
        partition_key,
        None if scheduled is None else of_timestamp(scheduled),
        None if header.ttl is None else _time_to_live(header.ttl, head),
    )


def outgoing(received: Received, dead_letter_source: str | None = None, *, is_peeked: bool = False) -> bytes:
    """Return an encoded message for a receiver. The delivery count excludes this delivery, so a new message has 0."""
    message = received.message
    annotations: dict[str, object] = {
        SEQUENCE_NUMBER: message.sequence,
        ENQUEUED_SEQUENCE_NUMBER: message.enqueued_sequence,
        ENQUEUED_TIME: timestamp(message.enqueued),
        MESSAGE_STATE: Int(message.state),
    }
    if message.token is not None and not is_peeked:
        annotations[LOCK_TOKEN] = uuid.UUID(bytes=message.token)
        if message.locked_until is not None:
            annotations[LOCKED_UNTIL] = timestamp(message.locked_until)
    if message.partition_key is not None:
        annotations[PARTITION_KEY] = message.partition_key
    if message.scheduled is not None:
        annotations[SCHEDULED_TIME] = timestamp(message.scheduled)
    if dead_letter_source is not None:
        annotations[DEAD_LETTER_SOURCE] = dead_letter_source
    deliveries = message.deliveries if is_peeked else max(message.deliveries - 1, 0)
    ttl = None if message.expires is None else max(message.expires - message.enqueued, 0)
    header = Header(ttl=ttl, delivery_count=deliveries)
    return b"".join(amqp.deliverable(_head_of(received), received.body, header, annotations))


def tag_of(token: bytes) -> bytes:
    """Return the delivery tag for a lock token: the same GUID in .NET's byte order. The function is its own inverse."""
    return token[3::-1] + token[5:3:-1] + token[7:5:-1] + token[8:]


def _head_of(received: Received) -> bytes:
    message = received.message
    reasons = {DEAD_LETTER_REASON: message.reason, DEAD_LETTER_DESCRIPTION: message.description}
    given = {name: text for name, text in reasons.items() if text is not None}
    if not given:
        return message.head
    try:
        return amqp.with_application_properties(message.head, given)
    except amqp.DecodeError:
        # Sending does not check application properties, so they may be malformed: deliver them as they came.
        return message.head


def _time_to_live(ttl: int, head: bytes) -> int:
    if ttl < _LONGEST_TTL:
        return ttl
    properties = amqp.properties(head)
    if properties.creation_time is None or properties.absolute_expiry_time is None:
        return ttl
    return max(ttl, of_timestamp(properties.absolute_expiry_time - properties.creation_time))


def _bad(name: str, value: object, wanted: str) -> BadRequest:
    return BadRequest(f"The annotation '{name}' has value {value!r:.100}. Not {wanted}.")
