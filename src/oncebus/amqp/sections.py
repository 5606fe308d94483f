"""The sections of a message. Each is a described type; the descriptor is its kind.

    0x70 header                 list   durable, priority, ttl, first-acquirer, delivery-count
    0x71 delivery-annotations   map
    0x72 message-annotations    map
    0x73 properties             list   see `oncebus.amqp.head`
    0x74 application-properties map
    0x75 data                   binary, once or more       ┐
    0x76 amqp-sequence          list, once or more         │ one of these kinds
    0x77 amqp-value             anything, once             ┘
    0x78 footer                 map

We write them in this order, which is the standard's. We accept any order, because some clients write the footer before
the body, or delivery annotations at the end. All but the body are optional; here the body is optional too, because some
clients send empty messages without one. A descriptor is nearly always the number in its shortest form (00 53 70). The
long form and the symbol (amqp:header:list) mean the same.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator

from oncebus.amqp.decoding import decode
from oncebus.amqp.limits import MOST_SECTIONS
from oncebus.amqp.sizes import Buffer, skip
from oncebus.amqp.types import DecodeError, Symbol, ULong

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = range(0x70, 0x75)
DATA, AMQP_SEQUENCE, AMQP_VALUE, FOOTER = range(0x75, 0x79)

_NAMES = {
    HEADER: "header",
    DELIVERY_ANNOTATIONS: "delivery-annotations",
    MESSAGE_ANNOTATIONS: "message-annotations",
    PROPERTIES: "properties",
    APPLICATION_PROPERTIES: "application-properties",
    DATA: "data",
    AMQP_SEQUENCE: "amqp-sequence",
    AMQP_VALUE: "amqp-value",
    FOOTER: "footer",
}
_LISTS, _MAPS, _BINARIES = frozenset({0x45, 0xC0, 0xD0}), frozenset({0xC1, 0xD1}), frozenset({0xA0, 0xB0})
_SIZED_BY_A_BYTE = frozenset({0xA0, 0xC0, 0xC1})
_TYPES = {
    HEADER: ("list", _LISTS),
    DELIVERY_ANNOTATIONS: ("map", _MAPS),
    MESSAGE_ANNOTATIONS: ("map", _MAPS),
    PROPERTIES: ("list", _LISTS),
    APPLICATION_PROPERTIES: ("map", _MAPS),
    DATA: ("binary", _BINARIES),
    AMQP_SEQUENCE: ("list", _LISTS),
    AMQP_VALUE: ("value", frozenset(range(256))),
    FOOTER: ("map", _MAPS),
}
_BODIES = frozenset({DATA, AMQP_SEQUENCE, AMQP_VALUE})
_KINDS: dict[object, int] = {
    **{kind: kind for kind in _NAMES},
    **{f"amqp:{name}:{'*' if kind == AMQP_VALUE else _TYPES[kind][0]}": kind for kind, name in _NAMES.items()},
}


def section(data: Buffer, at: int, end: int) -> tuple[int, int, int]:
    """Return the kind of the section at `at`, where its value begins and where it ends."""
    if at + 3 < end and data[at] == 0 and data[at + 1] == 0x53:
        kind, value = data[at + 2], at + 3
        if kind not in _TYPES:
            raise DecodeError("section", at, f"descriptor 0x{kind:02x} is unknown")
    else:
        kind, value = _kind_at(data, at, end)
    wanted, codes = _TYPES[kind]
    code = data[value]
    if code not in codes:
        raise DecodeError(_NAMES[kind], value, f"format code 0x{code:02x} does not encode a {wanted}")
    # The usual case, without the cost of a call.
    if code in _SIZED_BY_A_BYTE and value + 1 < end and (stop := value + 2 + data[value + 1]) <= end:
        return kind, value, stop
    return kind, value, skip(data, value, end)


def sections(data: Buffer) -> Iterator[tuple[int, int, int, int]]:
    """Yield each section of a message in order: its kind, where it begins, where its value begins, where it ends.

    Raises `DecodeError` for sections that are repeated, unknown or too many. Values are not checked.
    """
    at, end, last = 0, len(data), 0
    left = MOST_SECTIONS
    seen: set[int] | None = None
    while at < end:
        if not left:
            raise DecodeError("message", at, f"it has more than {MOST_SECTIONS} sections")
        left -= 1
        kind, value, stop = section(data, at, end)
        # Which kinds came before matters only if they do not come in the usual order.
        if (kind <= last or last >= DATA) and not (kind == last and DATA <= kind <= AMQP_SEQUENCE):
            if seen is None:
                seen = {before for before, *_ in sections(data[:at])}
            _check_new(kind, seen, at)
        if seen is not None:
            seen.add(kind)
        yield kind, at, value, stop
        at, last = stop, kind


def _check_new(kind: int, seen: set[int], at: int) -> None:
    """Raise `DecodeError` if a section of this kind cannot be in the same message as those before it."""
    if kind in seen and not DATA <= kind <= AMQP_SEQUENCE:
        raise DecodeError(_NAMES[kind], at, "the section comes twice")
    if kind in _BODIES:
        for other in _BODIES & seen - {kind}:
            raise DecodeError(_NAMES[kind], at, f"the body already has a section of {_NAMES[other]}")


def in_order(data: Buffer) -> bytes:
    """Return the message with its sections in the order of the standard."""
    found = sorted(sections(data), key=operator.itemgetter(0))
    return b"".join(data[at:stop] for _, at, _, stop in found)


def _kind_at(data: Buffer, at: int, end: int) -> tuple[int, int]:
    if data[at] != 0:
        raise DecodeError("section", at, f"0x{data[at]:02x} does not begin a section")
    descriptor, value = decode(data, at + 1, end)
    kind = _KINDS.get(descriptor) if type(descriptor) in (ULong, Symbol) else None
    if kind is None:
        raise DecodeError("section", at, f"descriptor {descriptor!r:.100} is unknown")
    if value >= end:
        raise DecodeError(_NAMES[kind], value, "no value follows the descriptor")
    return kind, value
