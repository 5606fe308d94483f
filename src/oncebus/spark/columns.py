"""Checks the columns that a caller names, and decides how detection distributes rows over tasks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from oncebus.durations import BadDuration, checked_duration, parse_duration
from oncebus.errors import OncebusError

PART = "__oncebus_part"
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
    """A column is missing, has the wrong type, or holds a value that detection cannot use."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The checked arguments of one call of `detect_duplicates`.

    `window` is a column name or a length in microseconds. `key_signature` has the key columns with their types. A
    ledger rejects batches with a different signature. `output` is the schema of the result.
    """

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
    """Check the arguments against the schema of the DataFrame. Raises `BadColumn` or `BadDuration`.

    `is_case_sensitive` is the session's setting: it decides whether `IS_DUPLICATE` clashes with `is_duplicate`.
    """
    keys = (key,) if isinstance(key, str) else tuple(key)
    if not keys:
        raise BadColumn("The key must name at least one column.")
    for name in keys:
        _require(
            schema, name, "key", _KEY_TYPES, "text, binary, a boolean, a whole number, a decimal, a date or a timestamp"
        )
        kind = schema[name].dataType
        if isinstance(kind, T.StringType) and kind != T.StringType():
            raise BadColumn(
                f"The key column '{name}' has type {kind.simpleString()}, but keys are compared byte by byte. Use a "
                "column without a collation, for example lower() of this one, cast to string."
            )
    _require(schema, time, "time", _TIME_TYPES, "a timestamp")
    if sequence is not None:
        _require(schema, sequence, "sequence", _NUMBER_TYPES, "a whole number")
    added = [T.StructField(IS_DUPLICATE, T.BooleanType(), False), T.StructField(ORIGINAL_TIME, schema[time].dataType)]
    if sequence is not None:
        added.append(T.StructField(ORIGINAL_SEQUENCE, T.LongType()))
    existing = {name if is_case_sensitive else name.lower(): name for name in schema.names}
    for added_name in (*(field.name for field in added), PART, CLOCK):
        if added_name in existing:
            raise BadColumn(
                f"The DataFrame already has a column '{existing[added_name]}', and detection adds '{added_name}'. "
                "Rename yours."
            )
    return Columns(
        keys,
        tuple(f"{name} {schema[name].dataType.simpleString()}" for name in keys),
        time,
        sequence,
        _resolve_window(schema, window),
        T.StructType([*schema.fields, *added]),
    )


def placement(columns: Columns) -> list[Column]:
    """Return the columns to partition rows by, so that all rows with the same key are in one task.

    Rows without a key may go to any task, so they are distributed by their time. For rows with a key this column is
    null, which does not change their hash.
    """
    keys = [F.col(_quoted(name)) for name in columns.key]
    has_no_key = reduce(or_, (column.isNull() for column in keys))
    return [*keys, F.when(has_no_key, F.col(_quoted(columns.time)))]


def _require(schema: T.StructType, name: str, role: str, kinds: tuple[type[T.DataType], ...], wanted: str) -> None:
    if name not in schema.names:
        raise BadColumn(f"There is no {role} column '{name}'. The columns are: {', '.join(schema.names)}.")
    kind = schema[name].dataType
    if not isinstance(kind, kinds):
        raise BadColumn(f"The {role} column '{name}' has type {kind.simpleString()}; it must be {wanted}.")


def _resolve_window(schema: T.StructType, window: str | timedelta) -> str | int:
    if isinstance(window, str) and window in schema.names:
        kind = schema[window].dataType
        if not isinstance(kind, T.DayTimeIntervalType | T.LongType):
            raise BadColumn(
                f"The window column '{window}' has type {kind.simpleString()}; it must be a day-time interval or a "
                "bigint of microseconds."
            )
        return window
    if not isinstance(window, str | timedelta):
        raise BadDuration(f"Window {window!r} is not a duration. Write it like '10 minutes' or 'PT10M'.")
    try:
        length = parse_duration(window, "window")
    except BadDuration as error:
        # A single word may be a misspelt column name, so the error lists the columns.
        if isinstance(window, str) and re.fullmatch(r"(?!P\d)\w+", window):
            raise BadColumn(
                f"Window {window!r} is neither a duration, like '10 minutes' or 'PT10M', nor a column. "
                f"The columns are: {', '.join(schema.names)}."
            ) from error
        raise
    return checked_duration(length, window, "window")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
