"""Converts keys that people type or pass as Python values to the digests that `detect_duplicates` computes.

A ledger knows its key columns and their types, as Spark writes them: `["id string", "line int"]`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import pyarrow as pa

from oncebus.detection.hashing import digests_of_keys
from oncebus.detection.values import Keys
from oncebus.ledger.description import LedgerMismatch
from oncebus.values.errors import OncebusError, clip

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


class BadKey(OncebusError, ValueError):
    """A key does not fit the key columns of the ledger."""


class KeyColumn(NamedTuple):
    """A key column of a ledger, with the type that its values have in Arrow, and a parser of texts."""

    name: str
    kind: str
    type: pa.DataType
    parse: Callable[[str], Any]


def key_columns(signature: Sequence[str], location: str) -> list[KeyColumn]:
    """Return the key columns of a ledger. Raises `LedgerMismatch` for a ledger that is not for rows of a DataFrame."""
    columns = []
    for text in signature:
        name, _, kind = text.rpartition(" ")
        if match := _DECIMAL.fullmatch(kind):
            columns.append(KeyColumn(name, kind, pa.decimal128(int(match[1]), int(match[2])), Decimal))
        elif kind in _TYPES and name:
            columns.append(KeyColumn(name, kind, *_TYPES[kind]))
        else:
            raise LedgerMismatch(
                f"Ledger '{location}' is for the key ({', '.join(signature)}), not for columns of a DataFrame. To "
                "forget an id at a queue or topic of a broker, use 'oncebus forget'."
            )
    return columns


def parse_key(text: str, columns: Sequence[KeyColumn]) -> tuple[Any, ...]:
    """Parse a key that a person has typed: the value, or with several columns a JSON array of values."""
    texts = [text]
    if len(columns) > 1:
        try:
            texts = json.loads(text)
        except ValueError:
            texts = []
        if not isinstance(texts, list) or len(texts) != len(columns):
            example = json.dumps([f"value of {column.name}" for column in columns])
            raise BadKey(f"Key {clip(text)} must be a JSON array with {len(columns)} values: {example}.")
    return tuple(_parse_value(column, value) for column, value in zip(columns, texts, strict=True))


def key_digests(keys: Sequence[Any], columns: Sequence[KeyColumn], secret: bytes) -> tuple[Keys, Keys]:
    """Return the digests of keys, in two halves. A key is a tuple with a value for each column, or a bare value.

    Raises `BadKey` if a value is missing or does not have the type of its column.
    """
    rows = [key if isinstance(key, tuple | list) else (key,) for key in keys]
    for row in rows:
        if len(row) != len(columns):
            names = ", ".join(column.name for column in columns)
            raise BadKey(f"Key {clip(str(row))} has {len(row)} values; the key columns are ({names}).")
    arrays = []
    for at, column in enumerate(columns):
        try:
            array = pa.array([_check_value(column, row[at]) for row in rows], column.type)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise BadKey(f"A value of the key column '{column.name}' is no {column.kind}: {error}") from error
        arrays.append(array)
    high, low, _ = digests_of_keys(arrays, secret)
    return high, low


def _parse_value(column: KeyColumn, value: Any) -> Any:
    text = value if isinstance(value, str) else json.dumps(value)
    try:
        return column.parse(text)
    except (ValueError, InvalidOperation):
        raise BadKey(f"Value {clip(text)} of the key column '{column.name}' is no {column.kind}.") from None


def _check_value(column: KeyColumn, value: Any) -> Any:
    if value is None:
        raise BadKey(f"The key column '{column.name}' is null. A row with a null in its key is never remembered.")
    if isinstance(value, bool) != (column.kind == "boolean"):
        # Arrow would take True for the number 1.
        raise BadKey(f"Value {value!r} of the key column '{column.name}' is no {column.kind}.")
    if column.kind == "timestamp" and isinstance(value, datetime) and value.tzinfo is None:
        raise BadKey(f"Value {value} of the key column '{column.name}' needs a time zone.")
    return value


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _timestamp(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


_TYPES: dict[str, tuple[pa.DataType, Callable[[str], Any]]] = {
    "string": (pa.string(), str),
    "binary": (pa.binary(), bytes.fromhex),
    "boolean": (pa.bool_(), _boolean),
    "tinyint": (pa.int8(), int),
    "smallint": (pa.int16(), int),
    "int": (pa.int32(), int),
    "bigint": (pa.int64(), int),
    "date": (pa.date32(), date.fromisoformat),
    "timestamp": (pa.timestamp("us", "UTC"), _timestamp),
    "timestamp_ntz": (pa.timestamp("us"), datetime.fromisoformat),
}
