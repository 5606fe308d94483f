"""BrokerProperties: the system properties of a message, as a JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from oncebus import amqp
from oncebus.broker.sending import Incoming
from oncebus.model.entities import NO_LIMIT, BadRequest, parse_timespan
from oncebus.protocols import untrusted_json
from oncebus.protocols.http.times import parse_time
from oncebus.protocols.untrusted_json import TooDeep, TooManyValues
from oncebus.values.durations import SECOND
from oncebus.values.errors import clip

_PARTITION_KEY = "PartitionKey"
_TEXTS = {
    "MessageId": "message_id",
    "SessionId": "group_id",
    "Label": "subject",
    "CorrelationId": "correlation_id",
    "To": "to",
    "ReplyTo": "reply_to",
    "ReplyToSessionId": "reply_to_group_id",
    "ContentType": "content_type",
}
"""The properties of AMQP that hold the texts, by their names here."""


class BrokerProperties(NamedTuple):
    """What a sender gave: `texts` by the names of AMQP's properties, and what AMQP has elsewhere.

    `ttl` is in microseconds, `scheduled` in microseconds since 1970.
    """

    texts: Mapping[str, Any]
    partition_key: str | None = None
    scheduled: int | None = None
    ttl: int | None = None

    def make_message(self, content_type: str | None, own: Mapping[str, object], content: bytes) -> Incoming:
        """Return a message with these properties, application properties and a body. Raises `BadRequest`."""
        given = {**self.texts, "content_type": content_type} if content_type is not None else self.texts
        if not given.get("content_type", "").isascii():
            raise BadRequest(f"The content type {clip(given['content_type'])} is not ASCII.")
        head, body = amqp.encode_message(amqp.Properties(**given), own, content)
        message_id, session = given.get("message_id"), given.get("group_id")
        return Incoming(head, body, message_id, session, self.partition_key, self.scheduled, self.ttl)


def parse_json(text: str | bytes, what: str) -> Any:
    """Parse a JSON text. Raises `BadRequest`, even for NaN and infinity, with a text that calls the input `what`."""
    try:
        return untrusted_json.parse_json(text, parse_constant=_no_constant)
    except (TooDeep, TooManyValues) as error:
        raise BadRequest(f"{what} cannot be read: {error}.") from None
    except ValueError as error:
        # Bytes that are not UTF-8 and numbers with thousands of digits raise it too.
        raise BadRequest(f"{what} is not JSON: {error}.") from None


def read_properties(given: Any, where: str = "BrokerProperties") -> BrokerProperties:
    """Return the properties in a JSON value. Unknown names are ignored.

    Raises `BadRequest` with a text that calls it `where`.
    """
    if given is None:
        return BrokerProperties({})
    if not isinstance(given, dict):
        raise BadRequest(f"{where} has value {clip(given)}. Not a JSON object.")
    texts = {
        name: checked_text(given[name], f"{where} field '{name}'")
        for name in (*_TEXTS, _PARTITION_KEY)
        if given.get(name) is not None
    }
    partition_key = texts.pop(_PARTITION_KEY, None)
    fields = {_TEXTS[name]: text for name, text in texts.items()}
    return BrokerProperties(fields, partition_key, _scheduled_time(given, where), _time_to_live(given, where))


def checked_text(value: object, what: str) -> str:
    """Return the value. Raises `BadRequest` unless it is a string that can be encoded."""
    if not isinstance(value, str):
        raise BadRequest(f"The {what} has value {clip(value)}. Not a text.", field=what)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            text = f"The {what} has value {clip(value)}. It contains half of a surrogate pair."
            raise BadRequest(text, field=what) from None
    return value


def _scheduled_time(given: dict[str, Any], where: str) -> int | None:
    value = given.get("ScheduledEnqueueTimeUtc")
    if value is None:
        return None
    time = parse_time(value.strip()) if isinstance(value, str) else None
    if time is None:
        raise BadRequest(
            f"The {where} field 'ScheduledEnqueueTimeUtc' has value {clip(value)}. "
            "Not a time: write it like 'Sun, 06 Nov 1994 08:49:37 GMT'."
        )
    return time


def _time_to_live(given: dict[str, Any], where: str) -> int | None:
    seconds, span = given.get("TimeToLive"), given.get("TimeToLiveTimeSpan")
    if seconds is not None:
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds <= 0:
            raise BadRequest(
                f"The {where} field 'TimeToLive' has value {clip(seconds)}. Not a number of seconds above 0."
            )
        # Clients send back the value that they read for "no limit". As a float it has lost its last digits.
        return max(round(seconds * SECOND), 1) if seconds < NO_LIMIT // SECOND else NO_LIMIT
    if span is None:
        return None
    ttl = parse_timespan(checked_text(span, f"{where} field 'TimeToLiveTimeSpan'"), "TimeToLiveTimeSpan")
    if ttl <= 0:
        raise BadRequest(f"The {where} field 'TimeToLiveTimeSpan' has value {clip(span)}. Not a duration above 0.")
    return ttl


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")
