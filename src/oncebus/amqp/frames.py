"""Frames, and the headers before them.

    "AMQP" id major minor revision        a header: id 3 is SASL, 0 is AMQP; the version is 1.0.0
    SIZE(4) DOFF(1) TYPE(1) CHANNEL(2)    a frame: its size with these 8 bytes; where its body begins, in words of four;
    … body                                0 AMQP, 1 SASL; the channel, of AMQP alone

A body is a performative, behind a transfer its payload; an empty one only shows that the peer is alive.
"""

from __future__ import annotations

import struct

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"

AMQP_FRAME, SASL_FRAME = 0, 1
HEAD_SIZE = 8
LEAST_FRAME_SIZE = 512
"""What every peer takes."""

HEARTBEAT = b"\x00\x00\x00\x08\x02\x00\x00\x00"

unpack_head = struct.Struct(">IBBH").unpack_from
_pack_head = struct.Struct(">IBBH").pack


def frame(channel: int, body: bytes, kind: int = AMQP_FRAME) -> bytes:
    """A whole frame."""
    return _pack_head(HEAD_SIZE + len(body), 2, kind, channel) + body


def is_header_so_far(data: bytes, header: bytes) -> bool:
    """Whether bytes are the beginning of a header, or begin with it."""
    return data[: len(header)] == header[: len(data)]


def check_head(size: int, offset: int, kind: int, wanted: int, largest: int) -> str | None:
    """What is wrong with the head of a frame, if anything."""
    if size < HEAD_SIZE:
        return f"A frame of {size} bytes is shorter than its own head of {HEAD_SIZE}."
    if size > largest:
        return f"A frame of {size} bytes is longer than the {largest} allowed."
    if not 2 <= offset <= size // 4:
        return f"A frame of {size} bytes cannot have its body at word {offset}."
    if kind != wanted:
        return f"A frame has the type {kind}, not {wanted}."
    return None
