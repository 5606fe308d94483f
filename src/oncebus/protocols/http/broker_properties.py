"""BrokerProperties: the system properties of a message, as a JSON object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from oncebus.model.entities import NO_LIMIT, BadRequest, parse_timespan
from oncebus.protocols import untrusted_json
from oncebus.protocols.http.times import parse_time
from oncebus.protocols.untrusted_json import TooDeep, TooManyValues
from oncebus.values.durations import SECOND
from oncebus.values.errors import clip


@dataclass(frozen=True, slots=True)
class BrokerProperties:
    """The properties that a sender gave. `ttl` is in microseconds, `scheduled` in microseconds since 1970."""

    message_id: str | None = None
    session: str | None = None
    partition_key: str | None = None
    label: str | None = None
    correlation_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    reply_to_session: str | None = None
    content_type: str | None = None
    scheduled: int | None = None
    ttl: int | None = None


_TEXTS = {
    "MessageId": "message_id",
    "SessionId": "session",
    "PartitionKey": "partition_key",
    "Label": "label",
    "CorrelationId": "correlation_id",
    "To": "to",
    "ReplyTo": "reply_to",
    "ReplyToSessionId": "reply_to_session",
    "ContentType": "content_type",
}


def parse_json(text: str | bytes, what: str) -> Any:
    """Parse a JSON text. Raises `BadRequest`, even for NaN and infinity, with a text that calls the input `what`."""
    try:
        return untrusted_json.parse_json(text, parse_constant=_no_constant)
    except (TooDeep, TooManyValues) as error:
        raise BadRequest(f"{what} cannot be read: {error}.") from None
    except ValueError as error:
        # Bytes that are not UTF-8 and numbers with thousands of digits raise it too.
        raise BadRequest(f"{what} is not JSON: {error}.") from None


def read(given: Any, where: str = "BrokerProperties") -> BrokerProperties:
    """Return the properties in a JSON value. Unknown names are ignored.

    Raises `BadRequest` with a text that calls it `where`.
    """
    if given is None:
        return BrokerProperties()
    if not isinstance(given, dict):
        raise BadRequest(f"{where} has value {clip(given)}. Not a JSON object.")
    fields: dict[str, Any] = {
        field: checked_text(given[name], f"{where} field '{name}'")
        for name, field in _TEXTS.items()
        if given.get(name) is not None
    }
    return BrokerProperties(**fields, scheduled=_scheduled(given, where), ttl=_time_to_live(given, where))


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


def _scheduled(given: dict[str, Any], where: str) -> int | None:
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
