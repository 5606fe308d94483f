from __future__ import annotations

import contextlib
import time
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.amqp.decoding import decode_all
from oncebus.amqp.encoding import encode
from oncebus.amqp.head import (
    Id,
    Identity,
    Properties,
    application_properties,
    filter_properties,
    group_id,
    id_text,
    identity,
    message_id,
    properties,
    with_application_properties,
    with_properties,
)
from oncebus.amqp.message import (
    AmqpSequence,
    AmqpValue,
    Header,
    Parts,
    annotate,
    decode_body,
    deliverable,
    encode_message,
    split,
    split_batch,
    split_plain,
)
from oncebus.amqp.types import Decimal32, DecodeError, Described, EncodeError, Float, Symbol, Timestamp, UInt, ULong
from tests.amqp.values import same, simple, texts
from tests.properties import examples

ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")

HEADER = bytes.fromhex("005370 c0 06 04 41 50 07 40 40")
DELIVERY = bytes.fromhex("005371 c1 01 00")
OWN_DELIVERY = bytes.fromhex("005371 c1 06 02 a3 01 64 55 01")
ANNOTATIONS = bytes.fromhex("005372 c1 06 02 a3 01 61 55 05")
# In the long encodings, so that a re-encoded byte would show.
PROPERTIES = bytes.fromhex("005373 d0 00000011 00000003 b1 00000001 69 40 b1 00000001 74")
OWN = bytes.fromhex("005374 d1 00000019 00000004 a1016b b10000000176 a1016e 800000000000000001")
DATA = b"\x00\x53\x75\xa0\x03abc"
SEQUENCE = b"\x00\x53\x76\xc0\x02\x01\x41"
VALUE = b"\x00\x53\x77\x40"
FOOTER = b"\x00\x53\x78\xc1\x01\x00"


def test_a_message_is_split_and_its_bytes_are_kept() -> None:
    parts = split(HEADER + DELIVERY + ANNOTATIONS + PROPERTIES + OWN + DATA + DATA + FOOTER)
    assert parts.header == Header(durable=True, priority=7)
    assert same(parts.delivery_annotations, {})
    assert same(parts.annotations, {Symbol("a"): 5})
    assert parts.head == PROPERTIES + OWN
    assert parts.body == DATA + DATA + FOOTER
    assert message_id(parts.head) == "i"
    assert properties(parts.head) == Properties(message_id="i", to="t")
    assert same(application_properties(parts.head), {"k": "v", "n": ULong(1)})
    assert decode_body(parts.body) == b"abcabc"


@given(st.permutations([HEADER, OWN_DELIVERY, ANNOTATIONS, PROPERTIES, OWN, DATA, FOOTER]))
def test_sections_may_come_in_any_order(sections: list[bytes]) -> None:
    parts = split(b"".join(sections))
    assert parts == split(HEADER + OWN_DELIVERY + ANNOTATIONS + PROPERTIES + OWN + DATA + FOOTER)
    assert parts.body == DATA + FOOTER


def test_the_data_sections_of_a_body_stay_in_their_order() -> None:
    more = b"\x00\x53\x75\xa0\x03def"
    assert split(DATA + OWN_DELIVERY + more + PROPERTIES).body == DATA + more


@pytest.mark.parametrize("bare", [b"", PROPERTIES, OWN, PROPERTIES + OWN])
def test_an_annotated_head_is_read_and_changed_like_a_bare_one(bare: bytes) -> None:
    header = Header(durable=True, priority=7, first_acquirer=False)
    annotations: dict[Any, Any] = {Symbol("a"): None, ULong(5): "five"}
    head = annotate(bare, header, {Symbol("d"): UInt(1)}, annotations)
    assert head.endswith(bare)
    for reader in (identity, properties, application_properties, filter_properties):
        assert reader(head) == reader(bare)
    before = head[: len(head) - len(bare)]
    assert with_properties(head, {"to": "x"}) == before + with_properties(bare, {"to": "x"})
    assert with_application_properties(head, {"k": 1}) == before + with_application_properties(bare, {"k": 1})
    assert with_application_properties(head, {}, ["k", "n"]) == before + with_application_properties(
        bare, {}, ["k", "n"]
    )
    sent = split(b"".join(deliverable(head, DATA + FOOTER, Header(ttl=5000, delivery_count=3), {"a": 1}, {"d": 2})))
    assert sent.header == Header(True, 7, 5000, False, 3)
    assert same(sent.delivery_annotations, {Symbol("d"): 2})
    assert same(sent.annotations, {ULong(5): "five", Symbol("a"): 1})
    assert (sent.head, sent.body) == (bare, DATA + FOOTER)


def test_a_head_without_annotations_stays_bare() -> None:
    assert annotate(PROPERTIES, Header(ttl=5, delivery_count=2), {}, {}) == PROPERTIES


SHORT = bytes.fromhex("005373 c0 04 01 a1 01 69")
NO_GROUP = bytes.fromhex("005373 c0 10 0d a1 01 69") + b"\x40" * 12
OWN_SHORT = bytes.fromhex("005374 c1 06 02 a1 01 6b 54 01")
LONG_DATA = b"\x00\x53\x75\xb0\x00\x00\x00\x03abc"
PLAIN = [head + own + body for head in (SHORT, NO_GROUP) for own in (b"", OWN_SHORT) for body in (DATA, LONG_DATA)]


@pytest.mark.parametrize("data", PLAIN)
def test_a_message_in_the_usual_form_is_split_at_once(data: bytes) -> None:
    parts = split(data)
    assert split_plain(data) == (parts.head, parts.body, "i")


def matches(data: bytes) -> None:
    """Check that `split_plain` gives up, or finds what the general functions find."""
    plain = split_plain(data)
    if plain is not None:
        parts = split(data)
        assert tuple(parts) == (Header(), {}, {}, *plain[:2])
        assert identity(parts.head) == Identity(plain[2], None)


@pytest.mark.parametrize("data", PLAIN)
def test_splitting_at_once_never_finds_anything_else(data: bytes) -> None:
    for at in range(len(data)):
        matches(data[:at])
        for byte in range(256):
            matches(data[:at] + bytes([byte]) + data[at + 1 :])
    for other in (HEADER, ANNOTATIONS, DATA, VALUE, FOOTER):
        assert split_plain(other + data) is None
        assert split_plain(data + other) is None
    assert split_plain(encode_message(Properties(message_id="i", group_id="g"), None, b"x")[0] + DATA) is None


@given(st.lists(st.binary(max_size=300), max_size=5), st.integers(0, 6), st.booleans())
def test_a_batch_is_split_into_its_data_sections(inner: list[bytes], most: int, has_more: bool) -> None:
    envelope = (HEADER if has_more else b"") + b"".join(b"\x00\x53\x75" + encode(each) for each in inner)
    assert split_batch(envelope, most) == inner[:most]
    assert split_batch(envelope) == inner


@pytest.mark.parametrize("head", [b"", PROPERTIES, OWN, PROPERTIES + OWN])
@pytest.mark.parametrize("body", [b"", DATA, SEQUENCE + SEQUENCE, VALUE, FOOTER, VALUE + FOOTER])
@pytest.mark.parametrize("before", [b"", HEADER, DELIVERY, ANNOTATIONS, HEADER + ANNOTATIONS])
def test_any_section_may_be_missing(before: bytes, head: bytes, body: bytes) -> None:
    parts = split(before + head + body)
    assert (parts.head, parts.body) == (head, body)


def test_descriptors_may_be_long_or_symbols() -> None:
    for descriptor in (
        b"\x80" + bytes(7) + b"\x75",
        b"\xa3\x10amqp:data:binary",
        b"\xb3\x00\x00\x00\x10amqp:data:binary",
    ):
        data = b"\x00" + descriptor + b"\xa0\x01x"
        assert split(data).body == data
        assert decode_body(data) == b"x"
    for symbol, value in (("header:list", b"\x45"), ("amqp-value:*", b"\x41"), ("amqp-sequence:list", b"\x45")):
        split(b"\x00" + encode(Symbol(f"amqp:{symbol}")) + value)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (PROPERTIES + HEADER + PROPERTIES, "AMQP properties at byte 36: the section comes twice."),
        (OWN + OWN, "AMQP application-properties at byte 33: the section comes twice."),
        (VALUE + VALUE, "AMQP amqp-value at byte 4: the section comes twice."),
        (DATA + VALUE, "AMQP amqp-value at byte 8: the body already has a section of data."),
        (SEQUENCE + DATA, "AMQP data at byte 7: the body already has a section of amqp-sequence."),
        (DATA + FOOTER + VALUE, "AMQP amqp-value at byte 14: the body already has a section of data."),
        (b"\x00\x53\x79\x45", "AMQP section at byte 0: descriptor 0x79 is unknown."),
        (b"\x00\xa3\x01a\x45", "AMQP section at byte 0: descriptor Symbol('a') is unknown."),
        (b"\x00\x45\x45", "AMQP section at byte 0: descriptor [] is unknown."),
        (b"\x40", "AMQP section at byte 0: 0x40 does not begin a section."),
        (b"\x00\x53\x75", "AMQP data at byte 3: no value follows the descriptor."),
        (b"\x00\x53\x75\xa1\x01a", "AMQP data at byte 3: format code 0xa1 does not encode a binary."),
        (b"\x00\x53\x70\xc0\x02\x01", "AMQP value at byte 3: it runs past the end of the bytes that enclose it."),
        (b"\x00\x53\x70\xc0\x03\x01\x55\x01", "AMQP header at byte 0: durable cannot be 1."),
        (b"\x00\x53\x70\xc0\x07\x06\x40\x40\x40\x40\x40\x40", "AMQP header at byte 0: 6 fields are more than 5."),
    ],
)  # fmt: skip
def test_bytes_that_are_not_a_message_are_refused(data: bytes, text: str) -> None:
    with pytest.raises(DecodeError) as caught:
        split(data)
    assert str(caught.value) == text


HEAD_READERS = (
    identity, properties, application_properties, filter_properties,
    lambda head: with_properties(head, {"to": "x"}), lambda head: with_application_properties(head, {"k": 1}),
)  # fmt: skip


@given(st.data())
@examples(200)
def test_mutated_messages_are_read_or_refused(data: st.DataObject) -> None:
    whole = (
        HEADER
        + DELIVERY
        + ANNOTATIONS
        + PROPERTIES
        + OWN
        + data.draw(st.sampled_from([DATA, SEQUENCE, VALUE]))
        + FOOTER
    )
    message = bytearray(whole[: data.draw(st.integers(0, len(whole)) | st.just(len(whole)))])
    for _ in range(data.draw(st.integers(1, 4)) if message else 0):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    try:
        parts = split(bytes(message))
    except DecodeError:
        parts = None
    began = time.process_time()
    heads = [bytes(message), *([parts.head] if parts else [])]
    for read in (*HEAD_READERS, split_batch, decode_body):
        for given_bytes in [*heads, *([parts.body] if parts else [])]:
            with contextlib.suppress(DecodeError):
                read(given_bytes)
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (ID, "00112233-4455-6677-8899-aabbccddeeff"),
        (ULong(42), "42"),
        ("12345.2017/Payment", "12345.2017/Payment"),
        (b"42", b"42"),
    ],
)
def test_ids_of_different_types_may_be_equal(value: Id, text: str | bytes) -> None:
    assert id_text(value) == text
    assert type(id_text(value)) is type(text)
    head, _ = encode_message(Properties(message_id=value), None, b"")
    assert same(message_id(head), value)


def test_identity_is_read_without_the_other_fields() -> None:
    assert identity(b"") == identity(OWN) == identity(b"\x00\x53\x73\x45") == Identity(None, None)
    head, _ = encode_message(
        Properties(message_id=ID, subject="s", group_id="g", group_sequence=UInt(1)), {"a": 1}, b""
    )
    assert identity(head) == (ID, "g")
    assert group_id(head) == "g"
    for wrong in ([True], [Symbol("a")], [1], [None] * 10 + [b"g"]):
        with pytest.raises(DecodeError, match="cannot be"):
            identity(encode(Described(ULong(0x73), wrong)))
        with pytest.raises(DecodeError, match="cannot be"):
            properties(encode(Described(ULong(0x73), wrong)))
    with pytest.raises(DecodeError, match="14 fields are more than 13"):
        properties(encode(Described(ULong(0x73), [None] * 14)))
    with pytest.raises(DecodeError, match="name 1 is not a string"):
        application_properties(encode(Described(ULong(0x74), {1: 1})))


LONG_DESCRIPTOR = bytes.fromhex("00 80 0000000000000073")
"""A descriptor of the properties that no client writes, so that the general reader is used."""


@given(
    st.sampled_from([None, "", "i", "é" * 20, "i" * 200, b"i", ID, ULong(5)]),
    st.integers(0, 12),
    st.sampled_from([None, "", "g"]),
    st.sampled_from([None, "t"]),
    st.none() | st.tuples(st.integers(0, 300), st.integers(0, 255)),
    st.integers(0, 20),
)
def test_identity_is_the_same_however_the_properties_are_written(
    first: Id | None, others: int, group: str | None, to: str | None, changed: tuple[int, int] | None, removed: int
) -> None:
    fields = [first, *[None] * others]
    if others > 1:
        fields[2] = to
    if others > 9:
        fields[10] = group
    value = bytearray(encode(fields))
    if changed is not None:
        value[changed[0] % len(value)] = changed[1]
        del value[max(len(value) - removed, 1) :]

    def found(descriptor: bytes) -> Identity | None:
        try:
            return identity(descriptor + bytes(value))
        except DecodeError:
            return None

    assert same(found(b"\x00\x53\x73"), found(LONG_DESCRIPTOR))


def test_an_id_is_set_whether_there_are_properties_or_not() -> None:
    given_one = with_properties(OWN, {"message_id": "new"})
    assert given_one == b"\x00\x53\x73\xc0\x06\x01\xa1\x03new" + OWN
    long_to = b"\xb1\x00\x00\x00\x01t"
    nameless = b"\x00\x53\x73\xc0\x09\x03\x40\x40" + long_to + OWN
    given_one = with_properties(nameless, {"message_id": ID})
    assert given_one == b"\x00\x53\x73\xc0\x19\x03\x98" + ID.bytes + b"\x40" + long_to + OWN
    assert properties(with_properties(b"\x00\x53\x73\x45", {"message_id": b"x"})) == Properties(message_id=b"x")


def test_properties_are_changed_and_the_others_keep_their_bytes() -> None:
    changed = with_properties(PROPERTIES + OWN, {"content_type": "text/plain", "message_id": 5, "creation_time": 7})
    assert changed.endswith(OWN)
    assert b"\xb1\x00\x00\x00\x01t" in changed
    found = properties(changed)
    assert same(found.content_type, Symbol("text/plain"))
    assert same(found.message_id, ULong(5))
    assert same(found.creation_time, Timestamp(7))
    assert found.to == "t"
    assert properties(with_properties(changed, {"to": None})).to is None
    assert with_properties(OWN, {}) == OWN
    for changes in ({"colour": "x"}, {"to": 5}, {"user_id": "x"}, {"message_id": True}, {"message_id": 1.5}):
        with pytest.raises(EncodeError):
            with_properties(OWN, changes)


def test_application_properties_are_changed_and_the_others_keep_their_bytes() -> None:
    changed = with_application_properties(PROPERTIES + OWN, {"n": "two", "new": UInt(3)})
    assert changed.startswith(PROPERTIES)
    assert b"\xa1\x01k\xb1\x00\x00\x00\x01v" in changed
    assert same(application_properties(changed), {"k": "v", "n": "two", "new": UInt(3)})
    assert with_application_properties(PROPERTIES + OWN, {}, ["k", "n", "z"]) == PROPERTIES
    assert with_application_properties(PROPERTIES, {}) == PROPERTIES
    assert with_application_properties(b"", {"a": None}) == b"\x00\x53\x74" + encode({"a": None})


own_properties = st.dictionaries(texts, simple, max_size=4)


@given(own_properties, own_properties, st.lists(texts, max_size=3))
@examples(53)
def test_changes_are_those_of_a_dict(before: dict[str, Any], changes: dict[str, Any], removed: list[str]) -> None:
    head, _ = encode_message(Properties(message_id="i"), before, b"")
    expected = {name: value for name, value in before.items() if name not in removed} | changes
    assert same(application_properties(with_application_properties(head, changes, removed)), expected)


def test_bodies_of_each_kind() -> None:
    for body in (b"", b"abc", AmqpValue(None), AmqpValue({"a": [1]}), AmqpSequence([1, "a"]), AmqpSequence([])):
        assert decode_body(encode_message(None, None, body)[1]) == body
    assert encode_message(Properties(), {}, b"") == (b"", b"\x00\x53\x75\xa0\x00")
    assert decode_body(SEQUENCE + SEQUENCE) == AmqpSequence([True, True])
    assert decode_body(b"") == decode_body(FOOTER) == b""
    with pytest.raises(DecodeError):
        decode_body(OWN + DATA)


def test_a_delivered_message_is_header_annotations_and_the_same_bytes() -> None:
    annotations = {"x-opt-sequence-number": 5, "x-opt-lock-token": ID}
    first, *rest = deliverable(PROPERTIES + OWN, DATA, Header(True, 4, 1001, None, 2), annotations, {"token": ID})
    assert rest == [PROPERTIES + OWN, DATA]
    assert first.startswith(b"\x00\x53\x70\xc0")
    parts = split(b"".join([first, *rest]))
    assert all(type(name) is Symbol for name in parts.annotations)
    assert all(type(name) is Symbol for name in parts.delivery_annotations)
    assert parts == Parts(Header(True, 4, 2000, None, 2), {"token": ID}, annotations, PROPERTIES + OWN, DATA)
    assert same(decode_all(deliverable(b"", b"", Header(), {})[0]).value, [None, None, None, None, UInt(0)])
    assert split(deliverable(b"", b"", Header(ttl=2**60), {})[0]).header.ttl == (2**32 - 1) * 1000


def test_a_batch_is_a_data_section_for_each_message() -> None:
    messages = [DATA, PROPERTIES + DATA, b"x" * 300, b""]
    batch = b"".join(b"\x00\x53\x75" + encode(message) for message in messages)
    assert split_batch(ANNOTATIONS + PROPERTIES + batch) == messages
    assert split_batch(memoryview(batch)) == messages
    assert split_batch(b"") == []
    with pytest.raises(DecodeError, match="must be data sections"):
        split_batch(VALUE)


def test_filters_see_plain_values() -> None:
    fields = Properties(
        message_id=ID, correlation_id=ULong(7), to="t", reply_to="r", subject="l", group_id="g",
        reply_to_group_id="rg", content_type="c", user_id=b"u",
    )  # fmt: skip
    ticks = 621_355_968_000_000_000 + 15_000_000
    own = {
        "text": "a", "symbol": Symbol("s"), "uint": UInt(1), "float": Float(1.5), "double": 2.5, "flag": True,
        "bytes": b"b", "uuid": ID, "time": Timestamp(5), "decimal": Decimal32(b"1234"), "nothing": None,
        "uri": Described(Symbol("com.microsoft:uri"), "http://x"),
        "date": Described(Symbol("com.microsoft:datetime-offset"), ticks),
    }  # fmt: skip
    system, user = filter_properties(encode_message(fields, own, b"")[0])
    assert same(
        system,
        {
            "MessageId": str(ID), "CorrelationId": "7", "To": "t", "ReplyTo": "r", "Label": "l", "SessionId": "g",
            "ReplyToSessionId": "rg", "ContentType": "c",
        },
    )  # fmt: skip
    assert same(
        user,
        {**own, "symbol": "s", "uint": 1, "float": 1.5, "uri": "http://x", "date": Timestamp(1500)},
    )
    assert filter_properties(b"") == ({}, {})
