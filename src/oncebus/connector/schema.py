"""Turns received messages into rows: the schema of the source, and what each column holds.

Every message becomes a row, whatever its sender has put into it. A message that could not would stop the stream at each
start, until the broker dead-letters it. So a value that cannot be read is null, and the log says so.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa
from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpMessageBodyType
from pyspark.sql import types as T

from oncebus.values.errors import clip

_OVERHEAD = 200
"""About the size of a message's other columns, in bytes."""
_LOG = logging.getLogger("oncebus.connector")
_TIME = pa.timestamp("us", tz="UTC")
_SPARK = {
    pa.binary(): T.BinaryType(),
    pa.string(): T.StringType(),
    pa.int64(): T.LongType(),
    pa.int32(): T.IntegerType(),
    _TIME: T.TimestampType(),
    pa.map_(pa.string(), pa.string()): T.MapType(T.StringType(), T.StringType()),
}
_TEXTS = pa.map_(pa.string(), pa.string())


class SourceColumn(NamedTuple):
    """A column of a received message."""

    name: str
    type: pa.DataType
    value: Callable[[ServiceBusReceivedMessage], object]


def body_of(message: ServiceBusReceivedMessage) -> bytes:
    """Return the body as bytes: a text value as UTF-8, none as no bytes, any other value or a sequence as JSON."""
    body: Any = message.body
    if message.body_type is AmqpMessageBodyType.DATA:
        return b"".join(body)
    if body is None:
        return b""
    if message.body_type is AmqpMessageBodyType.VALUE and isinstance(body, bytes | str):
        return body if isinstance(body, bytes) else body.encode()
    whole = list(body) if message.body_type is AmqpMessageBodyType.SEQUENCE else body
    return json.dumps(_plain(whole)).encode()


def size_of(message: ServiceBusReceivedMessage) -> int:
    """Return about how many bytes a message takes as a row."""
    properties: dict[Any, Any] = message.application_properties or {}
    texts = (text for pair in properties.items() for text in pair)
    return len(body_of(message)) + sum(len(as_text(text) or "") for text in texts) + _OVERHEAD


def as_text(value: object) -> str | None:
    """Return the value of a property as text.

    Bytes are UTF-8, or else written in hexadecimal: a replacement character would make different ids equal. True and
    false are in lower case, times in ISO 8601, maps and lists in JSON.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.hex()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict | list | tuple):
        return json.dumps(_plain(value))
    return str(value)


def _plain(value: object) -> object:
    """Return a value that JSON can hold. The client gives the texts inside maps and lists as bytes."""
    if isinstance(value, dict):
        return {as_text(name) or "": _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return as_text(value)


def _utc(time: datetime | None) -> datetime | None:
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time


def _properties(message: ServiceBusReceivedMessage) -> list[tuple[str, str | None]]:
    given: dict[Any, Any] = message.application_properties or {}
    # A text and a symbol of the same name are two names to AMQP, and one to Spark.
    return list({as_text(name) or "": as_text(value) for name, value in given.items()}.items())


def _time_to_live(message: ServiceBusReceivedMessage) -> int | None:
    return None if message.time_to_live is None else round(message.time_to_live.total_seconds() * 1000)


SOURCE_COLUMNS = (
    SourceColumn("body", pa.binary(), body_of),
    SourceColumn("message_id", pa.string(), lambda message: as_text(message.message_id)),
    SourceColumn("sequence_number", pa.int64(), lambda message: message.sequence_number),
    SourceColumn("enqueued_sequence_number", pa.int64(), lambda message: message.enqueued_sequence_number),
    SourceColumn("enqueued_time", _TIME, lambda message: _utc(message.enqueued_time_utc)),
    SourceColumn("delivery_count", pa.int32(), lambda message: message.delivery_count),
    SourceColumn("session_id", pa.string(), lambda message: as_text(message.session_id)),
    SourceColumn("partition_key", pa.string(), lambda message: as_text(message.partition_key)),
    SourceColumn("subject", pa.string(), lambda message: as_text(message.subject)),
    SourceColumn("correlation_id", pa.string(), lambda message: as_text(message.correlation_id)),
    SourceColumn("reply_to", pa.string(), lambda message: as_text(message.reply_to)),
    SourceColumn("reply_to_session_id", pa.string(), lambda message: as_text(message.reply_to_session_id)),
    SourceColumn("content_type", pa.string(), lambda message: as_text(message.content_type)),
    SourceColumn("to", pa.string(), lambda message: as_text(message.to)),
    SourceColumn("application_properties", _TEXTS, _properties),
    SourceColumn("scheduled_enqueue_time", _TIME, lambda message: _utc(message.scheduled_enqueue_time_utc)),
    SourceColumn("time_to_live_ms", pa.int64(), _time_to_live),
    SourceColumn("expires_at", _TIME, lambda message: _utc(message.expires_at_utc)),
    SourceColumn("state", pa.string(), lambda message: message.state.name.lower()),
    SourceColumn("dead_letter_reason", pa.string(), lambda message: as_text(message.dead_letter_reason)),
    SourceColumn(
        "dead_letter_description", pa.string(), lambda message: as_text(message.dead_letter_error_description)
    ),
    SourceColumn("dead_letter_source", pa.string(), lambda message: as_text(message.dead_letter_source)),
)
ARROW_SCHEMA = pa.schema([(column.name, column.type) for column in SOURCE_COLUMNS])
SCHEMA = T.StructType([T.StructField(column.name, _SPARK[column.type]) for column in SOURCE_COLUMNS])


def rows_from(messages: Iterable[ServiceBusReceivedMessage]) -> pa.RecordBatch:
    """Return the messages as rows of `ARROW_SCHEMA`."""
    received = list(messages)
    return pa.record_batch([_column(column, received) for column in SOURCE_COLUMNS], schema=ARROW_SCHEMA)


def _column(column: SourceColumn, messages: Sequence[ServiceBusReceivedMessage]) -> pa.Array:
    try:
        return pa.array([column.value(each) for each in messages], column.type)
    except Exception:
        # The client checks few of the values that senders choose. It is rare, so find out only now which ones it is.
        return _readable(column, messages)


def _readable(column: SourceColumn, messages: Sequence[ServiceBusReceivedMessage]) -> pa.Array:
    cells: list[pa.Array] = []
    unreadable: list[str] = []
    for message in messages:
        try:
            cells.append(pa.array([column.value(message)], column.type))
        except Exception as error:
            cells.append(pa.nulls(1, column.type))
            unreadable.append(f"sequence number {message.sequence_number}: {clip(str(error))}")
    _LOG.warning(
        "Column '%s' is null in %d messages of a batch, because the value cannot be read. The first has the %s",
        column.name,
        len(unreadable),
        unreadable[0],
    )
    return pa.concat_arrays(cells)
