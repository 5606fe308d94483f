"""The fast readers agree with the general decoder: the same fields, or the same error, for any bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.amqp.composites import to_bytes
from oncebus.amqp.encoding import encode
from oncebus.amqp.fastread import (
    disposition_fields,
    flow_fields,
    read_disposition,
    read_flow,
    read_transfer,
    transfer_fields,
)
from oncebus.amqp.fastwrite import (
    continued_fields,
    delivery_fields,
    disposition_frame,
    encode_uint,
    flow_frame,
    link_flow,
    transfer_head,
)
from oncebus.amqp.outcomes import Accepted, AmqpError, Modified, ReceivedState, Rejected, Released
from oncebus.amqp.performatives import Disposition, Flow, Transfer, decode_performative
from oncebus.amqp.types import DecodeError, Described, Symbol, ULong
from tests.properties import examples

Read = Callable[[bytes, int, int], tuple[Any, ...]]


def generally(data: bytes, at: int, end: int) -> tuple[Any, ...]:
    performative, stop = decode_performative(data, at, end)
    if isinstance(performative, Transfer):
        return transfer_fields(performative, stop)
    if isinstance(performative, Disposition):
        return disposition_fields(performative)
    assert isinstance(performative, Flow)
    return flow_fields(performative)


def outcome(read: Read, data: bytes, at: int, end: int) -> object:
    try:
        fields = read(data, at, end)
    except DecodeError as error:
        return str(error)
    return [(type(field) is bool, field) for field in fields]


def all_forms(number: int) -> list[bytes]:
    forms = [b"\x70" + struct.pack(">I", number)]
    if number < 256:
        forms.append(bytes((0x52, number)))
    if number == 0:
        forms.append(b"\x43")
    return forms


NUMBERS = [0, 1, 127, 128, 255, 256, 2**31, 2**32 - 1]
NULL = b"\x40"
ANYTHING = [b"\x40", b"\x41", b"\x43", b"\x52\x07", b"\xa0\x01x", b"\xa1\x01x", b"\x45", b"\x50\x01", b"\x19"]
STATES = [
    *map(
        to_bytes,
        [
            Accepted(),
            Accepted(),
            Released(),
            Rejected(),
            Rejected(AmqpError("a:b", "words")),
            Modified(True, False, {Symbol("a"): 1}),
            ReceivedState(1, 2),
            Described(ULong(0x34), [b"tx", None]),
        ],
    ),
    b"\x00\x53\x24\xc0\x01\x00",
    b"\x00\x53\x26\xd0\x00\x00\x00\x04\x00\x00\x00\x00",
    b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x24\x45",
]


def a_uint(random: Random) -> bytes:
    return random.choice(all_forms(random.choice([*NUMBERS, random.randrange(2**32)])))


def a_boolean(random: Random) -> bytes:
    return random.choice([b"\x41", b"\x42", b"\x41", b"\x42", b"\x56\x00", b"\x56\x01"])


def a_tag(random: Random) -> bytes:
    tag = random.randbytes(random.choice([0, 1, 4, 16, 32, 40]))
    return encode(tag) if random.random() < 0.9 else b"\xb0" + struct.pack(">I", len(tag)) + tag


def a_state(random: Random) -> bytes:
    return random.choice(STATES)


def a_mode(random: Random) -> bytes:
    return random.choice([b"\x50\x00", b"\x50\x01"])


def a_map(random: Random) -> bytes:
    return encode({Symbol("a"): random.randrange(3)})


Field = Callable[[Random], bytes]
FIELDS: dict[int, list[Field]] = {
    0x14: [a_uint, a_uint, a_tag, a_uint, a_boolean, a_boolean, a_mode, a_state, a_boolean, a_boolean, a_boolean],
    0x15: [a_boolean, a_uint, a_uint, a_boolean, a_state, a_boolean],
    0x13: [a_uint, a_uint, a_uint, a_uint, a_uint, a_uint, a_uint, a_uint, a_boolean, a_boolean, a_map],
}
READERS: dict[int, Read] = {0x14: read_transfer, 0x15: read_disposition, 0x13: read_flow}
KINDS = pytest.mark.parametrize("code", READERS, ids=["transfer", "disposition", "flow"])


def a_body(random: Random, code: int) -> bytes:
    """Return a performative with some of its fields, each in any encoding or null, in a short or long list."""
    fields = []
    nulls = random.choice([0.0, 0.2, 0.8])
    for field in FIELDS[code][: random.randint(0, len(FIELDS[code]))]:
        if random.random() < 0.02:
            fields.append(random.choice(ANYTHING))
        else:
            fields.append(NULL if random.random() < nulls else field(random))
    content = b"".join(fields)
    count = max(len(fields) + random.choice([0] * 20 + [1, -1]), 0)
    if random.random() < 0.5 or len(content) > 254:
        listed = b"\xd0" + struct.pack(">II", len(content) + 4, count) + content
    else:
        listed = bytes((0xC0, len(content) + 1, count)) + content
    return bytes((0x00, 0x53, code)) + listed


@KINDS
def test_the_fast_reader_agrees_with_the_general_decoder(code: int) -> None:
    random = Random(code)
    read = 0
    for _ in range(3000):
        before, body, after = random.randbytes(random.randrange(5)), a_body(random, code), random.randbytes(5)
        data = before + body + after[: random.randrange(6)]
        end = random.choice([len(data), len(before) + len(body), len(data) - 1])
        found = outcome(READERS[code], data, len(before), end)
        assert found == outcome(generally, data, len(before), end), data
        read += not isinstance(found, str)
    assert read > 500


@KINDS
def test_the_fast_reader_agrees_about_malformed_bytes(code: int) -> None:
    random = Random(code)
    for _ in range(3000):
        data = bytearray(a_body(random, code))
        for _ in range(random.randrange(4)):
            if len(data) > 4:
                data[random.randrange(3, len(data))] = random.choice([random.randrange(256), 0x40, 0x41, 0x43, 0x70])
        whole = bytes(data[: random.randrange(4, len(data) + 1)] if random.random() < 0.3 else data)
        found = outcome(READERS[code], whole, 0, len(whole))
        assert found == outcome(generally, whole, 0, len(whole)), whole


USUAL = [
    # As azure-servicebus, Proton and rhea write them.
    (read_transfer, "005314c0 16 0b 43 43 a00430303030 43 42 42 40 40 40 40 40"),
    (read_transfer, "005314c0 1b 0b 5203 700001e240 a00400000001 7080013700 42 42 4040404040"),
    (read_transfer, "005314d0 00000011 00000004 43 5205 a00800000000000000ff 43"),
    (read_transfer, "005314d0 00000013 00000006 43 5205 a00800000000000000ff 43 42 41"),
    (read_transfer, "005314d0 0000000a 0000000b 43 5205 a000 43 41 42 40 40 40 40 41"),
    (read_disposition, "005315c0 0d 06 41 5207 5207 42 00532445 40"),
    (read_disposition, "005315d0 00000011 00000005 41 43 5209 41 005324d00000000400000000"),
    (read_disposition, "005315c0 0d 06 42 43 5207 41 005326c00100 42"),
    (read_disposition, "005315c0 06 05 41 5207 40 41 40"),
    (read_flow, "005313c0 1e 0b 43 7000010000 43 7000010000 5201 43 7000002710 40 42 42 40"),
    (read_flow, "005313d0 00000018 00000009 5201 707fffffff 5203 707fffffff 43 43 5232 43 41"),
    (read_flow, "005313c0 0d 04 43 7000000800 43 70000007ff"),
]


@pytest.mark.parametrize(("read", "body"), USUAL)
def test_the_encodings_of_clients_need_no_general_decoder(
    read: Read, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytearray(bytes.fromhex(body))
    # The sizes above are only for readability, and are corrected here.
    if data[3] == 0xC0:
        data[4] = len(data) - 5
    else:
        data[4:8] = struct.pack(">I", len(data) - 8)
    whole = bytes(data)
    expected = outcome(generally, whole, 0, len(whole))
    assert not isinstance(expected, str)

    def fail(data: bytes, at: int, end: int) -> None:
        pytest.fail("The general decoder was needed.")

    monkeypatch.setattr("oncebus.amqp.fastread.decode_performative", fail)
    assert outcome(read, whole, 0, len(whole)) == expected


numbers = st.sampled_from(NUMBERS) | st.integers(0, 2**32 - 1)


def body_of(frame: bytes) -> bytes:
    assert int.from_bytes(frame[:4], "big") == len(frame)
    assert frame[4:8] == b"\x02\x00\x00\x07"
    return frame[8:]


@given(numbers, numbers, st.binary(max_size=32), numbers, st.booleans(), st.booleans(), st.binary(max_size=300))
@examples(60)
def test_transfers_are_written_as_they_are_read(
    handle: int, number: int, tag: bytes, message_format: int, settled: bool, more: bool, payload: bytes
) -> None:
    fields = delivery_fields(encode_uint(handle), number, tag, message_format)
    body = body_of(transfer_head(7, fields, settled, more, len(payload)) + payload)
    assert read_transfer(body, 0, len(body)) == generally(body, 0, len(body))
    expected = Transfer(
        handle=handle, delivery_id=number, delivery_tag=tag, message_format=message_format, settled=settled, more=more
    )
    assert decode_performative(body, 0, len(body)) == (expected, len(body) - len(payload))
    body = body_of(transfer_head(7, continued_fields(encode_uint(handle)), settled, more, len(payload)) + payload)
    expected = Transfer(handle=handle, settled=settled, more=more)
    assert decode_performative(body, 0, len(body)) == (expected, len(body) - len(payload))


@given(st.booleans(), numbers, numbers, st.integers(0, 400))
@examples(60)
def test_dispositions_are_written_as_they_are_read(role: bool, first: int, last: int, words: int) -> None:
    for state in (Accepted(), Rejected(AmqpError("a:b", "w" * words))):
        body = body_of(disposition_frame(7, role, first, last, to_bytes(state)))
        expected = Disposition(role=role, first=first, last=last, settled=True, state=state)
        assert decode_performative(body, 0, len(body)) == (expected, len(body))


@given(numbers, numbers, numbers, numbers, numbers, numbers, numbers, st.booleans())
@examples(60)
def test_flows_are_written_as_they_are_read(
    next_in: int, window_in: int, next_out: int, window_out: int, handle: int, count: int, credit: int, drain: bool
) -> None:
    body = body_of(flow_frame(7, next_in, window_in, next_out, window_out))
    windows = {
        "next_incoming_id": next_in,
        "incoming_window": window_in,
        "next_outgoing_id": next_out,
        "outgoing_window": window_out,
    }
    assert decode_performative(body, 0, len(body)) == (Flow(**windows), len(body))  # type: ignore[arg-type]
    link = link_flow(encode_uint(handle), count, credit, drain)
    body = body_of(flow_frame(7, next_in, window_in, next_out, window_out, link))
    expected = Flow(**windows, handle=handle, delivery_count=count, link_credit=credit, drain=drain)  # type: ignore[arg-type]
    assert decode_performative(body, 0, len(body)) == (expected, len(body))
    assert read_flow(body, 0, len(body)) == flow_fields(expected)
