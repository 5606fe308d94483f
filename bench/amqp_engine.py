"""Runs `python -m bench.amqp_engine`: microseconds for a message in the engine of AMQP, without sockets.

Incoming: messages of 200 bytes from a client, in Qpid Proton's Python engine, in ours, and in ours with the general
decoder in place of `fastread`. Outgoing: the same messages to a client, with `fastwrite` and with the general encoder
in its place. Prints CPU time, of the quickest of several rounds.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import proton
from rich.console import Console
from rich.table import Table

from oncebus.amqp.connection import Connection
from oncebus.amqp.events import LinkAttached
from oncebus.amqp.fastread import TransferFields, transfer_fields
from oncebus.amqp.frames import AMQP_HEADER, frame
from oncebus.amqp.incoming import IncomingLink
from oncebus.amqp.outgoing import OutgoingLink
from oncebus.amqp.performatives import (
    Attach,
    Begin,
    Flow,
    Open,
    Performative,
    Source,
    Target,
    Transfer,
    decode_performative,
    encode_performative,
)

ROUNDS, COUNT = 15, 1000
PAYLOAD = b"\x00\x53\x75\xa0\xc8" + b"x" * 200
TAG = b"t" * 16
_START: list[Performative] = [
    Open(container_id="bench", max_frame_size=65536),
    Begin(next_outgoing_id=0, incoming_window=10**6, outgoing_window=10**6),
]


def encode_frame(performative: Performative, payload: bytes = b"") -> bytes:
    return frame(0, encode_performative(performative) + payload)


def client(attach: Attach) -> bytes:
    return AMQP_HEADER + b"".join(map(encode_frame, [*_START, attach]))


SENDER = client(Attach(name="s", handle=0, role=False, source=Source(), target=Target("q"), initial_delivery_count=0))
RECEIVER = client(Attach(name="r", handle=0, role=True, source=Source("q"), target=Target()))


def transfers() -> bytes:
    sent = (Transfer(handle=0, delivery_id=each, delivery_tag=TAG, message_format=0) for each in range(COUNT))
    return b"".join(encode_frame(each, PAYLOAD) for each in sent)


def attached(data: bytes) -> tuple[Connection, LinkAttached]:
    connection = Connection(container_id="server")
    connection.trust()
    (event,) = (each for each in connection.receive(data) if isinstance(each, LinkAttached))
    event.link.accept()
    return connection, event


def ours_incoming(data: bytes) -> float:
    connection, event = attached(SENDER)
    link = event.link
    assert isinstance(link, IncomingLink)
    link.grant(COUNT)
    connection.output()
    began = time.process_time()
    events = connection.receive(data)
    passed = time.process_time() - began
    assert len(events) == COUNT
    return passed


def protons_incoming(data: bytes) -> float:
    transport, connection, collector = (
        proton.Transport(proton.Transport.SERVER),
        proton.Connection(),
        proton.Collector(),
    )
    connection.collect(collector)
    transport.bind(connection)

    def push(left: bytes) -> int:
        seen = 0
        while left:
            size = transport.capacity()
            transport.push(left[:size])
            left = left[size:]
            while (event := collector.peek()) is not None:
                if event.type is proton.Event.DELIVERY:
                    delivery = event.delivery
                    assert delivery is not None
                    delivery.link.recv(delivery.pending)
                    delivery.link.advance()
                    delivery.settle()
                    seen += 1
                elif event.type is proton.Event.LINK_REMOTE_OPEN:
                    link = event.link
                    assert isinstance(link, proton.Receiver)
                    connection.open()
                    link.session.open()
                    link.open()
                    link.flow(COUNT)
                collector.pop()
        return seen

    push(SENDER)
    transport.pop(transport.pending())
    began = time.process_time()
    seen = push(data)
    passed = time.process_time() - began
    assert seen == COUNT, seen
    return passed


def ours_outgoing(data: bytes) -> float:
    del data
    connection, event = attached(RECEIVER)
    link = event.link
    assert isinstance(link, OutgoingLink)
    credit = Flow(
        next_incoming_id=0,
        incoming_window=10**6,
        next_outgoing_id=0,
        outgoing_window=10**6,
        handle=0,
        delivery_count=0,
        link_credit=COUNT,
    )
    connection.receive(encode_frame(credit))
    connection.output()
    began = time.process_time()
    for _ in range(COUNT):
        link.send(PAYLOAD, TAG, settled=True)
    connection.output()
    return time.process_time() - began


def read_generally(data: bytes, at: int, end: int) -> TransferFields:
    performative, payload_at = decode_performative(data, at, end)
    assert isinstance(performative, Transfer)
    return transfer_fields(performative, payload_at)


def head_generally(channel: int, _: bytes, settled: bool, more: bool, payload_size: int) -> bytes:
    transfer = Transfer(handle=0, delivery_id=70_000, delivery_tag=TAG, message_format=0, settled=settled, more=more)
    body = encode_performative(transfer)
    return struct.pack(">IBBH", 8 + len(body) + payload_size, 2, 0, channel) + body


@contextmanager
def without_fast_code() -> Iterator[None]:
    with (
        patch("oncebus.amqp.connection.read_transfer", read_generally),
        patch("oncebus.amqp.outgoing.delivery_fields", lambda *_: b""),
        patch("oncebus.amqp.outbound.transfer_head", head_generally),
    ):
        yield


def microseconds(run: Callable[[bytes], float]) -> float:
    data = transfers()
    return min(run(data) for _ in range(ROUNDS)) / COUNT * 1e6


def main() -> None:
    table = Table("microseconds for a message", "incoming", "outgoing")
    table.add_row("Qpid Proton", f"{microseconds(protons_incoming):.1f}", "")
    table.add_row("ours", f"{microseconds(ours_incoming):.1f}", f"{microseconds(ours_outgoing):.1f}")
    with without_fast_code():
        table.add_row("ours, general codec", f"{microseconds(ours_incoming):.1f}", f"{microseconds(ours_outgoing):.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
