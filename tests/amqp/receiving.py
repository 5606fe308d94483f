"""A client with one link on which it receives messages."""

from __future__ import annotations

from typing import Any

from oncebus.amqp.outgoing import OutgoingDelivery, OutgoingLink
from oncebus.amqp.performatives import Begin, Open
from tests.amqp.client import Client, credit


def ready(grant: int = 10, *, frame_size: int = 65536, window: int = 2048) -> tuple[Client, OutgoingLink]:
    client = Client(Open(container_id="c", max_frame_size=frame_size))
    client.begin(begin=Begin(next_outgoing_id=0, incoming_window=window, outgoing_window=9))
    link = client.outgoing(0)
    client.do(credit(grant, incoming_window=window))
    client.take()
    return client, link


def sent_many(link: OutgoingLink, count: int, **fields: Any) -> list[OutgoingDelivery]:
    return [link.send(b"x", b"%d" % number, settled=False, **fields) for number in range(count)]
