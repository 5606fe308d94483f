"""Clients that send exact frames to the running broker. Even very many of them cost little."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from oncebus import amqp
from oncebus.amqp.encoding import encode
from oncebus.amqp.frames import SASL_FRAME, SASL_HEADER, frame
from oncebus.amqp.head import Properties
from oncebus.amqp.outcomes import Accepted
from oncebus.amqp.performatives import Attach, Disposition, Flow, Source, Target, Transfer
from oncebus.amqp.types import Described, Symbol, ULong
from tests.amqp.client import credit, receiver, sender, transfer, written
from tests.amqp.sockets import Socket, connected

from .served import Served

_SASL_INIT = ULong(0x41)
_PIECE = 60_000
_AT_ONCE = 50


def signing_in(served: Served) -> bytes:
    """Return the first bytes of a client: SASL PLAIN with the root key."""
    response = b"\0" + served.root.name.encode() + b"\0" + served.root.primary_key.encode()
    return SASL_HEADER + frame(0, encode(Described(_SASL_INIT, [Symbol("PLAIN"), response])), SASL_FRAME)


@asynccontextmanager
async def signed_in(served: Served, limit: int = 2**16) -> AsyncIterator[Socket]:
    """Open a connection with one session."""
    async with connected(served.port, limit) as socket:
        await socket.say(signing_in(served))
        assert await socket.header() == SASL_HEADER
        # Skip the mechanisms and the outcome. If SASL failed, the next step fails.
        await socket.raw_frame()
        await socket.raw_frame()
        await socket.opened()
        yield socket


async def attach_receiver(socket: Socket, queue: str, given: int) -> None:
    """Attach a receiver with the given credit."""
    await socket.say(written(receiver(source=Source(queue))), written(credit(given)))
    (answer,) = await socket.expect(Attach)
    assert answer.source is not None, "the receiver was refused"


async def delivered(socket: Socket) -> Transfer:
    """Return the first frame of the next delivery."""
    while True:
        found = (await socket.frame()).performative
        if isinstance(found, Transfer):
            return found


class RawSender:
    """Sends messages one by one, and waits for the answer to each."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self._next = 0

    def frames(self, content: bytes, **properties: Any) -> bytes:
        """Return the transfers of the next message, in as many frames as it takes."""
        payload = b"".join(amqp.encode_message(Properties(**properties), None, content))
        number, self._next = self._next, self._next + 1
        pieces = [payload[at : at + _PIECE] for at in range(0, len(payload), _PIECE)]
        tag = number.to_bytes(4)
        return b"".join(
            written(transfer(number, delivery_tag=tag, more=index < len(pieces) - 1), piece)
            for index, piece in enumerate(pieces)
        )

    async def send(self, content: bytes, **properties: Any) -> None:
        """Send one message, which must be accepted."""
        await self._socket.say(self.frames(content, **properties))
        await self.accepted()

    async def accepted(self) -> None:
        """Wait for the answer to the message in flight, which must be accepted."""
        while True:
            answer = (await self._socket.frame()).performative
            if isinstance(answer, Disposition):
                assert isinstance(answer.state, Accepted), answer
                return
            assert isinstance(answer, Flow), answer


async def attach_sender(socket: Socket, queue: str) -> RawSender:
    """Attach a sender and wait for credit."""
    await socket.say(written(sender(target=Target(queue))))
    (answer,) = await socket.expect(Attach)
    assert answer.target is not None, "the sender was refused"
    return RawSender(socket)


@asynccontextmanager
async def raw_sender(served: Served, queue: str) -> AsyncIterator[RawSender]:
    """Open a sender on its own connection."""
    async with signed_in(served) as socket:
        yield await attach_sender(socket, queue)


@asynccontextmanager
async def idle_receivers(served: Served, queue: str, count: int) -> AsyncIterator[None]:
    """Open `count` receivers of a queue, each on its own connection and with credit for one message."""
    ended = asyncio.Event()
    opening = asyncio.Semaphore(_AT_ONCE)
    opened = [asyncio.Event() for _ in range(count)]

    async def one(is_open: asyncio.Event) -> None:
        await opening.acquire()
        async with signed_in(served) as socket:
            await attach_receiver(socket, queue, 1)
            is_open.set()
            opening.release()
            await ended.wait()

    async with asyncio.TaskGroup() as tasks:
        for each in opened:
            tasks.create_task(one(each))
        for each in opened:
            await each.wait()
        try:
            yield
        finally:
            ended.set()
