"""Computes digests of Arrow columns: of keys, and of whole rows to break ties."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from oncebus.detection.digests import Texts, Words, digests
from oncebus.detection.values import Flags, Keys, Numbers

_PUBLIC = b"ties"
"""Not a secret, because every evaluation of a DataFrame must break ties in the same way."""
_DIGEST_BYTES = 16


def digests_of_keys(columns: Sequence[pa.Array], secret: bytes) -> tuple[Keys, Keys, Flags]:
    """Return the digest of each row's key, in two halves, and whether the row has a key (no key column is null)."""
    has_key = np.ones(len(columns[0]), np.bool_)
    for column in columns:
        if column.null_count:
            has_key &= np.asarray(column.is_valid())
    return *digests([_hashable(column) for column in columns], secret), has_key


def digests_of_rows(table: pa.Table) -> Numbers:
    """Return a number for each row. Rows that differ in any column, including nested ones, get different numbers."""
    pieces = [piece for column in table.columns for piece in _pieces(pa.concat_arrays(column.chunks))]
    high, _ = digests(pieces, _PUBLIC)
    return high.view(np.int64)


def _pieces(column: pa.Array) -> list[Words | Texts]:
    """Return the data to hash for a column of any type. It makes a null differ from every value."""
    is_valid = np.asarray(column.is_valid())
    flag = is_valid.astype(np.uint32).reshape(-1, 1)
    kind = column.type
    if pa.types.is_null(kind):
        return [flag]
    if pa.types.is_struct(kind):
        fields = (column.field(at) for at in range(kind.num_fields))
        return [flag, *(_under(is_valid, piece) for field in fields for piece in _pieces(field))]
    return [flag, _under(is_valid, _hashable(column))]


def _under(is_valid: Flags, values: Words | Texts) -> Words | Texts:
    """Return the values with those of nulls, which are undefined, replaced by zeros or empty texts."""
    if isinstance(values, Texts):
        return values._replace(lengths=np.where(is_valid, values.lengths, 0))
    return np.where(is_valid.reshape(-1, 1), values, np.uint32(0))


def _hashable(column: pa.Array) -> Words | Texts:
    """Return the values of a column that is not a struct, ready to hash. A null may get any value."""
    kind = column.type
    if pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(column)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _texts(column, np.dtype(np.int32))
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _texts(column, np.dtype(np.int64))
    if pa.types.is_boolean(kind):
        column, kind = column.cast(pa.uint8()), pa.uint8()
    width = kind.bit_width // 8
    if len(column) == 0:
        return np.empty((0, max(width // 4, 1)), np.uint32)
    stored = np.frombuffer(column.buffers()[1], np.uint8, width * len(column), width * column.offset)
    if width < 4:
        return stored.view(f"<u{width}").astype(np.uint32).reshape(-1, 1)
    return stored.view("<u4").reshape(len(column), width // 4)


def _texts(column: pa.Array, offset_type: np.dtype[np.signedinteger]) -> Texts:
    if len(column) == 0:
        return Texts(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint8))
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, offset_type, len(column) + 1, column.offset * offset_type.itemsize).astype(np.int64)
    first, last = int(ends[0]), int(ends[-1])
    # A column of empty texts may have no data at all.
    stored = np.frombuffer(data, np.uint8, last - first, first) if last > first else np.empty(0, np.uint8)
    return Texts(ends[:-1] - first, np.diff(ends), stored)


def _lists(column: pa.Array) -> Texts:
    """Return each list as the digests of its elements, one after the other."""
    ends = np.asarray(column.offsets).astype(np.int64)
    is_map = pa.types.is_map(column.type)
    elements = [column.keys, column.items] if is_map else [column.values]
    high, low = digests([piece for element in elements for piece in _pieces(element)], _PUBLIC)
    stored: npt.NDArray[np.uint8] = np.stack([high, low], axis=1).view(np.uint8).reshape(-1)
    return Texts(ends[:-1] * _DIGEST_BYTES, np.diff(ends) * _DIGEST_BYTES, stored)
