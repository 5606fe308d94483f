"""Frames, and the protocol headers before them.

    "AMQP" id major minor revision        a header: id 3 is SASL, 0 is AMQP; the version is 1.0.0
    SIZE(4) DOFF(1) TYPE(1) CHANNEL(2)    a frame: its size, including these 8 bytes; the offset of its body in 4-byte
    … body                                words; 0 for AMQP, 1 for SASL; the channel (AMQP only)

A body is a performative; after a transfer its payload follows. An empty body is a heartbeat.
"""

from __future__ import annotations

import struct

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"

AMQP_FRAME, SASL_FRAME = 0, 1
HEAD_SIZE = 8
LEAST_FRAME_SIZE = 512
"""Every peer accepts frames of this size."""

HEARTBEAT = b"\x00\x00\x00\x08\x02\x00\x00\x00"

unpack_head = struct.Struct(">IBBH").unpack_from
_pack_head = struct.Struct(">IBBH").pack


def frame(channel: int, body: bytes, kind: int = AMQP_FRAME) -> bytes:
    """Return a complete frame."""
    return _pack_head(HEAD_SIZE + len(body), 2, kind, channel) + body


def is_header_so_far(data: bytes, header: bytes) -> bool:
    """Return whether the bytes are a prefix of the header, or start with it."""
    return data[: len(header)] == header[: len(data)]


def check_head(size: int, offset: int, kind: int, wanted: int, largest: int) -> str | None:
    """Return an error text if the head of a frame is invalid, or None."""
    if size < HEAD_SIZE:
        return f"A frame of {size} bytes is shorter than its own head of {HEAD_SIZE}."
    if size > largest:
        return f"A frame of {size} bytes is longer than the {largest} allowed."
    if not 2 <= offset <= size // 4:
        return f"A frame of {size} bytes cannot have its body at word {offset}."
    if kind != wanted:
        return f"A frame has the type {kind}, not {wanted}."
    return None
