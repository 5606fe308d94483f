"""Requests to a coordinator, and the deliveries of a transaction."""

from __future__ import annotations

import pytest

from oncebus.amqp.message import AmqpValue, encode_message
from oncebus.amqp.outcomes import Accepted, TransactionalState
from oncebus.amqp.transactions import Declare, Discharge, read_control
from oncebus.amqp.types import DecodeError, Described, Symbol, ULong
from tests.amqp.client import Client, deliveries, transfer


def control(descriptor: object, fields: list[object]) -> bytes:
    return b"".join(encode_message(None, None, AmqpValue(Described(descriptor, fields))))


@pytest.mark.parametrize(
    ("descriptor", "fields", "request_"),
    [
        (ULong(0x31), [], Declare()),
        (Symbol("amqp:declare:list"), [None], Declare()),
        (ULong(0x31), [b"global"], Declare(b"global")),
        (ULong(0x32), [b"tx", True], Discharge(b"tx", True)),
        (Symbol("amqp:discharge:list"), [b"tx"], Discharge(b"tx", False)),
        (ULong(0x32), [b"tx", None], Discharge(b"tx", False)),
    ],
)
def test_requests_are_read(descriptor: object, fields: list[object], request_: Declare | Discharge) -> None:
    assert read_control(control(descriptor, fields)) == request_


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        control(ULong(0x24), []),
        control(ULong(0x32), []),
        control(ULong(0x32), ["text"]),
        control(ULong(0x99), []),
        b"".join(encode_message(None, None, b"data")),
    ],
)
def test_anything_else_is_refused(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        read_control(payload)


def test_a_delivery_has_the_state_of_its_transfer() -> None:
    client = Client()
    client.begin()
    client.incoming()
    state = TransactionalState(b"tx")
    (whole,) = deliveries(client.send(transfer(0, state=state), b"x"))
    assert whole.state == state
    assert client.send(transfer(1, state=state, more=True), b"o") == []
    (joined,) = deliveries(client.send(transfer(None, delivery_tag=None), b"ne"))
    assert (joined.payload, joined.state) == (b"one", state)
    (plain,) = deliveries(client.send(transfer(2), b"x"))
    assert plain.state is None
    (late,) = [
        event
        for piece in (transfer(3, more=True), transfer(None, delivery_tag=None, state=Accepted()))
        for event in deliveries(client.send(piece, b"x"))
    ]
    assert late.state == Accepted()
