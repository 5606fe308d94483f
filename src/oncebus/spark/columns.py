"""Which columns of a DataFrame say what, and the columns that detection adds to them on its way."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from oncebus.durations import BadDuration, checked_duration, parse_duration
from oncebus.errors import OncebusError

KEY = "__oncebus_key"
TIE = "__oncebus_tie"
CLOCK = "__oncebus_clock"

IS_DUPLICATE = "is_duplicate"
ORIGINAL_TIME = "original_time"
ORIGINAL_SEQUENCE = "original_sequence"

_KEY_TYPES = (
    T.StringType,
    T.BinaryType,
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.DecimalType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
)
_TIME_TYPES = (T.TimestampType, T.TimestampNTZType)
_NUMBER_TYPES = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)


class BadColumn(OncebusError, ValueError):
    """A column is missing, of the wrong type, or holds a value that cannot be judged."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that were asked for, checked. A window is a column or a length in microseconds."""

    key: tuple[str, ...]
    key_signature: tuple[str, ...]
    time: str
    sequence: str | None
    window: str | int
    output: T.StructType


def resolve_columns(
    schema: T.StructType,
    key: str | Sequence[str],
    time: str,
    window: str | timedelta,
    sequence: str | None,
    *,
    is_case_sensitive: bool = False,
) -> Columns:
    """Check what was asked for against the DataFrame's schema. Names are told apart as the session does."""
    keys = (key,) if isinstance(key, str) else tuple(key)
    if not keys:
        raise BadColumn("Key must name at least one column.")
    for name in keys:
        _require(schema, name, "key", _KEY_TYPES, "text, binary, boolean, whole number, decimal, date or timestamp")
        kind = schema[name].dataType
        if isinstance(kind, T.StringType) and kind != T.StringType():
            raise BadColumn(
                f"The key column '{name}' is of type {kind.simpleString()}; keys are compared byte by byte. Give a key "
                "without a collation, for example lower() of it cast to string."
            )
    _require(schema, time, "time", _TIME_TYPES, "timestamp")
    if sequence is not None:
        _require(schema, sequence, "sequence", _NUMBER_TYPES, "whole number")
    added = [T.StructField(IS_DUPLICATE, T.BooleanType(), False), T.StructField(ORIGINAL_TIME, schema[time].dataType)]
    if sequence is not None:
        added.append(T.StructField(ORIGINAL_SEQUENCE, T.LongType()))
    there = {name if is_case_sensitive else name.lower(): name for name in schema.names}
    for added_name in (*(field.name for field in added), KEY, TIE, CLOCK):
        if added_name in there:
            raise BadColumn(
                f"Column '{there[added_name]}' is there already; detection adds '{added_name}'. Rename yours."
            )
    return Columns(
        keys,
        tuple(f"{name} {schema[name].dataType.simpleString()}" for name in keys),
        time,
        sequence,
        _resolve_window(schema, window),
        T.StructType([*schema.fields, *added]),
    )


def key_digest(schema: T.StructType, key: Sequence[str]) -> Column:
    """The 128-bit digest of a row's key: SHA-256, cut to 16 bytes. Null if any part of the key is.

    A sender who can choose ids must not be able to find two that meet, so the digest is a cryptographic one, and the
    columns of a key of several are each preceded by their length.
    """
    texts = [_key_text(schema[name]) for name in key]
    whole = texts[0]
    if len(texts) > 1:
        separator = F.lit(":")
        prefixed = [part for text in texts for part in (F.octet_length(text).cast("string"), separator, text)]
        whole = F.concat(*prefixed)
    return F.unhex(F.substring(F.sha2(whole, 256), 1, 32))


def tie_breaker(schema: T.StructType) -> Column:
    """A number that differs between rows that differ, so that the order of arrival never decides."""
    return F.xxhash64(*[piece for field in schema.fields for piece in _pieces(F.col(_quoted(field.name)), field)])


def _require(schema: T.StructType, name: str, role: str, kinds: tuple[type[T.DataType], ...], wanted: str) -> None:
    if name not in schema.names:
        raise BadColumn(f"There is no {role} column '{name}'. The columns are: {', '.join(schema.names)}.")
    kind = schema[name].dataType
    if not isinstance(kind, kinds):
        raise BadColumn(f"The {role} column '{name}' is of type {kind.simpleString()}; it must be {wanted}.")


def _resolve_window(schema: T.StructType, window: str | timedelta) -> str | int:
    if isinstance(window, str) and window in schema.names:
        kind = schema[window].dataType
        if not isinstance(kind, T.DayTimeIntervalType | T.LongType):
            raise BadColumn(
                f"The window column '{window}' is of type {kind.simpleString()}; it must be a day-time interval or a "
                "bigint of microseconds."
            )
        return window
    if not isinstance(window, str | timedelta):
        raise BadDuration(f"Window {window!r} is not a duration. Write it like '10 minutes' or 'PT10M'.")
    try:
        length = parse_duration(window, "window")
    except BadDuration as error:
        if isinstance(window, str) and re.fullmatch(r"(?!P\d)\w+", window):
            raise BadColumn(
                f"Window {window!r} is neither a duration, like '10 minutes' or 'PT10M', nor a column. "
                f"The columns are: {', '.join(schema.names)}."
            ) from error
        raise
    return checked_duration(length, window, "window")


def _key_text(field: T.StructField) -> Column:
    """The column as bytes or text that are equal exactly where the values are, whatever the session's settings."""
    column = F.col(_quoted(field.name))
    kind = field.dataType
    if isinstance(kind, T.BinaryType | T.StringType):
        return column
    if isinstance(kind, T.TimestampType):
        return F.unix_micros(column).cast("string")
    return column.cast("string")


def _pieces(column: Column, field: T.StructField) -> list[Column]:
    """What to hash so that different values differ: Spark's hash skips nulls, does not see where one array ends and
    the next begins or the sign of a zero, and takes no maps.
    """
    kind = field.dataType
    if isinstance(kind, T.MapType):
        entry = T.StructType([T.StructField("key", kind.keyType, False), T.StructField("value", kind.valueType)])
        return _pieces(F.map_entries(column), T.StructField(field.name, T.ArrayType(entry, False), field.nullable))
    if isinstance(kind, T.ArrayType):
        element = T.StructField("element", kind.elementType, kind.containsNull)
        hashes = F.transform(column, lambda each: F.xxhash64(*_pieces(each, element)))
        return [F.coalesce(F.size(column), F.lit(-1)), hashes]
    is_null = [column.isNull()] if field.nullable else []
    if isinstance(kind, T.StructType):
        inner = [
            piece
            for each in kind.fields
            for piece in _pieces(column.getField(each.name), T.StructField(each.name, each.dataType))
        ]
        return [*is_null, *inner]
    if isinstance(kind, T.VariantType):
        return [*is_null, F.to_json(column)]
    if isinstance(kind, T.StringType) and kind != T.StringType():
        # With a collation, the hash of texts that count as equal is the same.
        return [*is_null, column.cast("binary")]
    if isinstance(kind, T.FloatType | T.DoubleType):
        return [*is_null, column, F.when(column == 0, column.cast("string"))]
    return [*is_null, column]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
