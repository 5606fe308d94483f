"""Makes load over AMQP, with a client that does just enough to cost little itself.

amqp_load.py send CONNECTIONS LINKS BATCH UNDER_WAY SECONDS
amqp_load.py receive CONNECTIONS CREDIT SECONDS
amqp_load.py drain CONNECTIONS CREDIT MESSAGES

SERVICEBUS_CONNECTION_STRING and QUEUE name the queue. Each link of a sender has UNDER_WAY transfers in flight; 0 means
as many as there is credit for. A transfer is one message or a batch, and counts when it is accepted. Receivers complete
the messages of one read with one disposition, unsettled; a message counts when that is answered. `drain` ends when all
MESSAGES count.

LOAD_PROPERTY is an application property that gets the message's id too, for brokers that look there; then messages are
also marked durable, because other brokers than ours keep only such messages. With LOAD_SETTLED=1 receivers settle on
their own, for brokers that answer no dispositions; a message counts when its disposition is sent.

Prints one line of JSON: messages, seconds until the last one counted, and the CPU seconds of this process.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any, cast

from oncebus import amqp
from oncebus.amqp.encoding import encode
from oncebus.amqp.fastread import (
    DISPOSITION,
    FLOW,
    TRANSFER,
    DispositionFields,
    FlowFields,
    read_disposition,
    read_flow,
    read_transfer,
)
from oncebus.amqp.fastwrite import delivery_fields, encode_uint, flow_frame, link_flow, transfer_head
from oncebus.amqp.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame, unpack_head
from oncebus.amqp.numbers import MASK
from oncebus.amqp.outcomes import Accepted
from oncebus.amqp.performatives import (
    Attach,
    Begin,
    Disposition,
    Open,
    Performative,
    Source,
    Target,
    decode_performative,
    encode_performative,
)
from oncebus.amqp.types import Described, Symbol, ULong

BODY = b"x" * 200
ID_SIZE = 32
DURABLE = encode(Described(ULong(0x70), [True]))
"""The header of a message that a broker must keep over a restart."""
PROPERTY = os.environ.get("LOAD_PROPERTY", "")
IS_SETTLED = os.environ.get("LOAD_SETTLED") == "1"
FAREWELL = 0.3
"""Seconds for a broker to read dispositions that it does not answer, before their connection ends."""
PATIENCE = 120.0
WINDOW = 1 << 20
PORTION = 1 << 18
"""The number of bytes to write at once."""


class Parcel:
    """The payload of a transfer, with new ids each time."""

    def __init__(self, batch: int) -> None:
        self.format = 0 if batch == 1 else amqp.BATCH_FORMAT
        hole = "0" * ID_SIZE
        named = {PROPERTY: hole} if PROPERTY else None
        one = DURABLE if PROPERTY else b""
        one += b"".join(amqp.encode_message(amqp.Properties(message_id=hole), named, BODY))
        if batch > 1:
            one = b"\x00\x53\x75\xb0" + len(one).to_bytes(4) + one
        self._payload = bytearray(one * batch)
        places = [each.start() for each in re.finditer(hole.encode(), one)]
        self._ids = [
            [slice(place + at * len(one), place + at * len(one) + ID_SIZE) for place in places] for at in range(batch)
        ]
        self._next = uuid.uuid4().int >> 64 << 64

    def fresh(self) -> bytes:
        payload, number = self._payload, self._next
        for places in self._ids:
            for place in places:
                payload[place] = b"%032x" % number
            number += 1
        self._next = number
        return bytes(payload)


class Peer(asyncio.Protocol):
    """One connection with one session. It calls `report` with the number of messages that count."""

    def __init__(self, attaches: list[Attach], report: Callable[[int], None]) -> None:
        self.is_writable = True
        self._attaches = attaches
        self.report = report
        self.left = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        opening: list[Performative] = [
            Open(container_id="load", max_frame_size=65536),
            Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW),
            *self._attaches,
        ]
        self.transport.write(
            SASL_HEADER
            + frame(0, sasl_plain(), SASL_FRAME)
            + AMQP_HEADER
            + b"".join(frame(0, encode_performative(each)) for each in opening)
        )

    def data_received(self, data: bytes) -> None:
        data = self.left + data
        at, end = 0, len(data)
        while end - at >= 8:
            if data[at : at + 4] == b"AMQP":
                at += 8
                continue
            size, _, kind, _ = unpack_head(data, at)
            if at + size > end:
                break
            body, at = at + 8, at + size
            if kind == SASL_FRAME or body == at:
                continue
            code = data[body + 2]
            if code == TRANSFER:
                self.on_transfer(read_transfer(data, body, at)[1])
            elif code == DISPOSITION:
                self.on_disposition(read_disposition(data, body, at))
            elif code == FLOW:
                self.on_flow(read_flow(data, body, at))
            else:
                performative, _ = decode_performative(data, body, at)
                if not isinstance(performative, Open | Begin | Attach):
                    raise SystemExit(f"The gateway sent {performative}")
        self.left = data[at:]
        self.go_on()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.is_writable = False

    def pause_writing(self) -> None:
        self.is_writable = False

    def resume_writing(self) -> None:
        self.is_writable = True
        self.go_on()

    def on_transfer(self, delivery: int | None) -> None:
        raise NotImplementedError

    def on_flow(self, fields: FlowFields) -> None:
        raise NotImplementedError

    def go_on(self) -> None:
        raise NotImplementedError

    def on_disposition(self, fields: DispositionFields) -> None:
        _, first, last, settled, state = fields
        if not settled or not isinstance(state, Accepted):
            raise SystemExit(f"The gateway answered {state}")
        self.report(((last - first) & MASK) + 1)


class Sender(Peer):
    """Sends on its links in turn."""

    def __init__(self, links: int, parcel: Parcel, under_way: int, end: float, report: Callable[[int], None]) -> None:
        attaches = [
            Attach(
                name=f"s{at}", handle=at, role=False, source=Source(), target=Target(QUEUE), initial_delivery_count=0
            )
            for at in range(links)
        ]
        super().__init__(attaches, report)
        self.under_way = 0
        self._parcel = parcel
        self._most = under_way * links or WINDOW
        self._end = end
        self._handles = [encode_uint(at) for at in range(links)]
        self._sent = [0] * links
        self._credit = [0] * links
        self._next = self._window = 0

    def on_flow(self, fields: FlowFields) -> None:
        next_incoming, window, _, _, handle, delivery_count, credit, _, _ = fields
        self._window = (next_incoming or 0) + window - self._next
        if handle is not None:
            self._credit[handle] = (delivery_count or 0) + (credit or 0) - self._sent[handle]

    def on_disposition(self, fields: DispositionFields) -> None:
        self.under_way -= fields[2] - fields[1] + 1
        super().on_disposition(fields)

    def go_on(self) -> None:
        while self.is_writable and time.perf_counter() < self._end:
            pieces: list[bytes] = []
            size = 0
            for handle, encoded in enumerate(self._handles):
                while self._credit[handle] and self._window and self.under_way < self._most and size < PORTION:
                    payload = self._parcel.fresh()
                    fields = delivery_fields(encoded, self._next, self._next.to_bytes(4), self._parcel.format)
                    pieces += (transfer_head(0, fields, False, False, len(payload)), payload)
                    size += len(payload)
                    self._next += 1
                    self.under_way += 1
                    self._sent[handle] += 1
                    self._credit[handle] -= 1
                    self._window -= 1
                    if len(self._handles) > 1 and size >= PORTION // len(self._handles) * (handle + 1):
                        break
            if not pieces:
                return
            self.transport.write(b"".join(pieces))


class Receiver(Peer):
    """Completes every message that arrives."""

    def __init__(self, credit: int, end: float, report: Callable[[int], None]) -> None:
        super().__init__([Attach(name="r", handle=0, role=True, source=Source(QUEUE), target=Target())], report)
        self._most = credit
        self._end = end
        self._credit = self._came = self._completed = 0

    def on_flow(self, fields: FlowFields) -> None:
        pass

    def on_transfer(self, delivery: int | None) -> None:
        assert delivery == self._came, "each delivery is one frame"
        self._came += 1
        self._credit -= 1

    def go_on(self) -> None:
        if time.perf_counter() >= self._end:
            return
        if self._came > self._completed:
            done = Disposition(
                role=True, first=self._completed, last=self._came - 1, settled=IS_SETTLED, state=Accepted()
            )
            self.transport.write(frame(0, encode_performative(done)))
            count, self._completed = self._came - self._completed, self._came
            if IS_SETTLED:
                self.report(count)
        if self._credit <= self._most // 2:
            self._credit = self._most
            link = link_flow(encode_uint(0), self._came, self._most)
            self.transport.write(flow_frame(0, self._came, WINDOW, 0, WINDOW, link))


QUEUE = os.environ["QUEUE"]
PARTS = dict(part.split("=", 1) for part in os.environ["SERVICEBUS_CONNECTION_STRING"].split(";"))


def sasl_plain() -> bytes:
    response = f"\0{PARTS['SharedAccessKeyName']}\0{PARTS['SharedAccessKey']}".encode()
    return encode(Described(ULong(0x41), [Symbol("PLAIN"), response]))


async def run(words: list[str]) -> dict[str, Any]:
    kind, *numbers = words
    # Of `drain`, this is the number of messages.
    limit = float(numbers.pop())
    connections, *options = map(int, numbers)
    counted, last = 0, 0.0
    unit = options[1] if kind == "send" else 1

    def report(transfers: int) -> None:
        nonlocal counted, last
        counted += transfers * unit
        last = time.perf_counter()

    loop = asyncio.get_running_loop()
    host, _, port = PARTS["Endpoint"].removeprefix("sb://").rpartition(":")
    began, cpu = time.perf_counter(), time.process_time()
    end = began + (PATIENCE if kind == "drain" else limit)
    parcel = Parcel(unit)

    def peer() -> Peer:
        if kind == "send":
            return Sender(options[0], parcel, options[2], end, report)
        return Receiver(options[0], end, report)

    made = await asyncio.gather(*(loop.create_connection(peer, host, int(port)) for _ in range(connections)))
    if kind != "drain":
        await asyncio.sleep(limit)
    while kind == "drain" and counted < limit:
        assert time.perf_counter() < end, f"only {counted} of {limit:.0f} messages came"
        await asyncio.sleep(0.002)
    while any(isinstance(each, Sender) and each.under_way for _, each in made):
        assert time.perf_counter() < end + 30, "the gateway does not answer"
        await asyncio.sleep(0.002)
    used = time.process_time() - cpu
    if IS_SETTLED:
        await asyncio.sleep(FAREWELL)
    for transport, _ in made:
        transport.abort()
    return {"messages": counted, "seconds": last - began, "cpu": used}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(sys.argv[1:]))))
