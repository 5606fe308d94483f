"""Fast writers for the three frames that go with each message. `oncebus.amqp.fastread` lists their fields.

All fields are written, including trailing nulls, because some clients access them by index.
"""

from __future__ import annotations

import struct
from dataclasses import replace

from oncebus.amqp.composites import to_bytes
from oncebus.amqp.outcomes import Accepted, AmqpError, DeliveryState, Modified, Rejected, Released, TransactionalState
from oncebus.amqp.types import EncodeError

LONGEST_TAG = 32

_ACCEPTED, _RELEASED = to_bytes(Accepted()), to_bytes(Released())
_TAGS = [bytes((0xA0, size)) for size in range(LONGEST_TAG + 1)]
_UINTS = [b"\x43", *[bytes((0x52, number)) for number in range(1, 256)]]
_pack_uint = struct.Struct(">BI").pack
_pack_transfer = struct.Struct(">IBBHIBB").pack
_pack_small_disposition = struct.Struct(">IBBHIBBBBIBIB").pack
_pack_large_disposition = struct.Struct(">IBBHIIIBBIBIB").pack
_pack_flow = struct.Struct(">IBBHIBBBIBIBIBI").pack
_pack_link_flow = struct.Struct(">BIBIBBBB").pack

_CONTINUED = b"\x40\x40\x40"
"""Delivery-id, tag and format in every later frame of a delivery: null, because only the first frame has them."""
_ENDS = {
    (settled, more): (b"\x41" if settled else b"\x42") + (b"\x41" if more else b"\x42") + b"\x40" * 5
    for settled in (False, True)
    for more in (False, True)
}
_TRANSFER_SIZE = 8 + 6 + 7
"""The size of a transfer's frame without its first four fields and the payload."""
_LARGEST_DISPOSITION = 34
"""The largest size of a disposition's frame without its state."""


def encode_uint(number: int) -> bytes:
    """Return the shortest encoding of a uint."""
    return _UINTS[number] if number < 256 else _pack_uint(0x70, number)


def encode_state(outcome: DeliveryState, largest_frame: int) -> bytes:
    """Return the encoding of an outcome. If it does not fit the peer's frame size, its details are left out."""
    if type(outcome) is Accepted:
        return _ACCEPTED
    if type(outcome) is Released:
        return _RELEASED
    state = to_bytes(outcome)
    return to_bytes(_shorten(outcome)) if len(state) > largest_frame - _LARGEST_DISPOSITION else state


def _shorten(outcome: DeliveryState) -> DeliveryState:
    match outcome:
        case Rejected(AmqpError() as error):
            return Rejected(error.shorten())
        case Modified():
            return replace(outcome, message_annotations=None)
        case TransactionalState(txn_id, Rejected(AmqpError() as error)):
            return TransactionalState(txn_id, Rejected(error.shorten()))
        case TransactionalState(txn_id, Modified() as modified):
            return TransactionalState(txn_id, replace(modified, message_annotations=None))
    return outcome


def delivery_fields(handle: bytes, delivery_id: int, tag: bytes, message_format: int) -> bytes:
    """Return the first four fields of a delivery's first transfer. `handle` is already encoded.

    Raises `EncodeError` if the tag is too long.
    """
    if len(tag) > LONGEST_TAG:
        raise EncodeError(f"AMQP delivery-tag cannot hold {len(tag)} bytes: the maximum is {LONGEST_TAG}.")
    return handle + _pack_uint(0x70, delivery_id) + _TAGS[len(tag)] + tag + encode_uint(message_format)


def continued_fields(handle: bytes) -> bytes:
    """Return the first four fields of a delivery's later transfers. `handle` is already encoded."""
    return handle + _CONTINUED


def room(fields: bytes, largest_frame: int) -> int:
    """Return how many bytes of payload fit in a transfer with these first four fields."""
    return largest_frame - _TRANSFER_SIZE - len(fields)


def transfer_head(channel: int, fields: bytes, settled: bool, more: bool, payload_size: int) -> bytes:
    """Return a transfer's frame up to its payload."""
    size = len(fields)
    head = _pack_transfer(_TRANSFER_SIZE + size + payload_size, 2, 0, channel, 0x005314C0, size + 8, 11)
    return head + fields + _ENDS[settled, more]


def disposition_frame(channel: int, role: bool, first: int, last: int, state: bytes) -> bytes:
    """Return a frame that settles a range of deliveries. `state` is already encoded."""
    size = len(state)
    if size < 240:
        head = _pack_small_disposition(
            27 + size, 2, 0, channel, 0x005315C0, size + 14, 6, 0x41 if role else 0x42, 0x70, first, 0x70, last, 0x41
        )
    else:
        head = _pack_large_disposition(
            33 + size, 2, 0, channel, 0x005315D0, size + 17, 6, 0x41 if role else 0x42, 0x70, first, 0x70, last, 0x41
        )
    return head + state + b"\x40"


def flow_frame(
    channel: int,
    next_incoming_id: int,
    incoming_window: int,
    next_outgoing_id: int,
    outgoing_window: int,
    link: bytes = b"\x40" * 7,
) -> bytes:
    """Return a flow frame of a session. `link` is the result of `link_flow`; the default is for no link."""
    size = len(link)
    head = _pack_flow(
        34 + size,
        2,
        0,
        channel,
        0x005313C0,
        size + 21,
        11,
        0x70,
        next_incoming_id,
        0x70,
        incoming_window,
        0x70,
        next_outgoing_id,
        0x70,
        outgoing_window,
    )
    return head + link


def link_flow(handle: bytes, delivery_count: int, credit: int, drain: bool = False) -> bytes:
    """Return the fields of a flow from the handle on. `handle` is already encoded."""
    return handle + _pack_link_flow(0x70, delivery_count, 0x70, credit, 0x40, 0x41 if drain else 0x42, 0x42, 0x40)
