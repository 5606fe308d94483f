"""Shows the content of a message: the panel beside a table of messages, with every property and the body.

The body is shown as text or in hexadecimal. All of it is untrusted.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Sequence
from typing import Any

from oncebus import amqp
from oncebus.amqp.types import DecodeError
from oncebus.broker.broker import Received
from oncebus.engine.store import State, SubQueue
from oncebus.model.entities import NO_LIMIT, Catalogue
from oncebus.protocols.http.rendering import LARGEST_HEAD, LARGEST_SHOWN_VALUE, Allowance, bytes_to_read, plain_value
from oncebus.protocols.portal.layout import facts
from oncebus.protocols.portal.markup import Content, Markup, foreign, tag
from oncebus.protocols.portal.wording import moment, number, size_in_words, span

LONGEST_TEXT = 4000
LONGEST_HEX = 512
LONGEST_PREVIEW = 120
LONGEST_VALUE = 500
MOST_PROPERTIES = 100
_HEX_WIDTH = 16

_FIELDS = {
    "subject": "Label",
    "correlation_id": "CorrelationId",
    "to": "To",
    "reply_to": "ReplyTo",
    "reply_to_group_id": "ReplyToSessionId",
    "content_type": "ContentType",
    "content_encoding": "ContentEncoding",
    "user_id": "UserId",
    "creation_time": "CreationTime",
    "absolute_expiry_time": "AbsoluteExpiryTime",
    "group_sequence": "GroupSequence",
}
"""The properties that the sender set, except those that the broker keeps apart from the head."""


STATES = {State.ACTIVE: "Active", State.DEFERRED: "Deferred", State.SCHEDULED: "Scheduled"}
_LONGEST_DESCRIPTION = 1000


# The panel


def panel(received: Received, catalogue: Catalogue, close: str) -> Markup:
    """Return the panel. `close` is the address of the page without it."""
    message, allowance = received.message, Allowance()
    # The same address as the page without the panel, so it works without the script.
    back = tag("a", "Close", href=close, class_="button quiet", data_close=True)
    return tag(
        "aside",
        tag("div", tag("h2", f"Message {message.sequence}"), back, class_="title"),
        facts(_message_facts(received, catalogue), class_="facts plain"),
        properties_list(message.head, allowance),
        tag("h3", "Body"),
        show_body(received.body, allowance),
        id="panel",
        class_="panel",
        aria_label=f"Message {message.sequence}",
        tabindex="-1",
    )


def no_panel(text: str | None = None) -> Markup:
    """Return the empty place of the panel, or one that says why there is no message."""
    if text is None:
        return tag("aside", id="panel", class_="panel", hidden=True, aria_label="Message")
    return tag("aside", tag("p", text), id="panel", class_="panel", aria_label="Message", tabindex="-1")


def _message_facts(received: Received, catalogue: Catalogue) -> list[tuple[str, Content]]:
    message = received.message
    found: list[tuple[str, Content]] = [
        ("MessageId", foreign(message.message_id, class_="foreign id")),
        ("SequenceNumber", str(message.sequence)),
        ("EnqueuedTime", moment(message.enqueued)),
        ("DeliveryCount", number(message.deliveries)),
        ("Size", size_in_words(message.size)),
    ]
    if message.sub_queue == SubQueue.MAIN or message.state is not State.ACTIVE:
        found.insert(2, ("State", STATES[message.state]))
    if message.enqueued_sequence != message.sequence:
        found.append(("EnqueuedSequenceNumber", str(message.enqueued_sequence)))
    if message.session is not None:
        found.append(("SessionId", foreign(message.session)))
    if message.partition_key is not None:
        found.append(("PartitionKey", foreign(message.partition_key)))
    if message.scheduled is not None:
        found.append(("ScheduledEnqueueTime", moment(message.scheduled)))
    if message.locked_until is not None:
        found.append(("LockedUntil", moment(message.locked_until)))
    if message.expires is not None and message.expires < message.enqueued + NO_LIMIT:
        found.append(("ExpiresAt", [moment(message.expires), f", after {span(message.expires - message.enqueued)}"]))
    if message.reason is not None:
        found.append(("DeadLetterReason", foreign(message.reason)))
    if message.description is not None:
        found.append(("DeadLetterErrorDescription", foreign(message.description[:_LONGEST_DESCRIPTION])))
    source = catalogue.entity(message.source) if message.source is not None else None
    if source is not None:
        found.append(("DeadLetterSource", source.path))
    if message.hops:
        found.append(("Forwarded", f"{message.hops} times"))
    return found


# Properties and body


def label_of(head: bytes) -> str | None:
    """Return the label that the sender gave a message, or None."""
    try:
        return amqp.properties(head).subject
    except DecodeError:
        return None


def preview(body: bytes, allowance: Allowance) -> Markup:
    """Return the first characters of a body in one line, or its size if it is not text."""
    size = bytes_to_read(body)
    text: str | None = None
    if size <= LARGEST_SHOWN_VALUE and allowance.take(size):
        try:
            content = amqp.decode_body(body)
        except DecodeError:
            return tag("span", "cannot be read", class_="none")
        value = content.value if isinstance(content, amqp.AmqpValue) else content
        if isinstance(value, amqp.AmqpSequence):
            value = list(value.items)
        if isinstance(value, bytes):
            if not value:
                return tag("span", "empty", class_="none")
            text = _as_text(value[: 4 * LONGEST_PREVIEW], is_cut=len(value) > 4 * LONGEST_PREVIEW)
            size = len(value)
        else:
            text = value if isinstance(value, str) else json.dumps(_plain(value), ensure_ascii=False)
    if text is None:
        return tag("span", f"{number(size or len(body))} bytes", class_="none")
    line = " ".join(text[: 2 * LONGEST_PREVIEW].split())
    return foreign(line[:LONGEST_PREVIEW], class_="foreign body")


def properties_list(head: bytes, allowance: Allowance) -> Markup:
    """Return the system and application properties of a message, or a notice if they exceed the page's allowance."""
    if len(head) > LARGEST_HEAD or not allowance.take(len(head)):
        return tag("p", f"The properties, {number(len(head))} bytes, are too large to be shown here.", class_="note")
    try:
        fields, own = amqp.properties(head), amqp.application_properties(head)
    except DecodeError as error:
        return tag("p", f"The properties cannot be read: {error}", class_="error")
    known = [(title, getattr(fields, field)) for field, title in _FIELDS.items() if getattr(fields, field) is not None]
    of_sender = [(foreign(str(name)[:LONGEST_VALUE]), value) for name, value in list(own.items())[:MOST_PROPERTIES]]
    left = len(own) - MOST_PROPERTIES
    more = tag("p", f"{number(left)} more properties", class_="note") if left > 0 else None
    application = [tag("h3", "Application properties"), _values(of_sender)]
    return tag("div", _values(known) if known else None, application if of_sender else None, more)


def show_body(body: bytes, allowance: Allowance) -> Markup:
    """Return the beginning of the body: as text if it is text, else as bytes.

    An AMQP value or sequence is shown as bytes if decoding it exceeds the page's allowance.
    """
    size = bytes_to_read(body)
    if size > LARGEST_SHOWN_VALUE or not allowance.take(size):
        return _bytes(body, "Body that is too large to be read here")
    try:
        content = amqp.decode_body(body)
    except DecodeError:
        return _bytes(body, "Body that cannot be read")
    if isinstance(content, amqp.AmqpSequence):
        return _text(_value_text(list(content.items)), "Body, a sequence")
    if isinstance(content, amqp.AmqpValue):
        if isinstance(content.value, str):
            return _text(content.value, "Body, a text value")
        if isinstance(content.value, bytes):
            return _either(content.value, "Body, a binary value")
        return _text(_value_text(content.value), "Body, a value")
    return _either(content, "Body")


def _values(rows: Sequence[tuple[Content, object]]) -> Markup:
    texts = [(name, _value_text(value)) for name, value in rows]
    shortened = [(name, f"{text[:LONGEST_VALUE]}…" if len(text) > LONGEST_VALUE else text) for name, text in texts]
    return facts(((name, foreign(text)) for name, text in shortened), class_="facts plain")


def _either(content: bytes, title: str) -> Markup:
    if not content:
        return tag("p", f"{title}: empty", class_="note")
    text = _as_text(content[: 4 * LONGEST_TEXT], is_cut=len(content) > 4 * LONGEST_TEXT)
    return _bytes(content, title) if text is None else _text(text, title, len(content))


def _as_text(some: bytes, *, is_cut: bool) -> str | None:
    """Return bytes as text, or None if they are not text."""
    try:
        # The end may split a character.
        text = codecs.getincrementaldecoder("utf-8")().decode(some, final=not is_cut)
    except UnicodeDecodeError:
        return None
    return None if any(character < " " and character not in "\t\n\r" for character in text) else text


def _text(text: str, title: str, size: int | None = None) -> Markup:
    is_cut = len(text) > LONGEST_TEXT
    about: list[Content] = [title, f", {number(size)} bytes" if size is not None else None]
    about.append(f", the first {number(LONGEST_TEXT)} characters" if is_cut else None)
    return tag("div", tag("p", about, class_="note"), tag("pre", foreign(text[:LONGEST_TEXT]), tabindex="0"))


def _bytes(content: bytes, title: str) -> Markup:
    some = content[:LONGEST_HEX]
    lines = [
        f"{at:04x}  {some[at : at + _HEX_WIDTH].hex(' '):<47}  {_printable(some[at : at + _HEX_WIDTH])}"
        for at in range(0, len(some), _HEX_WIDTH)
    ]
    cut = f", the first {number(LONGEST_HEX)}" if len(content) > LONGEST_HEX else ""
    explanation = f"{title}, {number(len(content))} bytes in hexadecimal{cut}"
    return tag("div", tag("p", explanation, class_="note"), tag("pre", "\n".join(lines), class_="hex", tabindex="0"))


def _printable(some: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in some)


def _value_text(value: object) -> str:
    plain = _plain(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False, indent=1)


def _plain(value: object) -> Any:
    return plain_value(value, lambda some: f"0x{some[:LONGEST_VALUE].hex()}")
