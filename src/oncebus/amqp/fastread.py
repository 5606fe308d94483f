"""Fast readers for the three frame bodies that come with each message.

    transfer     00 53 14 <list>   handle, delivery-id, delivery-tag, message-format, settled, more,
                                   rcv-settle-mode, state, resume, aborted, batchable
    disposition  00 53 15 <list>   role, first, last, settled, state, batchable
    flow         00 53 13 <list>   next-incoming-id, incoming-window, next-outgoing-id, outgoing-window,
                                   handle, delivery-count, link-credit, available, drain, echo, properties

The readers know the encodings that clients use, and read each field once, at its expected position. Anything else
(another encoding, a state in a transfer, malformed bytes) goes to the general decoder, which returns the same fields or
raises `DecodeError`. So a reader here may give up at any point, but must never return a wrong field.
"""

from __future__ import annotations

import struct
from itertools import product

from oncebus.amqp.outcomes import Accepted, DeliveryState, Released
from oncebus.amqp.performatives import Disposition, Flow, Transfer, decode_performative

TRANSFER, DISPOSITION, FLOW = 0x14, 0x15, 0x13

TransferFields = tuple[int, int | None, bytes | None, int | None, bool | None, bool, bool, int, DeliveryState | None]
"""Handle, delivery-id, delivery-tag, message-format, settled, more, aborted, where the payload begins, state."""

DispositionFields = tuple[bool, int, int, bool, DeliveryState | None]
"""Role, first, last, settled, state."""

FlowFields = tuple[int | None, int, int, int, int | None, int | None, int | None, bool, bool]
"""Next-incoming-id, incoming-window, next-outgoing-id, outgoing-window, handle, delivery-count, link-credit, drain,
echo."""

_uint = struct.Struct(">I").unpack_from
_two = struct.Struct(">II").unpack_from

# Fields that take one byte each (null, true, false): those after `more` in a transfer and after `available` in a flow.
_NULL, _TRUE, _FALSE = b"\x40", b"\x41", b"\x42"
_TRANSFER_ENDS = frozenset(
    b"".join(fields)
    for count in range(1, 6)
    for fields in product(*[(_NULL,), (_NULL,), (_NULL, _FALSE), (_NULL, _FALSE), (_NULL, _TRUE, _FALSE)][:count])
)
_FLOW_ENDS = {
    b"".join(fields): (fields[:1] == (_TRUE,), fields[1:2] == (_TRUE,))
    for count in range(4)
    for fields in product(*[(_NULL, _TRUE, _FALSE), (_NULL, _TRUE, _FALSE), (_NULL,)][:count])
}
_STATES: dict[bytes, tuple[DeliveryState | None, int]] = {
    state + batchable: (outcome, 1 + len(batchable))
    for state, outcome in [
        (_NULL, None),
        *[
            (bytes((0, 0x53, code)) + fields, made)
            for code, made in ((0x24, Accepted()), (0x26, Released()))
            for fields in (b"\x45", b"\xc0\x01\x00", b"\xd0\x00\x00\x00\x04\x00\x00\x00\x00")
        ],
    ]
    for batchable in (b"", _NULL, _TRUE, _FALSE)
}
"""Maps the bytes after `settled` to the outcome that they encode and the number of fields."""


def read_transfer(data: bytes, at: int, end: int) -> TransferFields:
    """Return the fields of the transfer at `at`, whose descriptor has its shortest form."""
    begin = at
    try:
        code = data[at + 3]
        if code == 0xC0:
            stop = at + 5 + data[at + 4]
            count = data[at + 5]
            at += 6
        elif code == 0xD0:
            size, count = _two(data, at + 4)
            stop = at + 8 + size
            at += 12
        else:
            return _any_transfer(data, begin, end)
        code = data[at]
        if code == 0x52:
            handle = data[at + 1]
            at += 2
        elif code == 0x43:
            handle = 0
            at += 1
        elif code == 0x70:
            handle = _uint(data, at + 1)[0]
            at += 5
        else:
            return _any_transfer(data, begin, end)
        delivery_id: int | None = None
        tag: bytes | None = None
        message_format: int | None = None
        settled: bool | None = None
        more = False
        if count > 1:
            code = data[at]
            if code == 0x70:
                delivery_id = _uint(data, at + 1)[0]
                at += 5
            elif code == 0x52:
                delivery_id = data[at + 1]
                at += 2
            elif code == 0x43:
                delivery_id = 0
                at += 1
            elif code == 0x40:
                at += 1
            else:
                return _any_transfer(data, begin, end)
        if count > 2:
            code = data[at]
            if code == 0xA0:
                tag_at = at + 2
                at = tag_at + data[at + 1]
                tag = data[tag_at:at]
            elif code == 0x40:
                at += 1
            else:
                return _any_transfer(data, begin, end)
        if count > 3:
            code = data[at]
            if code == 0x43:
                message_format = 0
                at += 1
            elif code == 0x70:
                message_format = _uint(data, at + 1)[0]
                at += 5
            elif code == 0x52:
                message_format = data[at + 1]
                at += 2
            elif code == 0x40:
                at += 1
            else:
                return _any_transfer(data, begin, end)
        if count > 4:
            code = data[at]
            at += 1
            if code == 0x42:
                settled = False
            elif code == 0x41:
                settled = True
            elif code != 0x40:
                return _any_transfer(data, begin, end)
        if count > 5:
            code = data[at]
            at += 1
            if code == 0x41:
                more = True
            elif code not in (0x42, 0x40):
                return _any_transfer(data, begin, end)
            # Each remaining field must take one byte and have a known value.
            if at != stop:
                if stop - at != count - 6 or data[at:stop] not in _TRANSFER_ENDS:
                    return _any_transfer(data, begin, end)
                at = stop
            elif count != 6:
                return _any_transfer(data, begin, end)
        if at == stop <= end and count > 0:
            return handle, delivery_id, tag, message_format, settled, more, False, at, None
    except (IndexError, struct.error):
        pass
    return _any_transfer(data, begin, end)


def _any_transfer(data: bytes, at: int, end: int) -> TransferFields:
    performative, payload_at = decode_performative(data, at, end)
    assert isinstance(performative, Transfer)
    return transfer_fields(performative, payload_at)


def transfer_fields(transfer: Transfer, payload_at: int) -> TransferFields:
    """Return the same fields from a transfer that the general decoder has read."""
    return (
        transfer.handle,
        transfer.delivery_id,
        transfer.delivery_tag,
        transfer.message_format,
        transfer.settled,
        transfer.more,
        transfer.aborted,
        payload_at,
        transfer.state,
    )


def read_disposition(data: bytes, at: int, end: int) -> DispositionFields:
    """Return the fields of the disposition at `at`, whose descriptor has its shortest form."""
    begin = at
    try:
        code = data[at + 3]
        if code == 0xC0:
            stop = at + 5 + data[at + 4]
            count = data[at + 5]
            at += 6
        elif code == 0xD0:
            size, count = _two(data, at + 4)
            stop = at + 8 + size
            at += 12
        else:
            return _any_disposition(data, begin, end)
        role = data[at]
        at += 1
        code = data[at]
        if code == 0x70:
            first = _uint(data, at + 1)[0]
            at += 5
        elif code == 0x52:
            first = data[at + 1]
            at += 2
        elif code == 0x43:
            first = 0
            at += 1
        else:
            return _any_disposition(data, begin, end)
        last = first
        if count > 2:
            code = data[at]
            if code == 0x70:
                last = _uint(data, at + 1)[0]
                at += 5
            elif code == 0x52:
                last = data[at + 1]
                at += 2
            elif code == 0x43:
                last = 0
                at += 1
            elif code == 0x40:
                at += 1
            else:
                return _any_disposition(data, begin, end)
        if count > 4 and (role == 0x41 or role == 0x42) and stop <= end:
            settled = data[at]
            found = _STATES.get(data[at + 1 : stop])
            if found is not None and found[1] == count - 4 and 0x40 <= settled <= 0x42:
                return role == 0x41, first, last, settled == 0x41, found[0]
    except (IndexError, struct.error):
        pass
    return _any_disposition(data, begin, end)


def _any_disposition(data: bytes, at: int, end: int) -> DispositionFields:
    performative, _ = decode_performative(data, at, end)
    assert isinstance(performative, Disposition)
    return disposition_fields(performative)


def disposition_fields(disposition: Disposition) -> DispositionFields:
    """Return the same fields from a disposition that the general decoder has read."""
    last = disposition.first if disposition.last is None else disposition.last
    return disposition.role, disposition.first, last, disposition.settled, disposition.state


def read_flow(data: bytes, at: int, end: int) -> FlowFields:
    """Return the fields of the flow at `at`, whose descriptor has its shortest form."""
    begin = at
    try:
        code = data[at + 3]
        if code == 0xC0:
            stop = at + 5 + data[at + 4]
            count = data[at + 5]
            at += 6
        elif code == 0xD0:
            size, count = _two(data, at + 4)
            stop = at + 8 + size
            at += 12
        else:
            return _any_flow(data, begin, end)
        if 4 <= count <= 11 and stop <= end:
            numbers: list[int | None] = []
            for _ in range(8 if count > 8 else count):
                code = data[at]
                if code == 0x70:
                    numbers.append(_uint(data, at + 1)[0])
                    at += 5
                elif code == 0x52:
                    numbers.append(data[at + 1])
                    at += 2
                elif code == 0x43:
                    numbers.append(0)
                    at += 1
                elif code == 0x40:
                    numbers.append(None)
                    at += 1
                else:
                    return _any_flow(data, begin, end)
            if at <= stop:
                ending = _FLOW_ENDS.get(data[at:stop])
                if ending is not None and stop - at == max(count - 8, 0):
                    next_in, window_in, next_out, window_out, handle, delivery_count, credit, _ = numbers + [None] * (
                        8 - len(numbers)
                    )
                    if window_in is not None and next_out is not None and window_out is not None:
                        return next_in, window_in, next_out, window_out, handle, delivery_count, credit, *ending
    except (IndexError, struct.error):
        pass
    return _any_flow(data, begin, end)


def _any_flow(data: bytes, at: int, end: int) -> FlowFields:
    performative, _ = decode_performative(data, at, end)
    assert isinstance(performative, Flow)
    return flow_fields(performative)


def flow_fields(flow: Flow) -> FlowFields:
    """Return the same fields from a flow that the general decoder has read."""
    return (
        flow.next_incoming_id,
        flow.incoming_window,
        flow.next_outgoing_id,
        flow.outgoing_window,
        flow.handle,
        flow.delivery_count,
        flow.link_credit,
        flow.drain,
        flow.echo,
    )
