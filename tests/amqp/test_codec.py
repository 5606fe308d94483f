from __future__ import annotations

import pickle
import time
import uuid
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oncebus.amqp.decoding import decode, decode_all
from oncebus.amqp.encoding import encode
from oncebus.amqp.sizes import skip
from oncebus.amqp.types import (
    DEEPEST,
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    DecodeError,
    Described,
    EncodeError,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from tests.amqp.values import same, simple, values
from tests.properties import examples

UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")

# Each primitive type in every encoding of the specification. The first encoding of a value is the shortest.
ENCODINGS: list[tuple[Any, list[str]]] = [
    (None, ["40"]),
    (True, ["41", "56 01"]),
    (False, ["42", "56 00"]),
    (UByte(0), ["50 00"]),
    (UByte(255), ["50 ff"]),
    (UShort(0x1234), ["60 1234"]),
    (UInt(0), ["43", "52 00", "70 00000000"]),
    (UInt(255), ["52 ff", "70 000000ff"]),
    (UInt(256), ["70 00000100"]),
    (ULong(0), ["44", "53 00", "80 0000000000000000"]),
    (ULong(255), ["53 ff", "80 00000000000000ff"]),
    (ULong(2**64 - 1), ["80 ffffffffffffffff"]),
    (Byte(-1), ["51 ff"]),
    (Short(-2), ["61 fffe"]),
    (Int(-128), ["54 80", "71 ffffff80"]),
    (Int(128), ["71 00000080"]),
    (127, ["55 7f", "81 000000000000007f"]),
    (-1, ["55 ff", "81 ffffffffffffffff"]),
    (-129, ["81 ffffffffffffff7f"]),
    (Float(1.5), ["72 3fc00000"]),
    (1.5, ["82 3ff8000000000000"]),
    (Decimal32(b"\x22\x50\x00\x01"), ["74 22500001"]),
    (Decimal64(bytes(8)), ["84 0000000000000000"]),
    (Decimal128(bytes(range(16))), ["94 000102030405060708090a0b0c0d0e0f"]),
    (Char("ö"), ["73 000000f6"]),
    (Timestamp(1311704463521), ["83 0000013167adb8a1"]),
    (Timestamp(-1), ["83 ffffffffffffffff"]),
    (UUID, ["98 00112233445566778899aabbccddeeff"]),
    (b"\x00\xff", ["a0 02 00ff", "b0 00000002 00ff"]),
    ("Hello Glorious Messaging World", ["a1 1e 48656c6c6f20476c6f72696f7573204d6573736167696e6720576f726c64"]),
    ("ö", ["a1 02 c3b6", "b1 00000002 c3b6"]),
    (Symbol("id"), ["a3 02 6964", "b3 00000002 6964"]),
    ([], ["45", "c0 01 00", "d0 00000004 00000000"]),
    ([UInt(0), True], ["c0 03 02 43 41", "d0 00000006 00000002 43 41"]),
    ({}, ["c1 01 00", "d1 00000004 00000000"]),
    ({"a": None}, ["c1 05 02 a1 01 61 40", "d1 00000008 00000002 a1 01 61 40"]),
    (Array(UByte, [UByte(1), UByte(2)]), ["e0 04 02 50 01 02", "f0 00000007 00000002 50 01 02"]),
    (Array(Symbol, [Symbol("a"), Symbol("bc")]), ["e0 07 02 a3 0161 026263", "e0 0d 02 b3 0000000161 000000026263"]),
    (Array(bool, [True, True]), ["e0 04 02 56 01 01", "e0 02 02 41"]),
    (Array(int, [1], (ULong(5),)), ["e0 0d 01 00 53 05 81 0000000000000001", "e0 06 01 00 53 05 55 01"]),
]  # fmt: skip


@pytest.mark.parametrize(("value", "encodings"), ENCODINGS, ids=lambda given: repr(given)[:30])
def test_every_encoding_of_the_specification_is_read_and_the_shortest_written(value: Any, encodings: list[str]) -> None:
    for encoded in map(bytes.fromhex, encodings):
        assert same(decode_all(encoded), value)
        assert same(decode_all(memoryview(encoded)), value)
        assert skip(encoded, 0, len(encoded)) == len(encoded)
    assert encode(value) == bytes.fromhex(encodings[0])


def test_the_example_of_the_specification() -> None:
    authors = Array(Symbol, [Symbol("Rob J. Godfrey"), Symbol("Rafael H. Schloming")])
    book = Described(Symbol("example:book:list"), ["AMQP for & by Dummies", authors, None])
    encoded = (
        b"\x00\xa3\x11example:book:list\xc0\x40\x03\xa1\x15AMQP for & by Dummies"
        b"\xe0\x25\x02\xa3\x0eRob J. Godfrey\x13Rafael H. Schloming\x40"
    )
    assert encode(book) == encoded
    assert same(decode_all(encoded), book)


@given(values)
@examples(100)
def test_encoded_values_are_decoded_to_the_same_types(value: Any) -> None:
    encoded = encode(value)
    assert same(decode_all(encoded), value)
    assert same(decode_all(memoryview(encoded)), value)
    assert skip(encoded, 0, len(encoded)) == len(encoded)
    assert encode(decode_all(encoded)) == encoded


@given(values, st.binary(max_size=5), st.binary(max_size=5))
@examples(33)
def test_a_value_is_read_between_other_bytes(value: Any, before: bytes, after: bytes) -> None:
    encoded = encode(value)
    found, stop = decode(before + encoded + after, len(before))
    assert same(found, value)
    assert stop == len(before) + len(encoded)


def read(data: bytes) -> Any:
    """Decode the bytes or get a DecodeError; any other exception fails. A decoded value must encode again."""
    try:
        value = decode_all(data)
    except DecodeError as error:
        assert 0 <= error.offset <= len(data)
        return None
    again = encode(value)
    assert same(decode_all(again), value)
    return value


@given(values)
@examples(33)
def test_truncated_bytes_are_refused(value: Any) -> None:
    encoded = encode(value)
    for size in range(len(encoded)):
        with pytest.raises(DecodeError):
            decode(encoded[:size])
        with pytest.raises(DecodeError):
            skip(encoded, 0, size)


@given(values, st.data())
@examples(133)
def test_mutated_bytes_are_read_or_refused(value: Any, data: st.DataObject) -> None:
    encoded = bytearray(encode(value))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(encoded) - 1))
        encoded[at] = data.draw(st.integers(0, 255) | st.sampled_from([0, 0x40, 0x45, 0xC0, 0xC1, 0xD0, 0xE0, 0xF0]))
    read(bytes(encoded))


@given(
    st.binary(max_size=60) | st.lists(st.sampled_from(b"\x00\x01\x02\x03\x40\x45\x56\xa1\xc0\xc1\xe0\xf0")).map(bytes)
)
@example(b"")
@example(b"\xe0\x02\x03\x41")
@example(b"\xc1\x04\x02\x45\x40\x40")
@examples(133)
def test_random_bytes_are_read_or_refused(data: bytes) -> None:
    read(data)


@pytest.mark.parametrize("code", [0xD0, 0xD1, 0xF0])
@pytest.mark.parametrize("element", [0x40, 0x41, 0x43, 0x44, 0x45, 0x50, 0xA0, 0xB0, 0xC0, 0xD0, 0xE0, 0xF0])
def test_a_declared_number_of_elements_costs_no_memory(code: int, element: int) -> None:
    began = time.process_time()
    for size in (b"\xff\xff\xff\xff", b"\x00\x00\x00\x05", b"\x00\x00\x00\x0d"):
        with pytest.raises(DecodeError):
            decode_all(bytes([code]) + size + b"\xff\xff\xff\xff" + bytes([element]) + bytes(8))
    for long in (0xB0, 0xB1, 0xB3):
        with pytest.raises(DecodeError):
            decode_all(bytes([long]) + b"\xff\xff\xff\xff" + bytes([element]))
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("", "AMQP value at byte 0: no bytes are left."),
        ("3f", "AMQP value at byte 0: format code 0x3f is unknown."),
        ("56 02", "AMQP boolean at byte 1: 0x02 is not a boolean."),
        ("70 0000", "AMQP uint at byte 1: it runs past the end of the bytes that enclose it."),
        ("73 0000d800", "AMQP char at byte 1: 0xd800 is not a Unicode character."),
        ("a1 03 61ff61", "AMQP string at byte 3: it is not UTF-8."),
        ("a3 02 61c3", "AMQP symbol at byte 3: it is not ASCII."),
        ("c0 03 01 40 40", "AMQP list at byte 4: 1 bytes are left over after its 1 elements."),
        ("c0 02 02 40", "AMQP list at byte 1: 2 elements do not fit in 2 bytes."),
        ("c0 03 01 70 00 00 00 00", "AMQP uint at byte 4: it runs past the end of the bytes that enclose it."),
        ("c1 02 01 40", "AMQP map at byte 3: 1 elements are not pairs of keys and values."),
        ("c1 05 04 40 40 40 40", "AMQP map at byte 3: two of its keys are equal."),
        ("c1 03 02 45 40", "AMQP map at byte 3: one of its keys is a list, map or array."),
        ("e0 02 01 40", "AMQP array at byte 1: 1 elements do not fit in 2 bytes."),
        ("40 40", "AMQP value at byte 1: 1 bytes are left over."),
        ("00 53 70", "AMQP described value at byte 3: it runs past the end of the bytes that enclose it."),
    ],
)
def test_errors_name_the_type_and_the_position(data: str, text: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_all(bytes.fromhex(data))
    assert str(caught.value) == text
    assert str(pickle.loads(pickle.dumps(caught.value))) == text


# Python does not randomize the hashes of these types; those of the first two are all the same.
COLLIDING = {
    "uuid": [uuid.UUID(int=7 + number * (2**61 - 1)) for number in range(100)],
    "described": [Described(1, uuid.UUID(int=7 + number * (2**61 - 1))) for number in range(100)],
    "number": list(range(100)),
}


@pytest.mark.parametrize("keys", COLLIDING.values(), ids=COLLIDING)
def test_a_map_with_many_keys_that_could_be_made_to_collide_is_refused(keys: list[Any]) -> None:
    few = dict.fromkeys(keys[:64], True)
    assert decode_all(encode(few)) == few
    with pytest.raises(DecodeError, match="100 of its keys are neither text nor binary"):
        decode_all(encode(dict.fromkeys(keys, True)))
    with pytest.raises(DecodeError, match="65 of its keys are neither text nor binary"):
        decode_all(encode([{"inner": dict.fromkeys([*keys[:65], "text", b"binary"], True)}]))


@pytest.mark.parametrize(
    "make",
    [str, lambda number: Symbol(str(number)), lambda number: b"%d" % number],
    ids=["string", "symbol", "binary"],
)
def test_a_map_may_have_any_number_of_keys_that_are_text_or_binary(make: Any) -> None:
    value = {make(number): True for number in range(1000)}
    assert decode_all(encode(value)) == value


def test_depth_is_limited_alike_for_reading_and_writing() -> None:
    for wrap in (lambda v: [v], lambda v: {1: v}, lambda v: Described(ULong(1), v), lambda v: Array(Array, [v])):
        value: Any = Array(int)
        for _ in range(DEEPEST - 1):
            value = wrap(value)
        assert same(decode_all(encode(value)), value)
        with pytest.raises(EncodeError):
            encode(wrap(value))
    one = b"\x40"
    for _ in range(DEEPEST + 1):
        one = b"\xd0" + (len(one) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x01" + one
    with pytest.raises(DecodeError, match="deep"):
        decode_all(one)
    with pytest.raises(DecodeError, match="deep"):
        decode_all(bytes(60_000))
    with pytest.raises(DecodeError, match="more than 65536 elements"):
        decode_all(bytes(1_000_000))
    with pytest.raises(DecodeError):
        skip(bytes(1_000_000), 0, 1_000_000)
    with pytest.raises(DecodeError, match="deep"):
        decode_all(b"\xe0\xff\x01" + b"\x00\x40" * 127)


@pytest.mark.parametrize(
    "value",
    [
        UByte(256), UByte(-1), UShort(65536), UInt(2**32), UInt(-1), ULong(2**64), ULong(-1), Byte(128), Short(32768),
        Int(2**31), 2**63, -(2**63) - 1, Long(2**63), Timestamp(2**63), Float(1e39), Decimal32(b"12345"), Char("ab"),
        Char(""), Char("\ud800"), "\ud800", Symbol("ö"), object(), {1, 2}, [object()], Array(type(None), [None]),
        Array(UInt, ["a"]), Array(UInt, [-1]), Array(str, [b"a"]), Array(object, [1]),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_value_that_a_type_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(EncodeError):
        encode(value)


def test_plain_python_values_have_a_type() -> None:
    assert encode(Long(5)) == encode(5) == b"\x55\x05"
    assert encode((1, "a")) == encode([1, "a"])
    assert encode(bytearray(b"x")) == encode(memoryview(b"x")) == encode(b"x")
    assert encode("x" * 255)[:2] == b"\xa1\xff"
    assert encode("x" * 256)[:5] == b"\xb1\x00\x00\x01\x00"


@given(simple)
@examples(50)
def test_the_text_of_a_wrapper_is_that_of_its_value(value: Any) -> None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        base = int if isinstance(value, int) else float
        assert str(value) == f"{value}" == str(base(value))
