"""Hypothesis strategies for all AMQP values."""

from __future__ import annotations

import uuid
from typing import Any

from hypothesis import strategies as st

from oncebus.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)


def whole(kind: type, bits: int, *, signed: bool) -> st.SearchStrategy[Any]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    near = st.integers(max(low, -130), min(high, 260))
    return (near | st.integers(low, high)).map(kind)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.just("ö" * 200)
symbols = (st.text(st.characters(max_codepoint=127), max_size=12) | st.just("s" * 300)).map(Symbol)

NUMBERS: dict[type, st.SearchStrategy[Any]] = {
    UByte: whole(UByte, 8, signed=False),
    UShort: whole(UShort, 16, signed=False),
    UInt: whole(UInt, 32, signed=False),
    ULong: whole(ULong, 64, signed=False),
    Byte: whole(Byte, 8, signed=True),
    Short: whole(Short, 16, signed=True),
    Int: whole(Int, 32, signed=True),
    int: whole(int, 64, signed=True),
    Timestamp: whole(Timestamp, 64, signed=True),
    Float: st.floats(width=32).map(Float),
    float: st.floats(),
}
SIMPLE: dict[type, st.SearchStrategy[Any]] = {
    **NUMBERS,
    bool: st.booleans(),
    Decimal32: st.binary(min_size=4, max_size=4).map(Decimal32),
    Decimal64: st.binary(min_size=8, max_size=8).map(Decimal64),
    Decimal128: st.binary(min_size=16, max_size=16).map(Decimal128),
    Char: st.characters(exclude_categories=["Cs"]).map(Char),
    uuid.UUID: st.uuids(),
    bytes: st.binary(max_size=12) | st.just(b"b" * 300),
    str: texts,
    Symbol: symbols,
}
simple = st.none() | st.one_of(*SIMPLE.values())
descriptors = NUMBERS[ULong] | symbols


def arrays(of: type, elements: st.SearchStrategy[Any]) -> st.SearchStrategy[Array]:
    described = st.just(()) | st.tuples(descriptors) | st.tuples(descriptors, descriptors)
    return st.builds(Array, st.just(of), st.lists(elements, max_size=4), described)


def maps(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[Any, Any]]:
    # To Python, equal keys of different types are one key; the decoder does the same.
    return st.dictionaries(simple, values, max_size=4)


def deeper(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(values, max_size=4)
    return st.one_of(
        lists,
        maps(values),
        st.builds(Described, descriptors, values),
        arrays(list, lists),
        arrays(dict, maps(values)),
        arrays(Array, arrays(str, texts)),
    )


simple_arrays = st.one_of(*[arrays(of, elements) for of, elements in SIMPLE.items()])
values = st.recursive(simple | simple_arrays, deeper, max_leaves=8)


def same(one: object, other: object) -> bool:
    """Return whether two values are equal and have the same types: 1 and UInt(1) are equal, but not the same."""
    return repr(one) == repr(other)
