"""Translates incoming and outgoing messages. The bytes of the bare message stay unchanged.

The receiver gets the sender's header fields (durable, priority, first-acquirer), annotations and footer. The broker
reads the header's ttl and the annotations x-opt-partition-key and x-opt-scheduled-enqueue-time. An outgoing message
gets a new ttl and delivery-count, and these message annotations:

    x-opt-sequence-number           long
    x-opt-enqueued-time             timestamp
    x-opt-locked-until              timestamp   while it is locked
    x-opt-message-state             int         1 deferred, 2 scheduled, even after its time has come; else none
    x-opt-enqueue-sequence-number   long        in a subscription: the number in the topic
    x-opt-partition-key             string      if set
    x-opt-scheduled-enqueue-time    timestamp   if set
    x-opt-deadletter-source         string      for a dead letter that was forwarded

While it is locked, the delivery annotation x-opt-lock-token (uuid) is its lock token.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from oncebus import amqp
from oncebus.amqp.decoding import decode
from oncebus.amqp.encoding import encode
from oncebus.amqp.head import TICKS_AT_1970, bare_at
from oncebus.amqp.message import LONGEST_TTL, NO_HEADER, Header
from oncebus.amqp.sections import FOOTER, sections
from oncebus.amqp.types import DecodeError, Int, Symbol, Timestamp
from oncebus.broker.broker import Received
from oncebus.broker.sending import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON, MOST_MESSAGES, Incoming, empty_batch
from oncebus.engine.store import Message, State, SubQueue
from oncebus.model.entities import NO_LIMIT, BadRequest
from oncebus.protocols.servicebus import decimals
from oncebus.values.durations import MILLISECOND

SEQUENCE_NUMBER = "x-opt-sequence-number"
ENQUEUED_SEQUENCE_NUMBER = "x-opt-enqueue-sequence-number"
ENQUEUED_TIME = "x-opt-enqueued-time"
LOCKED_UNTIL = "x-opt-locked-until"
LOCK_TOKEN = "x-opt-lock-token"
PARTITION_KEY = "x-opt-partition-key"
SCHEDULED_TIME = "x-opt-scheduled-enqueue-time"
DEAD_LETTER_SOURCE = "x-opt-deadletter-source"
MESSAGE_STATE = "x-opt-message-state"
ORIGINAL = "oncebus:original"
"""The application property with which a sender asks for the number of the original, if its message is a duplicate."""
_ORIGINAL = ORIGINAL.encode()

_OURS = frozenset(
    {
        SEQUENCE_NUMBER,
        ENQUEUED_SEQUENCE_NUMBER,
        ENQUEUED_TIME,
        LOCKED_UNTIL,
        LOCK_TOKEN,
        DEAD_LETTER_SOURCE,
        MESSAGE_STATE,
    }
)
"""The annotations that only the broker writes. A message that a client received and sends again may have them."""

_TICKS_PER_MICROSECOND = 10
_LATEST = (1 << 63) - 1
_DECIMAL = decimals.FORMAT_CODE
_FOOTER = bytes((0x00, 0x53, FOOTER))
# Members of an enumeration take a while to look up.
_MAIN, _ACTIVE = SubQueue.MAIN, State.ACTIVE
_BIG_GUID, _LITTLE_GUID = struct.Struct(">IHH8s"), struct.Struct("<IHH8s")


def timestamp(time: int) -> Timestamp:
    """Return an AMQP timestamp, which has milliseconds."""
    return Timestamp(time // MILLISECOND)


def of_timestamp(milliseconds: int) -> int:
    """Return the time of an AMQP timestamp, clamped to 64 bits."""
    return max(min(milliseconds * MILLISECOND, _LATEST), -_LATEST)


def ticks(time: int) -> int:
    """Return .NET ticks: tenths of microseconds since the year 1."""
    return TICKS_AT_1970 + time * _TICKS_PER_MICROSECOND


def incoming(payload: bytes, message_format: int = 0) -> list[Incoming]:
    """Return the messages of one transfer: a single message or a batch. Raises `DecodeError` or `BadRequest`."""
    if message_format != amqp.BATCH_FORMAT:
        return [incoming_message(payload)]
    split = amqp.split_batch(payload, MOST_MESSAGES + 1)
    if not split:
        raise empty_batch()
    if len(split) > MOST_MESSAGES:
        raise BadRequest(f"The batch holds more than {MOST_MESSAGES} messages, which is the limit.")
    return [incoming_message(each) for each in split]


def incoming_message(payload: bytes) -> Incoming:
    """Convert one encoded message to the form that the broker accepts. Raises `DecodeError` or `BadRequest`."""
    plain = amqp.split_plain(payload)
    if plain is not None and _DECIMAL not in plain[0]:
        return Incoming(*plain)
    header, of_delivery, annotations, head, body = amqp.split(payload)
    message_id, group_id = amqp.identity(head)
    ttl = None if header.ttl is None else _time_to_live(header.ttl, head)
    if _DECIMAL in head:
        head = decimals.translate_decimals(head)
    scheduled = partition_key = None
    if annotations:
        scheduled = annotations.get(SCHEDULED_TIME)
        if scheduled is not None and (not isinstance(scheduled, int) or isinstance(scheduled, bool)):
            raise _bad(SCHEDULED_TIME, scheduled, "a timestamp")
        partition_key = _partition_key(annotations.get(PARTITION_KEY))
        annotations = _own(annotations)
    if of_delivery:
        of_delivery = _own(of_delivery)
    if _FOOTER in body:
        body = _with_symbols_in_footer(body)
    if annotations or of_delivery or header is not NO_HEADER:
        head = amqp.annotate(head, header, of_delivery, annotations)
    return Incoming(
        head,
        body,
        None if message_id is None else amqp.id_text(message_id),
        group_id,
        partition_key,
        None if scheduled is None else of_timestamp(scheduled),
        ttl,
    )


def _with_symbols_in_footer(body: bytes) -> bytes:
    """Return the body with symbols as the keys of its footer, as the service delivers it."""
    for kind, at, value, stop in sections(body):
        if kind == FOOTER:
            content = decode(body, value, stop)[0]
            symbols = {Symbol(key) if isinstance(key, str) else key: each for key, each in content.items()}
            return body[:at] + _FOOTER + encode(symbols) + body[stop:]
    return body


def wants_original(head: bytes) -> bool:
    """Return whether the sender of a scheduled message asks for the number of its original, if it is a duplicate."""
    if _ORIGINAL not in head:
        return False
    given = amqp.application_properties(head).get(ORIGINAL, False)
    if not isinstance(given, bool):
        raise BadRequest(f"The application property '{ORIGINAL}' has value {given!r:.100}. Not a boolean.")
    return given


def outgoing(
    received: Received,
    dead_letter_source: str | None = None,
    *,
    is_peeked: bool = False,
    is_copy: bool = False,
    default_ttl: int = NO_LIMIT,
) -> bytes:
    """Return an encoded message for a receiver. `is_copy` is for a message of a subscription.

    `default_ttl` is the entity's own time to live. Where that counts, or where the header cannot hold the time to live,
    the message has a creation time and an expiry time.

    The delivery count excludes this delivery, so a new message has 0. In a dead-letter queue, deliveries do not count.
    """
    message = received.message
    ttl = None if message.expires is None else max(message.expires - message.enqueued, 0)
    has_times = ttl is not None and (ttl == default_ttl or ttl > LONGEST_TTL * MILLISECOND)
    if _is_plain(message) and not (is_peeked or is_copy or has_times or dead_letter_source):
        return _plain(message, received.body)
    annotations: dict[str, object] = {
        ENQUEUED_TIME: timestamp(message.enqueued),
        SEQUENCE_NUMBER: message.sequence,
    }
    # A message that is received and deleted has this section, but empty; a peeked one has none.
    of_delivery: dict[str, object] | None = None if is_peeked else {}
    if message.token is not None and of_delivery is not None:
        of_delivery[LOCK_TOKEN] = uuid.UUID(bytes=message.token)
    if message.locked_until is not None:
        annotations[LOCKED_UNTIL] = timestamp(message.locked_until)
    if is_copy:
        annotations[ENQUEUED_SEQUENCE_NUMBER] = message.enqueued_sequence
    state = message.state
    if state is not State.ACTIVE or message.scheduled is not None:
        annotations[MESSAGE_STATE] = Int(State.SCHEDULED if state is State.ACTIVE else state)
    if message.partition_key is not None:
        annotations[PARTITION_KEY] = message.partition_key
    if message.scheduled is not None:
        annotations[SCHEDULED_TIME] = timestamp(message.scheduled)
    if dead_letter_source is not None:
        annotations[DEAD_LETTER_SOURCE] = dead_letter_source
    is_counted = not is_peeked and message.sub_queue == SubQueue.MAIN
    deliveries = max(message.deliveries - 1, 0) if is_counted else message.deliveries
    header = Header(ttl=ttl, delivery_count=deliveries)
    head = _head_of(received)
    if has_times:
        head = _with_times(head, message)
    return b"".join(amqp.deliverable(head, received.body, header, annotations, of_delivery))


def _is_plain(message: Message) -> bool:
    """Return whether a locked message of a queue has nothing special, as most: then `_plain` encodes it."""
    return (
        message.locked_until is not None
        and message.sub_queue == _MAIN
        and message.state is _ACTIVE
        and message.scheduled is None
        and message.partition_key is None
        and message.reason is None
        and message.description is None
        and bare_at(message.head) == 0
    )


def _plain(message: Message, body: bytes) -> bytes:
    """Return what the general way returns for such a message, except that its numbers have their longest encoding."""
    assert message.token is not None
    assert message.locked_until is not None
    ttl = None if message.expires is None else max(message.expires - message.enqueued, 0)
    return b"".join(
        (
            _plain_header(ttl, max(message.deliveries - 1, 0)),
            _OF_DELIVERY,
            message.token,
            _PLAIN_ANNOTATIONS.pack(
                _BEFORE_TIME,
                message.enqueued // MILLISECOND,
                _BEFORE_NUMBER,
                message.sequence,
                _BEFORE_LOCK,
                message.locked_until // MILLISECOND,
            ),
            message.head,
            body,
        )
    )


@lru_cache(maxsize=1024)
def _plain_header(ttl: int | None, deliveries: int) -> bytes:
    return b"".join(amqp.deliverable(b"", b"", Header(ttl=ttl, delivery_count=deliveries), {}))


def _templates() -> tuple[bytes, bytes, bytes, bytes]:
    """Return the bytes before the lock token, the enqueued time, the number and the end of the lock."""
    largest = 2**63 - 1
    header = _plain_header(None, 0)
    token, end = uuid.UUID(int=largest), largest.to_bytes(8)
    of_delivery = b"".join(amqp.deliverable(b"", b"", Header(), {}, {LOCK_TOKEN: token})).removeprefix(header)
    times = {name: Timestamp(largest) for name in (ENQUEUED_TIME, LOCKED_UNTIL)}
    annotations = {ENQUEUED_TIME: times[ENQUEUED_TIME], SEQUENCE_NUMBER: largest, LOCKED_UNTIL: times[LOCKED_UNTIL]}
    encoded = b"".join(amqp.deliverable(b"", b"", Header(), annotations)).removeprefix(header)
    before_time, before_number, before_lock, _ = encoded.split(end)
    return of_delivery.removesuffix(token.bytes), before_time, before_number, before_lock


_OF_DELIVERY, _BEFORE_TIME, _BEFORE_NUMBER, _BEFORE_LOCK = _templates()
_PLAIN_ANNOTATIONS = struct.Struct(f">{len(_BEFORE_TIME)}sq{len(_BEFORE_NUMBER)}sq{len(_BEFORE_LOCK)}sq")


def tag_of(token: bytes) -> bytes:
    """Return the delivery tag for a lock token: the same GUID in .NET's byte order. The function is its own inverse."""
    return _LITTLE_GUID.pack(*_BIG_GUID.unpack(token))


def _head_of(received: Received) -> bytes:
    message = received.message
    reasons = {DEAD_LETTER_REASON: message.reason, DEAD_LETTER_DESCRIPTION: message.description}
    given = {name: text for name, text in reasons.items() if text is not None}
    if not given:
        return message.head
    try:
        return amqp.with_application_properties(message.head, given)
    except DecodeError:
        # Sending does not check application properties, so they may be malformed: deliver them as they came.
        return message.head


def _with_times(head: bytes, message: Message) -> bytes:
    assert message.expires is not None
    times = {"creation_time": timestamp(message.enqueued), "absolute_expiry_time": timestamp(message.expires)}
    try:
        return amqp.with_properties(head, times)
    except DecodeError:
        return head


def _time_to_live(ttl: int, head: bytes) -> int:
    # For a longer one, clients also set expiry and creation time.
    if ttl < LONGEST_TTL * MILLISECOND:
        return ttl
    properties = amqp.properties(head)
    if properties.creation_time is None or properties.absolute_expiry_time is None:
        return ttl
    return max(ttl, of_timestamp(properties.absolute_expiry_time - properties.creation_time))


def _own(annotations: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the annotations that are stored with the head.

    The partition key is not one of them: it is stored separately, as text.
    """
    return {
        name: decimals.translate_decimal(value)
        for name, value in annotations.items()
        if name not in _OURS and name != PARTITION_KEY
    }


def _partition_key(given: Any) -> str | None:
    """Return the partition key as text. Some clients write it as a binary."""
    if isinstance(given, bytes):
        try:
            return given.decode()
        except UnicodeDecodeError:
            raise _bad(PARTITION_KEY, given, "a string") from None
    if given is not None and not isinstance(given, str):
        raise _bad(PARTITION_KEY, given, "a string")
    return given


def _bad(name: str, value: object, wanted: str) -> BadRequest:
    return BadRequest(f"The annotation '{name}' has value {value!r:.100}. Not {wanted}.")
