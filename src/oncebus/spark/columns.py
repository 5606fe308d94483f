"""Checks the columns and expressions that a caller gives, and decides how detection distributes rows over tasks.

The name of a column stays as it is. An expression, or a field of a struct, becomes a helper column: Spark computes it
once, before the rows are distributed, and the tasks remove it again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import reduce
from operator import or_
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from oncebus.durations import BadDuration, checked_duration, parse_duration
from oncebus.errors import OncebusError

HELPER = "__oncebus_"
PART = HELPER + "part"
CLOCK = HELPER + "clock"

EVER = 2**61 + 1
"""The window that never ends: longer than any two times are apart, as long as they are within `EVER_FURTHEST`."""

EVER_FURTHEST = 2**60

LATE = HELPER + "late"

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
    ledger rejects batches with a different signature. `output` is the schema of the result. `helpers` are the columns
    to add for expressions, by name, and `labels` has the text of each expression.
    """

    key: tuple[str, ...]
    key_signature: tuple[str, ...]
    time: str
    sequence: str | None
    window: str | int
    output: T.StructType
    helpers: dict[str, Column] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)

    def prepared(self, messages: DataFrame) -> DataFrame:
        """Return the DataFrame with the helper columns."""
        return messages.withColumns(self.helpers) if self.helpers else messages


class _Resolver:
    """Finds the columns of one DataFrame, and makes helper columns for expressions."""

    def __init__(self, messages: DataFrame) -> None:
        self._messages = messages
        self.schema = messages.schema
        self.types = {field.name: field.dataType for field in messages.schema.fields}
        self.helpers: dict[str, Column] = {}
        self.labels: dict[str, str] = {}

    def find(
        self, given: Any, role: str, helper: str, kinds: tuple[type[T.DataType], ...], wanted: str
    ) -> tuple[str, str]:
        """Return the name of the column to use, and the text that describes it to people. Raises `BadColumn`."""
        if not isinstance(given, str | Column):
            raise BadColumn(f"The {role} column is {given!r}; it must be the name of a column, or a Column.")
        name = label = given if isinstance(given, str) else _text_of(given)
        if not isinstance(given, str):
            name = self._help(given, role, label, helper)
        elif given not in self.types:
            if given.split(".")[0] not in self.types:
                raise BadColumn(
                    f"There is no {role} column '{given}'. The columns are: {', '.join(self.schema.names)}."
                )
            name = self._help(F.col(given), role, label, helper)
        kind = self.types[name]
        if not isinstance(kind, kinds):
            raise BadColumn(f"The {role} column '{label}' has type {kind.simpleString()}; it must be {wanted}.")
        return name, label

    def _help(self, expression: Column, role: str, label: str, helper: str) -> str:
        name = HELPER + helper
        try:
            found = self._messages.select(expression.alias(name))
            self.types[name] = found.schema[name].dataType
        except AnalysisException as error:
            reason = str(error).splitlines()[0]
            raise BadColumn(f"The {role} column '{label}' cannot be computed: {reason}") from error
        if not _is_deterministic(found):
            raise BadColumn(
                f"The {role} column '{label}' is not deterministic: a repeated task would compute something else."
            )
        self.helpers[name], self.labels[name] = expression, label
        return name


def resolve_columns(
    messages: DataFrame,
    key: str | Column | Sequence[str | Column],
    time: str | Column,
    window: str | timedelta | Column | None,
    sequence: str | Column | None,
    *,
    is_case_sensitive: bool = False,
) -> Columns:
    """Check the arguments against the DataFrame. Raises `BadColumn` or `BadDuration`.

    `is_case_sensitive` is the session's setting: it decides whether `IS_DUPLICATE` clashes with `is_duplicate`.
    """
    resolver = _Resolver(messages)
    schema = resolver.schema
    given = tuple(key) if isinstance(key, Sequence) and not isinstance(key, str) else (key,)
    if not given:
        raise BadColumn("The key must name at least one column.")
    keys, signature = [], []
    for at, one in enumerate(given):
        name, label = resolver.find(
            one,
            "key",
            f"key_{at}",
            _KEY_TYPES,
            "text, binary, a boolean, a whole number, a decimal, a date or a timestamp",
        )
        kind = resolver.types[name]
        if isinstance(kind, T.StringType) and kind != T.StringType():
            raise BadColumn(
                f"The key column '{label}' has type {kind.simpleString()}, but keys are compared byte by byte. Use a "
                "column without a collation, for example lower() of this one, cast to string."
            )
        keys.append(name)
        signature.append(f"{label} {kind.simpleString()}")
    time_name, _ = resolver.find(time, "time", "time", _TIME_TYPES, "a timestamp")
    sequence_name = None
    if sequence is not None:
        sequence_name, _ = resolver.find(sequence, "sequence", "sequence", _NUMBER_TYPES, "a whole number")
    added = [
        T.StructField(IS_DUPLICATE, T.BooleanType(), False),
        T.StructField(ORIGINAL_TIME, resolver.types[time_name]),
    ]
    if sequence is not None:
        added.append(T.StructField(ORIGINAL_SEQUENCE, T.LongType()))
    existing = {name if is_case_sensitive else name.lower(): name for name in schema.names}
    window_name = _resolve_window(resolver, window)
    for added_name in (*(one.name for one in added), PART, CLOCK, LATE, *resolver.helpers):
        if added_name in existing:
            raise BadColumn(
                f"The DataFrame already has a column '{existing[added_name]}', and detection adds '{added_name}'. "
                "Rename yours."
            )
    return Columns(
        tuple(keys),
        tuple(signature),
        time_name,
        sequence_name,
        window_name,
        T.StructType([*schema.fields, *added]),
        resolver.helpers,
        resolver.labels,
    )


def placement(columns: Columns) -> list[Column]:
    """Return the columns to partition rows by, so that all rows with the same key are in one task.

    Rows without a key may go to any task, so they are distributed by their time. For rows with a key this column is
    null, which does not change their hash.
    """
    keys = [F.col(_quoted(name)) for name in columns.key]
    has_no_key = reduce(or_, (column.isNull() for column in keys))
    return [*keys, F.when(has_no_key, F.col(_quoted(columns.time)))]


def _resolve_window(resolver: _Resolver, window: str | timedelta | Column | None) -> str | int:
    kinds, wanted = (T.DayTimeIntervalType, T.LongType), "a day-time interval or a bigint of microseconds"
    names = resolver.schema.names
    if isinstance(window, Column) or (isinstance(window, str) and window in names):
        return resolver.find(window, "window", "window", kinds, wanted)[0]
    if window is None or window == "ever":
        return EVER
    if not isinstance(window, str | timedelta):
        raise BadDuration(f"Window {window!r} is not a duration. Write it like '10 minutes' or 'PT10M'.")
    try:
        length = parse_duration(window, "window")
    except BadDuration as error:
        # A single word may be a misspelt column name, so the error lists the columns.
        if isinstance(window, str) and re.fullmatch(r"(?!P\d)\w+", window):
            raise BadColumn(
                f"Window {window!r} is neither a duration, like '10 minutes' or 'PT10M', nor a column. "
                f"The columns are: {', '.join(names)}."
            ) from error
        if isinstance(window, str) and window.split(".")[0] in names:
            return resolver.find(window, "window", "window", kinds, wanted)[0]
        raise
    return checked_duration(length, window, "window")


def _text_of(column: Column) -> str:
    """Return the text of an expression, as Spark prints it: `sha2(body, 256)`."""
    text = str(column)
    match = re.fullmatch(r"Column<'(.*)'>", text, re.DOTALL)
    return match[1] if match else text


def _is_deterministic(frame: DataFrame) -> bool:
    """Return whether the only column of the DataFrame is deterministic. True with Spark Connect, which cannot tell."""
    java: Any = getattr(frame, "_jdf", None)
    return java is None or bool(java.queryExecution().analyzed().expressions().apply(0).deterministic())


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
