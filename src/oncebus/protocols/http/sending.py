"""Messages in a request: one in its body and headers, or several in a JSON batch."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any

from oncebus.broker.sending import Incoming, batch_too_large, too_many_messages
from oncebus.model.entities import BadRequest
from oncebus.protocols.http.broker_properties import BrokerProperties, checked_text, parse_json, read_properties
from oncebus.protocols.http.properties import BROKER_PROPERTIES, Header, properties_of, text_of
from oncebus.values.errors import clip

BATCH_TYPE = "application/vnd.microsoft.servicebus.json"
_ESCAPED = 6
"""JSON may write one byte as `\\u0000`."""
_ENVELOPE = 1 << 20
"""Room for the names and brackets of a batch, which do not count towards the size of its messages."""


def is_batch(content_type: str | None) -> bool:
    """Return whether the body of a request is a batch."""
    return content_type is not None and content_type.partition(";")[0].strip().lower() == BATCH_TYPE


def message(headers: Sequence[Header], content_type: str | None, body: bytes) -> Incoming:
    """Return the message of a request that is not a batch. Raises `BadRequest`."""
    given = [value for name, value in headers if name.lower() == BROKER_PROPERTIES.lower()]
    if len(given) > 1:
        raise BadRequest(f"The header '{BROKER_PROPERTIES}' is given more than once.")
    properties = BrokerProperties({})
    if given and given[0].strip():
        properties = read_properties(parse_json(text_of(given[0]), f"The header '{BROKER_PROPERTIES}'"))
    return properties.make_message(content_type or None, properties_of(headers), body)


def longest_json(most: int) -> int:
    """Return the maximum length of a batch in JSON whose messages may take up to `most` bytes."""
    return _ESCAPED * most + _ENVELOPE


def batch(body: bytes, most: int, most_bytes: int) -> list[Incoming]:
    """Return the messages of a batch. Raises `BadRequest`, also for more than `most` messages or too many bytes.

    It encodes no more messages once those so far have more than `most_bytes`.
    """
    items = parse_json(body, "The body of the batch")
    if not isinstance(items, list):
        raise BadRequest(f"The body of the batch has value {clip(items)}. Not a JSON array of messages.")
    if len(items) > most:
        raise too_many_messages(len(items), most)
    made, size = [], 0
    for number, item in enumerate(items, start=1):
        made.append(_item(item, f"message {number} of the batch"))
        size += made[-1].size
        if size > most_bytes and number < len(items):
            raise batch_too_large(f"more than {most_bytes}", most_bytes)
    return made


def _item(item: Any, where: str) -> Incoming:
    if not isinstance(item, dict):
        raise BadRequest(f"The {where} has value {clip(item)}. Not a JSON object.")
    properties = read_properties(item.get("BrokerProperties"), f"BrokerProperties of {where}:")
    text = checked_text(item.get("Body") if item.get("Body") is not None else "", f"Body of {where}")
    is_base64 = item.get("IsBodyBase64") or False
    if not isinstance(is_base64, bool):
        raise BadRequest(f"The IsBodyBase64 of {where} has value {clip(is_base64)}. Not true or false.")
    if is_base64:
        try:
            body = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise BadRequest(f"The Body of {where} has value {clip(text)}. Not base64.") from None
    else:
        body = text.encode()
    return properties.make_message(None, _own(item.get("UserProperties"), where), body)


def _own(given: Any, where: str) -> dict[str, object]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise BadRequest(f"The UserProperties of {where} has value {clip(given)}. Not a JSON object.")
    for name, value in given.items():
        checked_text(name, f"name of a property of {where}")
        if isinstance(value, str):
            checked_text(value, f"property {clip(name)} of {where}")
        elif isinstance(value, list | dict):
            raise BadRequest(f"The property {clip(name)} of {where} has value {clip(value)}. Not a single value.")
        elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise BadRequest(f"The property {clip(name)} of {where} has value {clip(value)}. It exceeds 64 bits.")
    return given
