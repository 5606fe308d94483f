"""Checks the columns and expressions that a caller gives, and decides how detection distributes rows over tasks.

Spark would read a dot in a name as access to a field. So between here and the tasks, the columns of the caller have
plain names: `c0`, `c1` and so on. An expression, or a field of a struct, becomes a helper column: Spark computes it
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

from oncebus.values.durations import BadDuration, checked_duration, parse_duration
from oncebus.values.errors import OncebusError

HELPER = "__oncebus_"
PART = HELPER + "part"
CLOCK = HELPER + "clock"
TIE = HELPER + "tie"
VERDICT = HELPER + "verdict"

EVER = 2**61 + 1
"""The window that never ends: longer than any two times are apart, as long as they are within `EVER_FURTHEST`."""

EVER_FURTHEST = 2**60

LATE = HELPER + "late"
WITHOUT_KEY = HELPER + "without_key"

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

    Columns have the names that the tasks see. `window` is such a name, or a length in microseconds. `key_signature` has
    the key columns with their types. A ledger rejects batches with a different signature. `output` is the schema of the
    result. `helpers` are the columns to add for expressions, by name. `labels` has, by name and in order, the caller's
    name of each column, and the text of each expression.
    """

    key: tuple[str, ...]
    key_signature: tuple[str, ...]
    time: str
    sequence: str | None
    window: str | int
    output: T.StructType
    helpers: dict[str, Column] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)

    def prepare(self, messages: DataFrame) -> DataFrame:
        """Return the DataFrame with the names that the tasks see, and with the helper columns."""
        added = [expression.alias(name) for name, expression in self.helpers.items()]
        return (messages.select("*", *added) if added else messages).toDF(*self.labels)


class _Resolver:
    """Finds the columns of one DataFrame, and makes helper columns for expressions."""

    def __init__(self, messages: DataFrame) -> None:
        self._messages = messages
        self.schema = messages.schema
        self.types = {f"c{at}": field.dataType for at, field in enumerate(self.schema.fields)}
        self.helpers: dict[str, Column] = {}
        self.labels = {f"c{at}": name for at, name in enumerate(self.schema.names)}

    def find(
        self, given: Any, role: str, helper: str, kinds: tuple[type[T.DataType], ...], wanted: str
    ) -> tuple[str, str]:
        """Return the name of the column to use, and the text that describes it to people. Raises `BadColumn`."""
        if not isinstance(given, str | Column):
            raise BadColumn(f"The {role} column is {given!r}; it must be the name of a column, or a Column.")
        if not isinstance(given, str):
            label = _text_of(given)
            name = self._help(given, role, label, helper)
            self._refuse_random(given, role, label)
        elif (own := self.own_column(given)) is not None:
            label = own
            found = [name for name, text in self.labels.items() if text == own and name not in self.helpers]
            if len(found) > 1:
                raise BadColumn(
                    f"There are {len(found)} columns '{own}', so it cannot be the {role} column. Rename one."
                )
            name = found[0]
        elif self.has_field(given):
            label = given
            name = self._help(F.col(given), role, label, helper)
        else:
            raise BadColumn(f"There is no {role} column '{given}'. The columns are: {', '.join(self.schema.names)}.")
        kind = self.types[name]
        if not isinstance(kind, kinds):
            raise BadColumn(f"The {role} column '{label}' has type {kind.simpleString()}; it must be {wanted}.")
        return name, label

    def own_column(self, given: str) -> str | None:
        """Return the column that a text names: as it is, or in backticks as Spark quotes names. Else None."""
        if given in self.schema.names:
            return given
        name, rest = _first_name(given)
        return name if name in self.schema.names and not rest else None

    def has_field(self, given: str) -> bool:
        """Return whether a text like `header.id` begins with the name of a column."""
        name, rest = _first_name(given)
        return name in self.schema.names and rest.startswith(".")

    def _help(self, expression: Column, role: str, label: str, helper: str) -> str:
        name = HELPER + helper
        try:
            found = self._messages.select(expression.alias(name))
            self.types[name] = found.schema[name].dataType
        except AnalysisException as error:
            reason = str(error).splitlines()[0]
            raise BadColumn(f"The {role} column '{label}' cannot be computed: {reason}") from error
        self.helpers[name], self.labels[name] = expression, label
        return name

    def _refuse_random(self, expression: Column, role: str, label: str) -> None:
        """Raise `BadColumn` if the expression is not deterministic.

        Spark tells only its own process whether it is. But it allows no other expression in the condition of a join.
        """
        nothing = self._messages.sparkSession.range(0).select(F.lit(0).alias(HELPER + "nothing"))
        try:
            _ = self._messages.join(nothing, expression.isNotNull()).schema
        except AnalysisException as error:
            if error.getCondition() == "INVALID_NON_DETERMINISTIC_EXPRESSIONS":
                raise BadColumn(
                    f"The {role} column '{label}' is not deterministic: a repeated task would compute something else."
                ) from error


def resolve_columns(
    messages: DataFrame,
    key: str | Column | Sequence[str | Column],
    time: str | Column,
    window: str | timedelta | Column | None,
    sequence: str | Column | None,
    *,
    is_case_sensitive: bool = False,
    adds_verdicts: bool = True,
) -> Columns:
    """Check the arguments against the DataFrame. Raises `BadColumn` or `BadDuration`.

    `is_case_sensitive` is the session's setting: it decides whether `IS_DUPLICATE` clashes with `is_duplicate`. If the
    caller adds no verdicts, such a column may exist.
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
    for added_name in (*(one.name for one in added), LATE, WITHOUT_KEY):
        if adds_verdicts and added_name in existing:
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


def quote(name: str) -> str:
    """Return a column's name in backticks. Without them Spark reads a dot as access to a field."""
    return "`" + name.replace("`", "``") + "`"


def placement(columns: Columns) -> list[Column]:
    """Return the columns to partition rows by, so that all rows with the same key are in one task.

    Rows without a key may go to any task, so they are distributed by their time. For rows with a key this column is
    null, which does not change their hash.
    """
    keys = [F.col(name) for name in columns.key]
    has_no_key = reduce(or_, (column.isNull() for column in keys))
    return [*keys, F.when(has_no_key, F.col(columns.time))]


def _resolve_window(resolver: _Resolver, window: str | timedelta | Column | None) -> str | int:
    kinds, wanted = (T.DayTimeIntervalType, T.LongType), "a day-time interval or a bigint of microseconds"
    if isinstance(window, Column) or (isinstance(window, str) and resolver.own_column(window) is not None):
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
                f"The columns are: {', '.join(resolver.schema.names)}."
            ) from error
        if isinstance(window, str) and resolver.has_field(window):
            return resolver.find(window, "window", "window", kinds, wanted)[0]
        raise
    return checked_duration(length, window, "window")


def _text_of(column: Column) -> str:
    """Return the text of an expression, as Spark prints it: `sha2(body, 256)`."""
    text = str(column)
    match = re.fullmatch(r"Column<'(.*)'>", text, re.DOTALL)
    return match[1] if match else text


def _first_name(path: str) -> tuple[str, str]:
    """Return the first name in a text like "header.id" or "`a.b`.id", without backticks, and the rest of the text."""
    match = re.match(r"`((?:[^`]|``)+)`|([^.`]+)", path)
    if match is None:
        return path, ""
    return match[2] or match[1].replace("``", "`"), path[match.end() :]
