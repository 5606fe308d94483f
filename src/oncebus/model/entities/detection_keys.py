"""Detection keys: what duplicate detection takes as the id of a message. An extension beyond Azure.

    None, written messageId   the MessageId, as in Azure
    property:NAME             the application property NAME
    body                      the content of the body

A message without a value there has no counted id, and is never a duplicate: an empty or missing property, or an empty
body.

A property counts by its text: a number by its decimal text, a uuid by its canonical text, a boolean as `true` or
`false`, a timestamp by its milliseconds since 1970. A binary equals only the same bytes. Other types count by their
AMQP encoding. So the width that a client chooses for a number does not matter.

A body of data counts by its bytes, however they are split into sections. A body of AMQP values or sequences counts by
its encoded bytes, and never equals one of data. Headers, properties, annotations and footers do not count.
"""

from __future__ import annotations

import hashlib
import uuid
from typing import Any, NamedTuple

from oncebus import amqp
from oncebus.amqp.encoding import encode
from oncebus.amqp.sections import AMQP_VALUE, DATA, FOOTER, sections
from oncebus.model.entities.errors import BadRequest
from oncebus.model.filters.properties import LONGEST_ID
from oncebus.values.errors import clip
from oncebus.values.sizes import utf16_length

MESSAGE_ID = "messageId"
BODY = "body"
PROPERTY = "property:"

_DIGEST_BYTES = 32
_SHORT_BINARY = 0xA0
_NULL = 0x40
# The kinds of `oncebus.model.messages.key_of` are b"t" and b"b".
_TEXT, _BINARY, _ENCODED, _DATA, _VALUE, _SEQUENCE = b"T", b"B", b"E", b"D", b"V", b"S"


class CountedId(NamedTuple):
    """The id by which detection compares a message. Ids of different kinds are never equal."""

    kind: bytes
    value: bytes

    @property
    def text(self) -> str:
        """Return it as people read it: a text as it is, at most 128 characters of it; anything else in hex."""
        text = self.value.decode() if self.kind == _TEXT else self.value.hex()
        return text if len(text) <= LONGEST_ID else f"{text[: LONGEST_ID - 1]}…"


def check_detection_key(key: str | None, detects: bool) -> None:
    """Raise `BadRequest` unless an entity may have this detection key. `detects` says whether it detects duplicates."""
    if key is None:
        return
    if not detects:
        raise _bad(f"The detection key {clip(key)} needs duplicate detection, which is off.")
    name = key.removeprefix(PROPERTY)
    if key != BODY and (name == key or not name or not name.isprintable()):
        raise _bad(f"The detection key {clip(key)} is not one of {MESSAGE_ID}, {BODY}, {PROPERTY}NAME.")
    if utf16_length(name) > LONGEST_ID:
        raise _bad(f"The property in the detection key {clip(key)} exceeds {LONGEST_ID} characters.")


def property_of(key: str) -> str | None:
    """Return the name of the application property in a detection key; None if it is the body."""
    return key.removeprefix(PROPERTY) if key.startswith(PROPERTY) else None


def counted_id(key: str, head: bytes, body: bytes) -> CountedId | None:
    """Return the id of a message under a detection key; None if it has none.

    Raises `DecodeError` or `EncodeError` for a malformed message.
    """
    name = property_of(key)
    return body_id(body) if name is None else _of_value(amqp.application_properties(head).get(name))


def body_id(body: bytes) -> CountedId | None:
    """Return the id of an encoded body: the hash of its content. None for an empty body. Raises `DecodeError`."""
    digest, counted, content = hashlib.blake2b(digest_size=_DIGEST_BYTES), _DATA, memoryview(body)
    is_empty = True
    for kind, _, value, stop in sections(body):
        if kind == FOOTER:
            continue
        if kind == DATA:
            start = value + (2 if body[value] == _SHORT_BINARY else 5)
        else:
            start, counted = value, _VALUE if kind == AMQP_VALUE else _SEQUENCE
        is_empty = is_empty and (start == stop or body[value] == _NULL)
        digest.update(content[start:stop])
    return None if is_empty else CountedId(counted, digest.digest())


def _of_value(value: Any) -> CountedId | None:
    if value is None or (isinstance(value, str | bytes) and not value):
        return None
    if isinstance(value, bool):
        return CountedId(_TEXT, b"true" if value else b"false")
    if isinstance(value, str | int | float | uuid.UUID):
        return CountedId(_TEXT, _plain(value).encode())
    if type(value) is bytes:
        return CountedId(_BINARY, value)
    return CountedId(_ENCODED, encode(value))


def _plain(value: str | float | uuid.UUID) -> str:
    # The numbers of AMQP are subclasses whose repr() shows the type.
    return repr(float(value)) if isinstance(value, float) else str(value)


def _bad(text: str) -> BadRequest:
    return BadRequest(text, field="detection_key", parameter="DetectionKey")
