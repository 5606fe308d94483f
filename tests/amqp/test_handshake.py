from __future__ import annotations

import pytest

from oncebus.amqp.connection import Connection
from oncebus.amqp.decoding import decode_all
from oncebus.amqp.encoding import encode
from oncebus.amqp.events import Closed, Event, SaslInit
from oncebus.amqp.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame
from oncebus.amqp.limits import MOST_HELD_BYTES
from oncebus.amqp.outcomes import AmqpError
from oncebus.amqp.performatives import Close, Open
from oncebus.amqp.types import Array, Described, Symbol, UByte, ULong
from tests.amqp.client import BEGIN, OPEN, Client, credit, frames, kinds, receiver, written

MECHANISMS = ["MSSBCBS", "PLAIN", "ANONYMOUS"]


def sasl_init(mechanism: str = "ANONYMOUS", *more: object) -> bytes:
    return frame(0, encode(Described(ULong(0x41), [Symbol(mechanism), *more])), SASL_FRAME)


def sasl_frame(data: bytes) -> object:
    assert int.from_bytes(data[:4], "big") == len(data)
    assert data[4:8] == b"\x02\x01\x00\x00"
    return decode_all(data[8:])


def fresh() -> Connection:
    return Connection(container_id="server")


def taken(connection: Connection) -> bytes:
    return b"".join(connection.output())


def error_of(events: list[Event]) -> AmqpError:
    closed = events[-1]
    assert isinstance(closed, Closed)
    assert closed.error is not None
    return closed.error


def test_a_peer_that_begins_with_sasl_is_offered_all_mechanisms() -> None:
    connection = fresh()
    assert connection.receive(SASL_HEADER) == []
    answer = taken(connection)
    assert answer.startswith(SASL_HEADER)
    assert sasl_frame(answer[8:]) == Described(ULong(0x40), [Array(Symbol, MECHANISMS)])


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_peers_choice_is_reported_and_answered(mechanism: str) -> None:
    connection = fresh()
    events = connection.receive(SASL_HEADER + sasl_init(mechanism, b"\0user\0key", "host"))
    assert events == [SaslInit(mechanism, b"\0user\0key", "host")]
    taken(connection)
    connection.answer_sasl(True)
    # Only the outcome: some clients expect to send the AMQP header first.
    assert sasl_frame(taken(connection)) == Described(ULong(0x44), [UByte(0), None])
    assert connection.receive(AMQP_HEADER) == []
    assert taken(connection) == AMQP_HEADER


def test_a_choice_without_a_response_is_read() -> None:
    assert fresh().receive(SASL_HEADER + sasl_init()) == [SaslInit("ANONYMOUS", b"")]


def test_a_mechanism_that_was_not_offered_is_refused() -> None:
    connection = fresh()
    events = connection.receive(SASL_HEADER + sasl_init("GSSAPI") + AMQP_HEADER)
    assert error_of(events) == AmqpError("amqp:unauthorized-access", "The SASL mechanism GSSAPI is not offered.")
    answer = taken(connection)
    assert sasl_frame(answer[8 + int.from_bytes(answer[8:12], "big") :]) == Described(ULong(0x44), [UByte(1), None])
    assert connection.is_closed


def test_after_a_refusal_nothing_is_read() -> None:
    connection = fresh()
    connection.receive(SASL_HEADER + sasl_init("PLAIN", b"\0a\0b") + AMQP_HEADER + written(OPEN))
    taken(connection)
    connection.answer_sasl(False)
    assert sasl_frame(taken(connection)) == Described(ULong(0x44), [UByte(1), None])
    assert connection.is_closed
    assert connection.receive(b"more") == [Closed(None)]
    assert connection.receive(b"more") == []
    assert not connection.has_output


def test_a_peer_may_send_all_it_has_at_once() -> None:
    connection = fresh()
    everything = (
        SASL_HEADER
        + sasl_init()
        + AMQP_HEADER
        + b"".join([written(OPEN), written(BEGIN), written(receiver()), written(credit(5))])
    )
    assert kinds(connection.receive(everything)) == ["SaslInit"]
    assert connection.receive(b"") == []
    connection.answer_sasl(True)
    assert kinds(connection.receive(b"")) == ["Opened", "SessionBegun", "LinkAttached", "CreditChanged"]


def test_the_bytes_before_the_answer_to_sasl_are_limited() -> None:
    connection = fresh()
    connection.receive(SASL_HEADER + sasl_init())
    connection.receive(bytes(MOST_HELD_BYTES))
    error = error_of(connection.receive(b"x"))
    assert error.condition == "amqp:resource-limit-exceeded"


def test_a_peer_may_begin_without_sasl() -> None:
    connection = fresh()
    assert connection.receive(AMQP_HEADER) == []
    assert taken(connection) == AMQP_HEADER
    assert kinds(connection.receive(written(OPEN))) == ["Opened"]
    assert connection.remote_open == OPEN


@pytest.mark.parametrize(
    ("first", "shown"),
    [
        (b"GET / HTTP/1.1\r\n", "b'GET / HT'"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", r"b'\x16\x03\x01\x02\x00\x01\x00\x01'"),
        (b"AMQP\x00\x00\x09\x01", r"b'AMQP\x00\x00\t\x01'"),
        (b"AMQP\x02\x01\x00\x00", r"b'AMQP\x02\x01\x00\x00'"),
        (b"G", "b'G'"),
    ],
)
def test_another_protocol_is_answered_with_our_header_and_closed(first: bytes, shown: str) -> None:
    connection = fresh()
    error = error_of(connection.receive(first))
    assert error == AmqpError(
        "amqp:connection:framing-error", f"The peer began with {shown}, which is not an AMQP 1.0 header."
    )
    assert taken(connection) == SASL_HEADER
    assert connection.is_closed


def test_sasl_cannot_be_begun_twice() -> None:
    connection = fresh()
    connection.receive(SASL_HEADER + sasl_init())
    connection.answer_sasl(True)
    taken(connection)
    assert error_of(connection.receive(SASL_HEADER)).condition == "amqp:connection:framing-error"
    assert taken(connection) == AMQP_HEADER


@pytest.mark.parametrize(
    ("sent", "condition"),
    [
        (b"\x00\x00\x00\x07\x02\x01\x00\x00", "amqp:connection:framing-error"),
        (b"\x00\x01\x00\x00\x02\x01\x00\x00", "amqp:connection:framing-error"),
        (b"\x00\x00\x00\x08\x01\x01\x00\x00", "amqp:connection:framing-error"),
        (written(OPEN), "amqp:connection:framing-error"),
        (frame(0, b"", SASL_FRAME), "amqp:decode-error"),
        (frame(0, b"\x00\x53\x41\xc0", SASL_FRAME), "amqp:decode-error"),
        (frame(0, encode(Described(ULong(0x41), [])), SASL_FRAME), "amqp:decode-error"),
        (frame(0, encode(Described(ULong(0x43), [b"x"])), SASL_FRAME), "amqp:not-allowed"),
        (frame(0, encode(5), SASL_FRAME), "amqp:decode-error"),
    ],
)
def test_any_other_frame_than_sasl_init_closes_without_an_amqp_frame(sent: bytes, condition: str) -> None:
    connection = fresh()
    connection.receive(SASL_HEADER)
    taken(connection)
    assert error_of(connection.receive(sent)).condition == condition
    assert taken(connection) == b""
    assert connection.is_closed


def test_the_open_is_written_with_all_its_fields() -> None:
    client = Client(None, idle_timeout_ms=240_000, max_frame_size=1024, channel_max=7)
    client.raw(AMQP_HEADER)
    client.do(OPEN)
    body = client.take()[8 + 8 :]
    fields = decode_all(body).value
    assert len(fields) == 10
    assert fields[:5] == ["server", None, 1024, 7, 240_000]
    assert fields[5:] == [None] * 5


def test_a_frame_before_open_is_answered_with_open_and_close() -> None:
    client = Client(None)
    client.raw(AMQP_HEADER)
    client.take()
    assert error_of(client.do(BEGIN)) == AmqpError("amqp:not-allowed", "The peer sent begin before open.")
    opened, closed = client.answers()
    assert isinstance(opened.performative, Open)
    assert isinstance(closed.performative, Close)
    assert closed.performative.error == error_of(client.events)


def test_a_close_during_the_handshake_only_ends_it() -> None:
    connection = fresh()
    connection.close(AmqpError("amqp:connection:forced"))
    assert connection.is_closed
    assert taken(connection) == b""
    assert connection.end_lost() == [Closed(None)]


def test_frames_are_limited_until_the_peer_is_trusted() -> None:
    large = written(Open(container_id="x" * 20_000))
    client = Client(None, trusted=False)
    client.raw(AMQP_HEADER)
    client.take()
    assert "16384" in str(error_of(client.raw(large)))
    trusted = Client(None)
    assert kinds(trusted.raw(AMQP_HEADER + large)) == ["Opened"]
    assert [sent.performative for sent in frames(client.take())][1].error.condition == "amqp:connection:framing-error"
