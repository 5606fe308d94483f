"""Splits incoming messages into the parts that are kept, and builds outgoing messages from them.

The bare message is kept as the bytes that came: `head` (properties and application properties) and `body` (body and
footer). The sections before it concern transport. Header and message annotations are read from an incoming message and
written anew for an outgoing one. Delivery annotations are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from oncebus.amqp.budget import check_elements
from oncebus.amqp.decoding import decode
from oncebus.amqp.encoding import encode, map_of
from oncebus.amqp.head import Properties, encode_head
from oncebus.amqp.limits import MOST_ELEMENTS, MOST_FRAME_ELEMENTS
from oncebus.amqp.sections import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    DATA,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    sections,
)
from oncebus.amqp.sizes import Buffer
from oncebus.amqp.types import DecodeError, Symbol, UByte, UInt
from oncebus.durations import MILLISECOND

BATCH_FORMAT = 0x80013700
"""The message-format of a transfer that holds a batch: each of its data sections is one encoded message."""

DEFAULT_PRIORITY = 4
_STARTS = {kind: bytes((0x00, 0x53, kind)) for kind in range(HEADER, FOOTER + 1)}
_LONGEST_TTL = 2**32 - 1


class Header(NamedTuple):
    """The header of a message. `ttl` is in microseconds, as all durations of Oncebus; the wire has milliseconds."""

    durable: bool = False
    priority: int = DEFAULT_PRIORITY
    ttl: int | None = None
    delivery_count: int = 0


_NO_HEADER = Header()


class Parts(NamedTuple):
    """The parts of an incoming message. The names of annotations are symbols, which equal the same text."""

    header: Header
    annotations: dict[Any, Any]
    head: bytes
    body: bytes


class AmqpValue(NamedTuple):
    """A body that is one AMQP value."""

    value: Any


class AmqpSequence(NamedTuple):
    """A body that is a list of AMQP values."""

    items: Sequence[Any]


Body = bytes | AmqpValue | AmqpSequence


def split(data: Buffer) -> Parts:
    """Split an encoded message into its parts. Only the header and the message annotations are decoded.

    The content of the head is not checked, so reading it later may raise `DecodeError`.
    """
    header = _NO_HEADER
    annotations: dict[Any, Any] = {}
    head_at = body_at = len(data)
    for kind, at, value, stop in sections(data):
        if kind >= DATA:
            if at < body_at:
                body_at = at
        elif kind >= PROPERTIES:
            if at < head_at:
                head_at = at
        elif kind == HEADER:
            header = _header(decode(data, value, stop, most_elements=MOST_FRAME_ELEMENTS)[0], at)
        elif kind == MESSAGE_ANNOTATIONS:
            annotations = decode(data, value, stop, most_elements=MOST_FRAME_ELEMENTS)[0]
    return Parts(header, annotations, bytes(data[head_at:body_at]), bytes(data[body_at:]))


def split_batch(data: Buffer, most: int | None = None) -> list[bytes]:
    """Return the encoded messages of a batch, in order. The other sections of the envelope are ignored.

    Reading stops after `most` messages.
    """
    messages: list[bytes] = []
    for kind, at, value, stop in sections(data):
        if len(messages) == most:
            break
        if kind == DATA:
            messages.append(bytes(data[value + (2 if data[value] == 0xA0 else 5) : stop]))
        elif kind in (AMQP_SEQUENCE, AMQP_VALUE):
            raise DecodeError("batch", at, "its messages must be data sections")
    return messages


def encode_message(
    properties: Properties | None, application_properties: Mapping[str, object] | None, body: Body
) -> tuple[bytes, bytes]:
    """Return the head and the body of a new message. Bytes become one data section."""
    return encode_head(properties, application_properties), encode_body(body)


def encode_body(body: Body) -> bytes:
    """Return the encoding of a body as one section."""
    if isinstance(body, AmqpValue):
        return _STARTS[AMQP_VALUE] + encode(body.value)
    if isinstance(body, AmqpSequence):
        return _STARTS[AMQP_SEQUENCE] + encode(list(body.items))
    return _STARTS[DATA] + encode(bytes(body))


def decode_body(body: Buffer) -> Body:
    """Return the content of a body: the joined data sections, the elements of all its sequences, or its value.

    A missing body is read as empty bytes. A body of more than `MOST_ELEMENTS` values raises `DecodeError`.
    """
    pieces: list[Any] = []
    items: list[Any] = []
    is_sequence = False
    left = MOST_ELEMENTS
    for kind, at, value, stop in sections(body):
        if kind < DATA:
            raise DecodeError("body", at, "it contains a section of the head")
        if kind == FOOTER:
            break
        if len(body) > MOST_ELEMENTS:
            # All sections share one limit: otherwise many sections could multiply it.
            left -= check_elements(body, value, stop, left)
        content = decode(body, value, stop)[0]
        if kind == AMQP_VALUE:
            return AmqpValue(content)
        if kind == AMQP_SEQUENCE:
            is_sequence = True
            items += content
        else:
            pieces.append(content)
    return AmqpSequence(items) if is_sequence else b"".join(pieces)


def deliverable(head: bytes, body: bytes, header: Header, annotations: Mapping[str, object]) -> list[bytes]:
    """Return a message for a receiver in pieces to be joined: header and annotations, head, body.

    A time to live is rounded up to whole milliseconds, and capped at the longest that the header can hold.
    """
    return [piece for piece in (_before(header, annotations), head, body) if piece]


def _before(header: Header, annotations: Mapping[str, object]) -> bytes:
    durable, priority, ttl, delivery_count = header
    milliseconds = None if ttl is None else UInt(min(-(-ttl // MILLISECOND), _LONGEST_TTL))
    # All five fields, nulls too, because some clients index them.
    fields = (durable, UByte(priority), milliseconds, None, UInt(delivery_count))
    encoded = _STARTS[HEADER] + encode(fields)
    if annotations:
        pairs: list[bytes] = []
        for name, value in annotations.items():
            pairs += (_annotation(name), encode(value))
        encoded += _STARTS[MESSAGE_ANNOTATIONS] + map_of(pairs)
    return encoded


@lru_cache(maxsize=256)
def _annotation(name: str) -> bytes:
    return encode(Symbol(name))


def _header(fields: list[Any], at: int) -> Header:
    if len(fields) > 5:
        raise DecodeError("header", at, f"{len(fields)} fields are more than 5")
    durable, priority, ttl, _, delivery_count = fields + [None] * (5 - len(fields))
    for name, value, kind in (
        ("durable", durable, bool),
        ("priority", priority, UByte),
        ("ttl", ttl, UInt),
        ("delivery-count", delivery_count, UInt),
    ):
        if value is not None and type(value) is not kind:
            raise DecodeError("header", at, f"{name} cannot be {value!r:.100}")
    return Header(
        bool(durable),
        DEFAULT_PRIORITY if priority is None else int(priority),
        None if ttl is None else ttl * MILLISECOND,
        int(delivery_count or 0),
    )
