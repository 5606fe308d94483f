"""The head of a message: the bytes of its properties and application-properties sections. Either may be missing.

Before them, an annotated head has the sections of its sender's header and annotations (see `message.annotate`).

The properties are a list: message-id, user-id, to, subject, reply-to, correlation-id, content-type, content-encoding,
absolute-expiry-time, creation-time, group-id, group-sequence, reply-to-group-id. It may be shorter, or have nulls.
Service Bus calls the subject Label and the group session.

A change to a head copies the bytes of all other fields and entries unchanged.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from oncebus.amqp.decoding import decode, open_list, open_map
from oncebus.amqp.encoding import encode, list_of, map_of
from oncebus.amqp.sections import APPLICATION_PROPERTIES, PROPERTIES, section
from oncebus.amqp.sizes import skip
from oncebus.amqp.types import (
    Byte,
    Char,
    DecodeError,
    Described,
    EncodeError,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

Id = str | bytes | uuid.UUID | ULong

_PROPERTIES = b"\x00\x53\x73"
_APPLICATION_PROPERTIES = b"\x00\x53\x74"
_BARE = (_PROPERTIES, _APPLICATION_PROPERTIES)
_GROUP_ID = 10


class Identity(NamedTuple):
    """The ids that identify a message and its session."""

    message_id: Id | None
    group_id: str | None


@dataclass(frozen=True, slots=True)
class Properties:
    """The fields of the properties section. None means null or missing."""

    message_id: Id | None = None
    user_id: bytes | None = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: Id | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_time: Timestamp | None = None
    creation_time: Timestamp | None = None
    group_id: str | None = None
    group_sequence: UInt | None = None
    reply_to_group_id: str | None = None


_NAMES = tuple(field.name for field in dataclasses.fields(Properties))
_IDS = frozenset({str, bytes, uuid.UUID, ULong})
_TEXTS = frozenset({str, Symbol})
_KINDS: tuple[frozenset[type], ...] = tuple(
    _IDS
    if name in ("message_id", "correlation_id")
    else frozenset({bytes})
    if name == "user_id"
    else frozenset({Timestamp})
    if name.endswith("_time")
    else frozenset({UInt})
    if name == "group_sequence"
    else _TEXTS
    for name in _NAMES
)
_NULL = b"\x40"
_NULLS = _NULL * _GROUP_ID
_NOBODY = Identity(None, None)


def identity(head: bytes) -> Identity:
    """Return the message-id and the group-id (the session) without decoding the other fields."""
    if not head:
        return _NOBODY
    size = len(head)
    # The usual case, at a third of the cost: a short list that starts with a short text and has no group.
    if size > 7 and head[3] == 0xC0 and head[6] == 0xA1 and head.startswith(_PROPERTIES):
        end, stop, count = 5 + head[4], 8 + head[7], head[5]
        has_no_group = 0 < count <= _GROUP_ID or (count > 0 and head.startswith(_NULLS, stop, end))
        if has_no_group and count < head[4] and stop <= end <= size:
            try:
                return Identity(str(head[8:stop], "utf-8"), None)
            except UnicodeDecodeError:
                pass
    at = bare_at(head)
    if at == size:
        return _NOBODY
    kind, start, stop = section(head, at, size)
    if kind != PROPERTIES:
        return _NOBODY
    at, end, count = open_list(head, start, stop, "properties")
    if count == 0:
        return _NOBODY
    message_id, at = decode(head, at, end)
    if message_id is not None and type(message_id) not in _IDS:
        raise _bad_field(0, message_id, start)
    if count <= _GROUP_ID:
        return Identity(message_id, None)
    for _ in range(_GROUP_ID - 1):
        at = at + 1 if at < end and head[at] == 0x40 else skip(head, at, end)
    group_id, at = decode(head, at, end)
    if group_id is not None and type(group_id) not in _TEXTS:
        raise _bad_field(_GROUP_ID, group_id, start)
    return Identity(message_id, group_id)


def bare_at(head: bytes) -> int:
    """Return the offset in a head where the properties and application properties begin: 0 unless it is annotated."""
    if head.startswith(_BARE) or not head:
        return 0
    at, end = 0, len(head)
    while at < end:
        kind, _, stop = section(head, at, end)
        if kind >= PROPERTIES:
            break
        at = stop
    return at


def message_id(head: bytes) -> Id | None:
    """Return the message-id, or None."""
    return identity(head).message_id


def group_id(head: bytes) -> str | None:
    """Return the group-id (the session), or None."""
    return identity(head).group_id


def properties(head: bytes) -> Properties:
    """Return all fields of the properties section. Raises `DecodeError` if a field has the wrong type."""
    _, start, stop, _ = _locate(head)
    if start < 0:
        return Properties()
    fields, _ = decode(head, start, stop)
    _check_count(len(fields), start)
    for index, value in enumerate(fields):
        if value is not None and type(value) not in _KINDS[index]:
            raise _bad_field(index, value, start)
    return Properties(*fields)


def application_properties(head: bytes) -> dict[str, Any]:
    """Return the application properties by name, each value in its AMQP type."""
    _, _, _, start = _locate(head)
    if start < 0:
        return {}
    pairs, _ = decode(head, start)
    for key in pairs:
        _check_key(key, start)
    return pairs  # type: ignore[no-any-return]


def id_text(value: Id) -> str | bytes:
    """Return an id in the form in which ids are compared.

    A uuid equals its canonical text, a ulong its decimal text, a binary only the same bytes.
    """
    return bytes(value) if isinstance(value, bytes) else str(value)


def with_properties(head: bytes, changes: Mapping[str, object]) -> bytes:
    """Return the head with some fields changed. Names are those of `Properties`; the value None removes a field."""
    if not changes:
        return head
    bare, start, stop, _ = _locate(head)
    fields: list[bytes] = []
    if start >= 0:
        at, end, count = open_list(head, start, stop, "properties")
        _check_count(count, start)
        fields = _pieces(head, at, end, count, "properties")
    for name, value in changes.items():
        if name not in _NAMES:
            raise EncodeError(f"Properties have no field {name!r}.")
        index = _NAMES.index(name)
        fields += [_NULL] * (index + 1 - len(fields))
        fields[index] = encode(_as_field(name, value))
    return head[:bare] + _PROPERTIES + list_of(fields) + head[stop:]


def with_application_properties(head: bytes, changes: Mapping[str, object], removed: Iterable[str] = ()) -> bytes:
    """Return the head with some application properties set and others removed. Names are compared exactly.

    A changed property keeps its position. If no application property is left, the section is left out.
    """
    removed = set(removed)
    if not changes and not removed:
        return head
    _, _, stop, start = _locate(head)
    entries: dict[str, tuple[bytes, bytes]] = {}
    if start >= 0:
        at, end, count = open_map(head, start, len(head), "application-properties")
        pieces = _pieces(head, at, end, count, "application-properties")
        for key, value in zip(pieces[::2], pieces[1::2], strict=False):
            name, _ = decode(key)
            _check_key(name, start)
            entries[name] = key, value
        if 2 * len(entries) != count:
            raise DecodeError("application-properties", start, "two of its names are equal, or a value is missing")
    for name in removed:
        entries.pop(name, None)
    for name, changed in changes.items():
        key, _ = entries.get(name) or (encode(str(name)), b"")
        entries[name] = key, encode(changed)
    if not entries:
        return head[:stop]
    return head[:stop] + _APPLICATION_PROPERTIES + map_of([piece for entry in entries.values() for piece in entry])


def encode_head(properties: Properties | None, application_properties: Mapping[str, object] | None) -> bytes:
    """Return a head with these properties. Trailing nulls and empty sections are left out."""
    head = b""
    if properties is not None:
        values = [(name, getattr(properties, name)) for name in _NAMES]
        while values and values[-1][1] is None:
            values.pop()
        if values:
            head = _PROPERTIES + list_of([encode(_as_field(name, value)) for name, value in values])
    return with_application_properties(head, application_properties or {})


_SYSTEM = {
    "MessageId": "message_id",
    "CorrelationId": "correlation_id",
    "To": "to",
    "ReplyTo": "reply_to",
    "Label": "subject",
    "SessionId": "group_id",
    "ReplyToSessionId": "reply_to_group_id",
    "ContentType": "content_type",
}


def filter_properties(head: bytes) -> tuple[dict[str, object], dict[str, object]]:
    """Return the system properties and the application properties of a message as plain Python values, for filters.

    System values are text, or bytes for an id that was sent as a binary. In application properties, numbers become int
    and float, symbols and chars become str, and timestamps stay `Timestamp`. .NET's uri and date are described types
    and become str and `Timestamp`. Values without a plain equivalent (decimals, lists, maps) stay as decoded.
    """
    fields = properties(head)
    system: dict[str, object] = {}
    for name, field in _SYSTEM.items():
        value = getattr(fields, field)
        if value is not None:
            system[name] = id_text(value)
    user: dict[str, object] = {str(name): _plain(value) for name, value in application_properties(head).items()}
    return system, user


_INTEGERS = frozenset({UByte, UShort, UInt, ULong, Byte, Short, Int})
# Described types of .NET.
URI = "com.microsoft:uri"
DATE = "com.microsoft:datetime-offset"
TICKS_AT_1970 = 621_355_968_000_000_000
"""The ticks of .NET, tenths of microseconds since the year 1, at the start of 1970."""
_TICKS_PER_MILLISECOND = 10_000


def _plain(value: Any) -> object:
    kind = type(value)
    if kind in _INTEGERS:
        return int(value)
    if kind is Symbol or kind is Char:
        return str(value)
    if kind is Float:
        return float(value)
    if kind is Described:
        if value.descriptor == URI and isinstance(value.value, str):
            return str(value.value)
        if value.descriptor == DATE and type(value.value) is int:
            return Timestamp((value.value - TICKS_AT_1970) // _TICKS_PER_MILLISECOND)
    return value


def _locate(head: bytes) -> tuple[int, int, int, int]:
    """Return four offsets: where the bare head begins, and where the sections in it are.

    The order is: the bare head, the value of the properties, the end of the properties, the value of the application
    properties. -1 stands for the value of a missing section; missing properties end where the bare head begins.
    """
    bare, end = bare_at(head), len(head)
    if bare == end:
        return bare, -1, bare, -1
    kind, value, stop = section(head, bare, end)
    if kind == PROPERTIES:
        if stop == end:
            return bare, value, stop, -1
        kind, more, last = section(head, stop, end)
        if kind == APPLICATION_PROPERTIES and last == end:
            return bare, value, stop, more
    elif kind == APPLICATION_PROPERTIES and stop == end:
        return bare, -1, bare, value
    raise DecodeError("head", 0, "it holds other sections than properties and application-properties")


def _pieces(head: bytes, at: int, end: int, count: int, name: str) -> list[bytes]:
    pieces = []
    for _ in range(count):
        stop = skip(head, at, end)
        pieces.append(head[at:stop])
        at = stop
    if at != end:
        raise DecodeError(name, at, f"{end - at} bytes are left over after its {count} elements")
    return pieces


def _check_count(count: int, at: int) -> None:
    if count > len(_NAMES):
        raise DecodeError("properties", at, f"{count} fields are more than {len(_NAMES)}")


def _bad_field(index: int, value: object, at: int) -> DecodeError:
    return DecodeError("properties", at, f"{_NAMES[index].replace('_', '-')} cannot be {value!r:.100}")


def _check_key(key: object, at: int) -> None:
    if type(key) not in _TEXTS:
        raise DecodeError("application-properties", at, f"name {key!r:.100} is not a string")


def _as_field(name: str, value: Any) -> object:
    """Return the value in the field's type. Raises `EncodeError` if it does not fit."""
    if value is None:
        return None
    kinds = _KINDS[_NAMES.index(name)]
    made: object = value
    if isinstance(value, str) and str in kinds:
        made = Symbol(value) if name in ("content_type", "content_encoding") else str(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        # A field has at most one type of number.
        made = next((kind(value) for kind in kinds & {ULong, UInt, Timestamp}), value)
    if type(made) not in kinds:
        raise EncodeError(f"Properties field {name} cannot hold {value!r}.")
    return made
