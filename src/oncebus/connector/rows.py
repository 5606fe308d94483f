"""Checks the columns of a DataFrame that is written, and turns its rows into messages of the official client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from azure.servicebus import ServiceBusMessage
from pyspark.sql import types as T

from oncebus.connector.errors import BadColumn, BadRow
from oncebus.values.durations import BadDuration, checked_duration, parse_duration
from oncebus.values.errors import clip
from oncebus.values.sizes import utf16_length

LONGEST_ID = 128
_SHORTEST_LIFE = timedelta(seconds=1)
_WHOLE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_PROPERTY_VALUES = (T.StringType, T.BinaryType, T.BooleanType, *_WHOLE, T.FloatType, T.DoubleType)


class SinkColumn(NamedTuple):
    """A column that a written DataFrame may have. `types` is the text that the docs and errors show."""

    name: str
    types: str
    allows: Callable[[T.DataType], bool]


def _text(given: T.DataType) -> bool:
    return isinstance(given, T.StringType)


def _properties(given: T.DataType) -> bool:
    return (
        isinstance(given, T.MapType)
        and isinstance(given.keyType, T.StringType)
        and isinstance(given.valueType, _PROPERTY_VALUES)
    )


SINK_COLUMNS = (
    SinkColumn("body", "binary or string", lambda given: isinstance(given, T.BinaryType | T.StringType)),
    SinkColumn("message_id", "string", _text),
    SinkColumn("session_id", "string", _text),
    SinkColumn("partition_key", "string", _text),
    SinkColumn("subject", "string", _text),
    SinkColumn("correlation_id", "string", _text),
    SinkColumn("reply_to", "string", _text),
    SinkColumn("reply_to_session_id", "string", _text),
    SinkColumn("content_type", "string", _text),
    SinkColumn("to", "string", _text),
    SinkColumn(
        "application_properties", "map<string, string, binary, boolean, a whole number, float or double>", _properties
    ),
    SinkColumn("scheduled_enqueue_time", "timestamp", lambda given: isinstance(given, T.TimestampType)),
    SinkColumn(
        "time_to_live",
        "interval day to second, or string such as '10 minutes'",
        lambda given: isinstance(given, T.DayTimeIntervalType | T.StringType),
    ),
)
_KNOWN = {column.name: column for column in SINK_COLUMNS}
_LIMITED = ("message_id", "session_id", "partition_key", "reply_to_session_id")


def check_columns(schema: T.StructType) -> None:
    """Raise `BadColumn` unless every column is one of `SINK_COLUMNS` and there is a body."""
    for field in schema.fields:
        column = _KNOWN.get(field.name)
        if column is None:
            raise BadColumn(f"Column {clip(field.name)} is not part of a message. There are: {', '.join(_KNOWN)}.")
        if not column.allows(field.dataType):
            raise BadColumn(f"Column '{field.name}' has the type {field.dataType.simpleString()}, not {column.types}.")
    if "body" not in schema.names:
        raise BadColumn("Column 'body' is missing. It holds the content of a message, as binary or string.")


def message_from(row: Mapping[str, Any], message_id: str, place: str) -> ServiceBusMessage:
    """Return the message of a row. Raises `BadRow`, which names `place`, the row's position."""
    body = row["body"]
    if body is None:
        raise BadRow(f"Column 'body' is null in {place}. A message needs a body; it may be empty.")
    if not message_id:
        raise BadRow(f"Column 'message_id' is empty in {place}. Give null for an id that is derived from the row.")
    for name in _LIMITED:
        value = message_id if name == "message_id" else row.get(name)
        if value is not None and utf16_length(value) > LONGEST_ID:
            raise BadRow(f"Column '{name}' {clip(value)} in {place} is longer than {LONGEST_ID} characters.")
    partition_key, session_id = row.get("partition_key"), row.get("session_id")
    if partition_key is not None and session_id is not None and partition_key != session_id:
        raise BadRow(
            f"Column 'partition_key' {clip(partition_key)} in {place} differs from its session_id "
            f"{clip(session_id)}. They must be equal."
        )
    scheduled = row.get("scheduled_enqueue_time")
    try:
        return ServiceBusMessage(
            body,
            message_id=message_id,
            session_id=session_id,
            partition_key=partition_key,
            subject=row.get("subject"),
            correlation_id=row.get("correlation_id"),
            reply_to=row.get("reply_to"),
            reply_to_session_id=row.get("reply_to_session_id"),
            content_type=row.get("content_type"),
            to=row.get("to"),
            application_properties=_properties_of(row.get("application_properties")),
            scheduled_enqueue_time_utc=None if scheduled is None else _utc(scheduled),
            time_to_live=_time_to_live(row.get("time_to_live"), place),
        )
    except (TypeError, ValueError) as error:
        if isinstance(error, BadRow):
            raise
        raise BadRow(f"{place.capitalize()} cannot become a message: {' '.join(str(error).split())}") from None


def _properties_of(given: Mapping[str, Any] | None) -> dict[str | bytes, Any]:
    return {name: _with_type(value) for name, value in (given or {}).items()}


def _with_type(value: Any) -> Any:
    """Return a value for the client. Unless a type is given, it takes bytes for text, and numbers for 32 bits long."""
    if isinstance(value, bytes):
        return {"TYPE": "BINARY", "VALUE": value}
    if isinstance(value, int) and not -(1 << 31) <= value < 1 << 31:
        return {"TYPE": "LONG", "VALUE": value}
    return value


def _utc(time: datetime) -> datetime:
    # Arrow gives the time zone of the session; the client sends the wall time as it is.
    return time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo is not None else time


def _time_to_live(value: timedelta | str | None, place: str) -> timedelta | None:
    if value is None:
        return None
    try:
        found = timedelta(microseconds=checked_duration(parse_duration(value, "time_to_live"), value, "time_to_live"))
    except BadDuration as error:
        raise BadRow(f"Column 'time_to_live' in {place}: {error}") from None
    if found < _SHORTEST_LIFE:
        # The client cuts it to whole seconds, and no seconds mean that the message lives as long as any.
        raise BadRow(f"Column 'time_to_live' {clip(value)} in {place} is shorter than a second.")
    return found
