"""The limit on the number of elements in a value."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given

from oncebus.amqp.budget import check_elements
from oncebus.amqp.decoding import decode, decode_all
from oncebus.amqp.encoding import encode
from oncebus.amqp.limits import MOST_ELEMENTS, MOST_FRAME_ELEMENTS, MOST_SECTIONS
from oncebus.amqp.message import decode_body, split
from oncebus.amqp.performatives import Close
from oncebus.amqp.types import Array, DecodeError, Described, Symbol, ULong
from tests.amqp.client import Client, kinds, receiver, written
from tests.amqp.values import values
from tests.properties import examples


def elements(value: Any) -> int:
    """Return how many values a decoded value holds, itself included."""
    if isinstance(value, Described):
        return 1 + elements(value.descriptor) + elements(value.value)
    if isinstance(value, Array):
        return 1 + sum(map(elements, value)) + sum(map(elements, value.descriptors))
    if isinstance(value, dict):
        return 1 + sum(elements(key) + elements(item) for key, item in value.items())
    if isinstance(value, list):
        return 1 + sum(map(elements, value))
    return 1


@examples(300)
@given(values)
def test_all_elements_of_a_value_are_counted(value: Any) -> None:
    data = encode(value)
    count = check_elements(data + b"more", 0, len(data) + 4, 10**6)
    assert count == elements(decode_all(data))
    decode(data, most_elements=count)
    with pytest.raises(DecodeError, match=f"more than {count - 1} elements"):
        check_elements(data, 0, len(data), count - 1)


def test_malformed_bytes_end_the_count() -> None:
    random = Random(7)
    for _ in range(20_000):
        data = bytes(
            random.choices([0x00, 0x45, 0xC0, 0xD0, 0xE0, 0xF0, 0x40, 0x53, 1, 2, 5], k=random.randrange(1, 30))
        )
        # For any bytes, the count is never lower than the number of values that the decoder returns.
        try:
            value, _ = decode(data)
        except DecodeError:
            check_elements(data, 0, len(data), 10**6)
        else:
            assert check_elements(data, 0, len(data), 10**6) == elements(value), data


@pytest.mark.parametrize(
    "value",
    [
        [[]] * MOST_ELEMENTS,
        {"a": [{}] * MOST_ELEMENTS},
        Array(list, [[]] * MOST_ELEMENTS),
        Array(ULong, [ULong(1)], (([[]] * MOST_ELEMENTS),)),
        Described([[]] * MOST_ELEMENTS, None),
        [True] * MOST_ELEMENTS,
    ],
    ids=["list", "map", "array", "array's descriptor", "descriptor", "constants"],
)
def test_a_value_of_too_many_elements_is_not_decoded(value: Any) -> None:
    data = encode(value)
    with pytest.raises(DecodeError, match=f"more than {MOST_ELEMENTS} elements"):
        decode_all(data)


def test_a_long_text_is_one_element() -> None:
    assert decode_all(encode(["x" * 10 * MOST_ELEMENTS])) == ["x" * 10 * MOST_ELEMENTS]


def test_all_sections_of_a_body_share_one_limit() -> None:
    half = b"\x00\x53\x76" + encode([True] * (MOST_ELEMENTS // 2))
    assert decode_body(half) is not None
    with pytest.raises(DecodeError, match="more than"):
        decode_body(half * 2)


def test_annotations_have_the_limit_of_a_frame() -> None:
    annotations = b"\x00\x53\x72" + encode({Symbol("a"): [True] * MOST_FRAME_ELEMENTS})
    with pytest.raises(DecodeError, match=f"more than {MOST_FRAME_ELEMENTS} elements"):
        split(annotations + b"\x00\x53\x75\xa0\x01x")


def test_a_frame_of_too_many_elements_ends_the_connection() -> None:
    client = Client()
    client.begin()
    attach = receiver(properties={Symbol("a"): [[]] * MOST_FRAME_ELEMENTS})
    assert kinds(client.raw(written(attach)))[-1] == "Closed"
    close = client.answer(Close)
    assert close.error is not None
    assert close.error.condition == "amqp:decode-error"


def test_the_number_of_sections_of_a_message_is_limited() -> None:
    piece = bytes((0x00, 0x53, 0x75, 0xA0, 0x00))
    assert split(piece * MOST_SECTIONS).body == piece * MOST_SECTIONS
    with pytest.raises(DecodeError, match=f"more than {MOST_SECTIONS} sections"):
        split(piece * (MOST_SECTIONS + 1))
    with pytest.raises(DecodeError, match=f"more than {MOST_SECTIONS} sections"):
        decode_body(piece * (MOST_SECTIONS + 1))
