"""Splits incoming messages into the parts that are stored, and builds outgoing messages from these parts.

The bare message is kept as the bytes that came: `head` (properties and application properties) and `body` (body and
footer). The sections before it concern transport. They are read from an incoming message and written anew for an
outgoing one. `annotate` puts the sender's header and annotations in front of the head, so that they are stored with
it. `deliverable` merges them with those that the broker writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from oncebus.amqp.budget import check_elements
from oncebus.amqp.decoding import decode
from oncebus.amqp.encoding import encode, map_of
from oncebus.amqp.head import Properties, bare_at, encode_head
from oncebus.amqp.limits import MOST_ELEMENTS, MOST_FRAME_ELEMENTS, MOST_SECTIONS
from oncebus.amqp.sections import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    in_order,
    sections,
)
from oncebus.amqp.sizes import Buffer
from oncebus.amqp.types import DecodeError, Symbol, UByte, UInt
from oncebus.values.durations import MILLISECOND

BATCH_FORMAT = 0x80013700
"""The message-format of a transfer that holds a batch: each of its data sections is one encoded message."""

_STARTS = {kind: bytes((0x00, 0x53, kind)) for kind in range(HEADER, FOOTER + 1)}
_PROPERTIES, _APPLICATION_PROPERTIES, _DATA = (_STARTS[kind] for kind in (PROPERTIES, APPLICATION_PROPERTIES, DATA))
_GROUP_ID = 10
"""The position of the group-id among the properties."""
_NULLS = b"\x40" * _GROUP_ID
"""The fields between message-id and group-id, and the group-id, if all of them are null."""
LONGEST_TTL = 2**32 - 1
"""The longest time to live that a header can hold, in milliseconds."""


class Header(NamedTuple):
    """The header of a message. A field that the sender left out is None.

    `ttl` is in microseconds, like all durations in Oncebus. In the encoded message it is in milliseconds.
    """

    durable: bool | None = None
    priority: int | None = None
    ttl: int | None = None
    first_acquirer: bool | None = None
    delivery_count: int = 0


NO_HEADER = Header()
_NOTHING: dict[Any, Any] = {}


class Parts(NamedTuple):
    """The parts of an incoming message. The names of annotations are symbols, which equal the same text."""

    header: Header
    delivery_annotations: Mapping[Any, Any]
    annotations: Mapping[Any, Any]
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
    """Split an encoded message into its parts. Only the header and the annotations are decoded.

    The content of the head is not checked, so reading it later may raise `DecodeError`.
    """
    header = NO_HEADER
    of_delivery = annotations = _NOTHING
    head_at = body_at = len(data)
    last = 0
    for kind, at, value, stop in sections(data):
        if kind < last:
            return split(in_order(data))
        last = kind
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
        else:
            of_delivery = decode(data, value, stop, most_elements=MOST_FRAME_ELEMENTS)[0]
    return Parts(header, of_delivery, annotations, bytes(data[head_at:body_at]), bytes(data[body_at:]))


def annotate(
    head: bytes, header: Header, delivery_annotations: Mapping[Any, Any], annotations: Mapping[Any, Any]
) -> bytes:
    """Return the head, preceded by sections with the sender's header and annotations.

    The sender's time to live and delivery count are left out, because the broker keeps its own.
    """
    before = b""
    if header.durable is not None or header.priority is not None or header.first_acquirer is not None:
        before = _encoded_header(header._replace(ttl=None), None)
    if delivery_annotations:
        before += _STARTS[DELIVERY_ANNOTATIONS] + encode(delivery_annotations)
    if annotations:
        before += _STARTS[MESSAGE_ANNOTATIONS] + encode(annotations)
    return before + head


def split_plain(data: bytes) -> tuple[bytes, bytes, str] | None:
    """Return head, body and message-id of a message in the form that most messages have; None for any other form.

    In that form it has no header, annotations or footer, a text of up to 255 bytes as message-id, no group-id, and one
    data section. The result is that of `split` and `identity`, at a quarter of their cost.
    """
    end = len(data)
    if end < 12 or data[3] != 0xC0 or data[6] != 0xA1 or data[:3] != _PROPERTIES:
        return None
    size, count, id_end = data[4], data[5], 8 + data[7]
    at = 5 + size
    # Fields after the message-id take at least a byte each.
    if id_end > at or not 0 < count < size or (count > _GROUP_ID and not data.startswith(_NULLS, id_end, at)):
        return None
    try:
        if data[at : at + 3] == _APPLICATION_PROPERTIES:
            if data[at + 3] != 0xC1:
                return None
            at += 5 + data[at + 4]
        code = data[at + 3]
        if data[at : at + 3] != _DATA:
            return None
        if code == 0xA0:
            stop = at + 5 + data[at + 4]
        elif code == 0xB0:
            stop = at + 8 + int.from_bytes(data[at + 4 : at + 8])
        else:
            return None
        return (data[:at], data[at:], str(data[8:id_end], "utf-8")) if stop == end else None
    except (IndexError, UnicodeDecodeError):
        return None


def split_batch(data: Buffer, most: int | None = None) -> list[bytes]:
    """Return the encoded messages of a batch, in order. The other sections of the envelope are ignored.

    Reading stops after `most` messages.
    """
    messages = _plain_batch(data)
    if messages is not None:
        return messages[:most]
    messages = []
    for kind, at, value, stop in sections(data):
        if len(messages) == most:
            break
        if kind == DATA:
            messages.append(bytes(data[value + (2 if data[value] == 0xA0 else 5) : stop]))
        elif kind in (AMQP_SEQUENCE, AMQP_VALUE):
            raise DecodeError("batch", at, "its messages must be data sections")
    return messages


def _plain_batch(data: Buffer) -> list[bytes] | None:
    """Return the encoded messages of a batch that has only data sections, and few enough; else None."""
    messages: list[bytes] = []
    at, end = 0, len(data)
    while at < end - 4 and data[at : at + 3] == _DATA and len(messages) < MOST_SECTIONS:
        code = data[at + 3]
        if code == 0xB0:
            start = at + 8
            at = start + int.from_bytes(data[at + 4 : start])
        elif code == 0xA0:
            start = at + 5
            at = start + data[at + 4]
        else:
            return None
        messages.append(bytes(data[start:at]))
    return messages if at == end else None


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

    For a missing body, it returns empty bytes. A body of more than `MOST_ELEMENTS` values raises `DecodeError`.
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


def deliverable(
    head: bytes,
    body: bytes,
    header: Header,
    annotations: Mapping[str, object],
    delivery_annotations: Mapping[str, object] | None = None,
) -> list[bytes]:
    """Return a message for a receiver, in pieces to be concatenated: header and annotations, head, body.

    An annotated head keeps its header fields and annotations, unless the arguments have others of the same name. A time
    to live is rounded up to whole milliseconds, and capped at the longest that the header can hold. Empty delivery
    annotations are written; None leaves them out, if the head has none.
    """
    own_delivery: Mapping[Any, Any] = _NOTHING
    own: Mapping[Any, Any] = _NOTHING
    start = bare_at(head)
    if start:
        kept, own_delivery, own, _, _ = split(head[:start])
        head = head[start:]
        header = Header(kept.durable, kept.priority, header.ttl, kept.first_acquirer, header.delivery_count)
    before = (
        _encoded_header(header, UInt(header.delivery_count))
        + (
            _encoded_annotations(DELIVERY_ANNOTATIONS, own_delivery, delivery_annotations or _NOTHING)
            or (b"" if delivery_annotations is None else _NO_DELIVERY_ANNOTATIONS)
        )
        + _encoded_annotations(MESSAGE_ANNOTATIONS, own, annotations)
    )
    return [piece for piece in (before, head, body) if piece]


_NO_DELIVERY_ANNOTATIONS = _STARTS[DELIVERY_ANNOTATIONS] + map_of([])


def _encoded_header(header: Header, delivery_count: UInt | None) -> bytes:
    durable, priority, ttl, first_acquirer, _ = header
    milliseconds = None if ttl is None else UInt(min(-(-ttl // MILLISECOND), LONGEST_TTL))
    # All five fields, nulls too, because some clients index them.
    fields = (durable, None if priority is None else UByte(priority), milliseconds, first_acquirer, delivery_count)
    return _STARTS[HEADER] + encode(fields)


def _encoded_annotations(kind: int, own: Mapping[Any, Any], ours: Mapping[str, object]) -> bytes:
    pairs: list[bytes] = []
    for name, value in own.items():
        if name not in ours:
            # Not through the cache of names: the sender chooses this one.
            pairs += (encode(name), encode(value))
    for name, value in ours.items():
        pairs += (_annotation(name), encode(value))
    return _STARTS[kind] + map_of(pairs) if pairs else b""


@lru_cache(maxsize=256)
def _annotation(name: str) -> bytes:
    return encode(Symbol(name))


def _header(fields: list[Any], at: int) -> Header:
    if len(fields) > 5:
        raise DecodeError("header", at, f"{len(fields)} fields are more than 5")
    durable, priority, ttl, first_acquirer, delivery_count = fields + [None] * (5 - len(fields))
    for name, value, kind in (
        ("durable", durable, bool),
        ("priority", priority, UByte),
        ("ttl", ttl, UInt),
        ("first-acquirer", first_acquirer, bool),
        ("delivery-count", delivery_count, UInt),
    ):
        if value is not None and type(value) is not kind:
            raise DecodeError("header", at, f"{name} cannot be {value!r:.100}")
    return Header(
        durable,
        None if priority is None else int(priority),
        None if ttl is None else ttl * MILLISECOND,
        first_acquirer,
        int(delivery_count or 0),
    )
