"""Renders a message as the response to a request.

The body is the bytes of the message's data sections. If the body is an AMQP value, a string becomes UTF-8, a binary
becomes its bytes, and null becomes empty. Any other value, and a sequence, becomes JSON, with times in ISO 8601,
binaries in base64 and uuids as text. A value or sequence that is too large to convert is returned in its AMQP encoding.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Sequence
from typing import NamedTuple

from starlette.responses import Response

from oncebus import amqp
from oncebus.amqp.types import DecodeError
from oncebus.broker.broker import Received
from oncebus.broker.sending import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON
from oncebus.engine.store import Message, State, SubQueue
from oncebus.model.entities import NO_LIMIT
from oncebus.protocols.http.properties import BROKER_PROPERTIES, headers_of
from oncebus.protocols.http.rendering import (
    LARGEST_HEAD,
    LARGEST_SHOWN_VALUE,
    LARGEST_VALUE,
    Allowance,
    bytes_to_read,
    plain_value,
)
from oncebus.protocols.http.times import rfc1123
from oncebus.values.durations import SECOND

# TimeSpan.MaxValue in seconds, as the service shows it.
_NO_LIMIT_SECONDS = 922337203685.47754
_BINARY, _TEXT, _JSON, _AMQP = (
    "application/octet-stream",
    "text/plain; charset=utf-8",
    "application/json",
    "application/amqp",
)
_STATES = {State.ACTIVE: "Active", State.DEFERRED: "Deferred", State.SCHEDULED: "Scheduled"}


class _Content(NamedTuple):
    body: bytes
    kind: str


def response(
    received: Received, status: int, dead_letter_source: str | None = None, location: str | None = None
) -> Response:
    """Return the response that delivers a message. Its delivery count includes this delivery, also of a dead letter."""
    message = received.message
    if message.sub_queue != SubQueue.MAIN:
        message = message._replace(deliveries=message.deliveries + 1)
    properties, own = _read_head(message.head)
    if message.reason is not None:
        own.setdefault(DEAD_LETTER_REASON, message.reason)
    if message.description is not None:
        own.setdefault(DEAD_LETTER_DESCRIPTION, message.description)
    content = _content(received.body, LARGEST_VALUE)
    kind = properties.content_type
    made = Response(content.body, status)
    # A sender may write anything. AMQP clients may even use other characters than ASCII.
    headers = [("content-type", kind if kind and kind.isascii() and kind.isprintable() else content.kind)]
    headers.append((BROKER_PROPERTIES, _json(_system_properties(message, properties, dead_letter_source))))
    if location is not None:
        headers.append(("location", location))
    headers.extend(headers_of(own))
    made.raw_headers += [(name.lower().encode("ascii"), value.encode("ascii")) for name, value in headers]
    return made


def page(found: Sequence[tuple[Received, str | None]]) -> tuple[list[dict[str, object]], int | None]:
    """Return the items of a page, and where the next page starts.

    Each message in `found` comes with its dead-letter source.

    The start of the next page is None if all messages are on this page. A page ends early if decoding takes too much
    work.
    """
    allowance = Allowance()
    items: list[dict[str, object]] = []
    for received, source in found:
        if not allowance.take(work(received)):
            return items, received.message.sequence
        items.append(describe(received, source))
    return items, None


def work(received: Received) -> int:
    """Return how many bytes must be decoded to show a message."""
    body = bytes_to_read(received.body)
    return min(len(received.message.head), LARGEST_HEAD) + (body if body <= LARGEST_SHOWN_VALUE else 0)


def describe(received: Received, dead_letter_source: str | None = None) -> dict[str, object]:
    """Return a message as an item of a page, with its system properties. A body that is not UTF-8 is base64.

    The lock token is left out: a caller that only peeks must not learn the receiver's token.
    """
    message = received.message
    properties, own = _read_head(message.head)
    content = _content(received.body, LARGEST_SHOWN_VALUE)
    system = _system_properties(message._replace(token=None), properties, dead_letter_source)
    if message.reason is not None:
        system[DEAD_LETTER_REASON] = message.reason
    if message.description is not None:
        system[DEAD_LETTER_DESCRIPTION] = message.description
    if properties.content_type is not None:
        system["ContentType"] = properties.content_type
    item: dict[str, object] = {"BrokerProperties": system}
    try:
        item["Body"] = content.body.decode()
    except UnicodeDecodeError:
        item |= {"Body": base64.b64encode(content.body).decode(), "IsBodyBase64": True}
    return {**item, "UserProperties": {name: plain_value(value) for name, value in own.items()}}


def renewal_response(token: bytes, until: int) -> Response:
    """Return the response to a renewal, with the new end of the lock."""
    system = {"LockToken": str(uuid.UUID(bytes=token)), "LockedUntilUtc": rfc1123(until)}
    return Response(b"", 200, {BROKER_PROPERTIES: _json(system)})


def _read_head(head: bytes) -> tuple[amqp.Properties, dict[str, object]]:
    try:
        if len(head) > LARGEST_HEAD:
            return amqp.properties(head), {}
        return amqp.properties(head), amqp.filter_properties(head)[1]
    except DecodeError:
        # The message is delivered already. It is better to return it without its properties than not at all.
        return amqp.Properties(), {}


def _system_properties(
    message: Message, properties: amqp.Properties, dead_letter_source: str | None
) -> dict[str, object]:
    is_limited = message.expires is not None and message.expires - message.enqueued < NO_LIMIT
    system: dict[str, object] = {
        "CorrelationId": _id(properties.correlation_id),
        "DeadLetterSource": dead_letter_source,
        "DeliveryCount": message.deliveries,
        "EnqueuedSequenceNumber": message.enqueued_sequence,
        "EnqueuedTimeUtc": rfc1123(message.enqueued),
        "Label": properties.subject,
        "LockToken": str(uuid.UUID(bytes=message.token)) if message.token is not None else None,
        "LockedUntilUtc": rfc1123(message.locked_until) if message.locked_until is not None else None,
        "MessageId": message.message_id,
        "PartitionKey": message.partition_key,
        "ReplyTo": properties.reply_to,
        "ReplyToSessionId": properties.reply_to_group_id,
        "ScheduledEnqueueTimeUtc": rfc1123(message.scheduled) if message.scheduled is not None else None,
        "SequenceNumber": message.sequence,
        "SessionId": message.session,
        "State": _STATES[message.state],
        "TimeToLive": ((message.expires or 0) - message.enqueued) / SECOND if is_limited else _NO_LIMIT_SECONDS,
        "To": properties.to,
    }
    return {name: value for name, value in system.items() if value is not None}


def _id(value: amqp.Id | None) -> str | None:
    if value is None:
        return None
    text = amqp.id_text(value)
    return text if isinstance(text, str) else text.hex()


def _content(body: bytes, largest: int) -> _Content:
    try:
        if bytes_to_read(body) > largest:
            return _Content(body, _AMQP)
        content = amqp.decode_body(body)
    except DecodeError:
        return _Content(body, _AMQP)
    if isinstance(content, bytes):
        return _Content(content, _BINARY)
    if isinstance(content, amqp.AmqpSequence):
        return _Content(_json([plain_value(item) for item in content.items]).encode(), _JSON)
    match content.value:
        case None:
            return _Content(b"", _BINARY)
        case str():
            return _Content(content.value.encode(), _TEXT)
        case bytes():
            return _Content(bytes(content.value), _BINARY)
    return _Content(_json(plain_value(content.value)).encode(), _JSON)


def _json(value: object) -> str:
    """Return JSON in ASCII, so that it can be a header."""
    return json.dumps(value, separators=(",", ":"))
