"""The three frames that go with each message, written by hand: see `oncebus.amqp.fastread` for their fields.

All fields are written, nulls at the end too.
"""

from __future__ import annotations

import struct
from dataclasses import replace

from oncebus.amqp.composites import to_bytes
from oncebus.amqp.outcomes import Accepted, Modified, Outcome, Rejected, Released
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
"""Delivery-id, tag and format of all but the first frame of a delivery: they have been said."""
_ENDS = {
    (settled, more): (b"\x41" if settled else b"\x42") + (b"\x41" if more else b"\x42") + b"\x40" * 5
    for settled in (False, True)
    for more in (False, True)
}
_TRANSFER_SIZE = 8 + 6 + 7
"""Of a transfer's frame without its first four fields and the payload."""
_LARGEST_DISPOSITION = 34
"""Of a disposition's frame without its state."""


def encode_uint(number: int) -> bytes:
    """A uint in its shortest form."""
    return _UINTS[number] if number < 256 else _pack_uint(0x70, number)


def encode_state(outcome: Outcome, largest_frame: int) -> bytes:
    """The bytes of an outcome. One that the peer's frames cannot hold loses its details."""
    if type(outcome) is Accepted:
        return _ACCEPTED
    if type(outcome) is Released:
        return _RELEASED
    state = to_bytes(outcome)
    if len(state) > largest_frame - _LARGEST_DISPOSITION:
        if isinstance(outcome, Rejected) and outcome.error is not None:
            return to_bytes(Rejected(outcome.error.shortened()))
        if isinstance(outcome, Modified):
            return to_bytes(replace(outcome, message_annotations=None))
    return state


def delivery_fields(handle: bytes, delivery_id: int, tag: bytes, message_format: int) -> bytes:
    """The first four fields of a delivery's first transfer; `handle` is encoded."""
    if len(tag) > LONGEST_TAG:
        raise EncodeError(f"AMQP delivery-tag cannot hold {len(tag)} bytes: {LONGEST_TAG} are the most.")
    return handle + _pack_uint(0x70, delivery_id) + _TAGS[len(tag)] + tag + encode_uint(message_format)


def continued_fields(handle: bytes) -> bytes:
    """The first four fields of any further transfer."""
    return handle + _CONTINUED


def room(fields: bytes, largest_frame: int) -> int:
    """How much payload goes into a transfer with these first four fields."""
    return largest_frame - _TRANSFER_SIZE - len(fields)


def transfer_head(channel: int, fields: bytes, settled: bool, more: bool, payload_size: int) -> bytes:
    """A transfer's frame up to its payload."""
    size = len(fields)
    head = _pack_transfer(_TRANSFER_SIZE + size + payload_size, 2, 0, channel, 0x005314C0, size + 8, 11)
    return head + fields + _ENDS[settled, more]


def disposition_frame(channel: int, role: bool, first: int, last: int, state: bytes) -> bytes:
    """A frame that settles a range of deliveries; `state` is encoded."""
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
    """A frame of a session's flow; `link` is what `link_flow` gives, or nothing of a link."""
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
    """The fields of a flow from the handle on; `handle` is encoded."""
    return handle + _pack_link_flow(0x70, delivery_count, 0x70, credit, 0x40, 0x41 if drain else 0x42, 0x42, 0x40)
