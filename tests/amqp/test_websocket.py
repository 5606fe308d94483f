"""What is particular to WebSockets. The engine's own tests run over WebSockets too: see test_protocol.py."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import pytest
from websockets.frames import Close as CloseFrame
from websockets.frames import CloseCode, Frame, Opcode

from oncebus.amqp.frames import AMQP_HEADER
from oncebus.amqp.limits import TRUSTED_MESSAGE_BYTES, UNTRUSTED_MESSAGE_BYTES, UNTRUSTED_MESSAGES
from oncebus.amqp.performatives import Attach, Begin, Close, Flow, Open, Transfer
from oncebus.protocols.servicebus.websocket import LARGEST_PAYLOAD
from tests.amqp.client import BEGIN, OPEN, credit, receiver, sender, transfer, written
from tests.amqp.echo import Echo, serving
from tests.amqp.framed import FramedReader, FramedWriter
from tests.amqp.sockets import PATIENCE, Socket, connected, until
from tests.amqp.transports import websockets

QUESTION = written(credit(0, None, echo=True))
"""A frame that is answered with a flow."""


@pytest.fixture(autouse=True)
def _websockets() -> Iterator[None]:
    with websockets():
        yield


class Client(Socket):
    """A client that can also send frames that no AMQP client sends."""

    @property
    def frames(self) -> FramedReader:
        return cast(FramedReader, self.reader)

    async def say_frame(self, *frames: Frame) -> None:
        await self.say_raw(b"".join(frame.serialize(mask=True) for frame in frames))

    async def say_raw(self, data: bytes) -> None:
        cast(FramedWriter, self.writer).write_raw(data)
        await self.writer.drain()

    async def closed(self) -> CloseCode | int:
        """Read to the end, which must come after a close. Return its code."""
        await self.end_of_stream()
        last = self.frames.received[-1]
        assert last.opcode is Opcode.CLOSE
        return CloseFrame.parse(last.data).code


@contextlib.asynccontextmanager
async def talking(echo: Echo, **options: Any) -> AsyncIterator[Client]:
    async with serving(echo, **options) as port, connected(port) as made:
        yield Client(made.reader, made.writer)


def head(opcode: Opcode, length: int, *, is_masked: bool = True) -> bytes:
    """Return the head of a frame, with eight bytes of length and without its payload."""
    return struct.pack("!BBQ", 0x80 | opcode, (0x80 if is_masked else 0) | 127, length) + (bytes(4) * is_masked)


def test_frames_of_amqp_may_be_split_over_messages_and_share_them() -> None:
    async def run() -> None:
        async with talking(Echo()) as client:
            everything = AMQP_HEADER + written(OPEN) + written(BEGIN) + QUESTION
            await client.say(everything[:3])
            # A message in fragments, with a ping between them.
            await client.say_frame(
                Frame(Opcode.BINARY, everything[3:9], fin=False),
                Frame(Opcode.PING, b"still there?"),
                Frame(Opcode.CONT, b"", fin=False),
                Frame(Opcode.CONT, everything[9:20]),
                Frame(Opcode.BINARY, b""),
            )
            await client.say(everything[20:])
            assert await client.header() == AMQP_HEADER
            await client.expect(Open, Begin, Flow)
            pongs = [frame.data for frame in client.frames.received if frame.opcode is Opcode.PONG]
            assert pongs == [b"still there?"]

    asyncio.run(run())


def test_bytes_may_come_one_by_one() -> None:
    async def run() -> None:
        async with talking(Echo()) as client:
            stream = b"".join(
                Frame(Opcode.BINARY, piece).serialize(mask=True) for piece in (AMQP_HEADER, written(OPEN))
            )
            for byte in stream:
                await client.say_raw(bytes([byte]))
                await asyncio.sleep(0)
            assert await client.header() == AMQP_HEADER
            await client.expect(Open)

    asyncio.run(run())


def test_messages_to_the_peer_are_binary_complete_and_small() -> None:
    async def run() -> None:
        echo = Echo()
        async with talking(echo) as client:
            await client.opened()
            payload = bytes(range(256)) * 200
            echo.queue("queue").append(payload)
            await client.say(written(receiver()), written(credit(1)))
            await client.expect(Attach)
            sent = await client.frame()
            assert (type(sent.performative), sent.payload) == (Transfer, payload)
            frames = client.frames.received
            assert all((frame.opcode, frame.fin) == (Opcode.BINARY, True) for frame in frames)
            assert max(len(frame.data) for frame in frames) == LARGEST_PAYLOAD == 4092

    asyncio.run(run())


def test_a_peer_that_closes_gets_its_close_back_and_its_links_end() -> None:
    async def run() -> None:
        echo = Echo()
        async with talking(echo) as client:
            await client.opened()
            await client.say(written(sender()))
            await client.expect(Attach, Flow)
            close = CloseFrame(CloseCode.GOING_AWAY, "tired").serialize()
            # The transfer before the close counts; what comes after it is ignored.
            await client.say(written(transfer(0), b"kept"))
            await client.say_frame(Frame(Opcode.CLOSE, close))
            await client.say(written(transfer(1), b"too late"))
            assert await client.closed() == CloseCode.GOING_AWAY
        await until(lambda: echo.lost == 1)
        assert list(echo.queue("queue")) == [b"kept"]

    asyncio.run(run())


def test_a_closed_connection_of_amqp_closes_the_websocket() -> None:
    async def run() -> None:
        echo = Echo()
        async with talking(echo) as client:
            await client.opened()
            await client.say(written(Close()))
            await client.expect(Close)
            assert await client.closed() == CloseCode.NORMAL_CLOSURE
        await until(lambda: echo.lost == 1)

    asyncio.run(run())


def test_a_peer_that_never_answers_the_close_is_disconnected() -> None:
    async def run() -> None:
        echo = Echo()
        async with serving(echo, close_seconds=0.05) as port, connected(port) as client:
            await client.opened()
            await client.say(written(Close()))
            # The peer reads nothing, so it does not answer.
            await until(lambda: echo.lost == 1)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(Frame(Opcode.TEXT, b"AMQP").serialize(mask=True), CloseCode.UNSUPPORTED_DATA, id="text"),
        pytest.param(
            Frame(Opcode.TEXT, b"A", fin=False).serialize(mask=True), CloseCode.UNSUPPORTED_DATA, id="begin of a text"
        ),
        pytest.param(Frame(Opcode.BINARY, QUESTION).serialize(mask=False), CloseCode.PROTOCOL_ERROR, id="unmasked"),
        pytest.param(Frame(Opcode.CONT, b"x").serialize(mask=True), CloseCode.PROTOCOL_ERROR, id="continues nothing"),
        pytest.param(
            Frame(Opcode.BINARY, b"", fin=False).serialize(mask=True) + Frame(Opcode.BINARY, b"").serialize(mask=True),
            CloseCode.PROTOCOL_ERROR,
            id="two messages at once",
        ),
        pytest.param(b"\xc2\x80" + bytes(4), CloseCode.PROTOCOL_ERROR, id="an extension"),
        pytest.param(b"\x83\x80" + bytes(4), CloseCode.PROTOCOL_ERROR, id="an unknown kind"),
        pytest.param(b"\x09\x80" + bytes(4), CloseCode.PROTOCOL_ERROR, id="a ping in fragments"),
        pytest.param(b"\x89\xfe\x00\x80" + bytes(4 + 128), CloseCode.PROTOCOL_ERROR, id="a long ping"),
        pytest.param(head(Opcode.BINARY, TRUSTED_MESSAGE_BYTES + 1), CloseCode.MESSAGE_TOO_BIG, id="too large"),
        pytest.param(head(Opcode.BINARY, 1 << 62), CloseCode.MESSAGE_TOO_BIG, id="far too large"),
        pytest.param(
            Frame(Opcode.BINARY, bytes(TRUSTED_MESSAGE_BYTES // 2), fin=False).serialize(mask=True)
            + head(Opcode.CONT, TRUSTED_MESSAGE_BYTES // 2 + 1),
            CloseCode.MESSAGE_TOO_BIG,
            id="too large in fragments",
        ),
    ],
)
def test_a_peer_that_breaks_the_rules_gets_a_close(data: bytes, code: CloseCode) -> None:
    async def run() -> None:
        echo = Echo()
        async with talking(echo) as client:
            await client.opened()
            before = len(echo.events)
            # A peer that sends more than the server reads must still get the close. After text, more is a worse fault.
            await client.say_raw(data + (bytes(100_000) if code is not CloseCode.UNSUPPORTED_DATA else b""))
            assert await client.closed() == code
            assert "Delivered" not in {type(event).__name__ for event in echo.events[before:]}
        await until(lambda: echo.lost == 1)

    asyncio.run(run())


@pytest.mark.parametrize("is_trusted", [True, False])
def test_the_limit_of_a_message_is_lower_before_the_peer_authenticates(is_trusted: bool) -> None:
    async def run() -> None:
        echo = Echo(trusts=is_trusted)
        async with talking(echo) as client:
            await client.opened()
            await client.say_raw(head(Opcode.BINARY, UNTRUSTED_MESSAGE_BYTES + 1))
            if not is_trusted:
                assert await client.closed() == CloseCode.MESSAGE_TOO_BIG
                return
            many, rest = divmod(UNTRUSTED_MESSAGE_BYTES + 1, len(QUESTION))
            await client.say_raw(QUESTION * many + QUESTION[:rest])
            await client.expect(*[Flow] * many)
            await client.say(QUESTION[rest:])
            await client.expect(Flow)

    asyncio.run(run())


@pytest.mark.parametrize("kind", [Opcode.BINARY, Opcode.PING, Opcode.PONG])
def test_a_peer_that_has_not_authenticated_may_send_few_frames(kind: Opcode) -> None:
    async def run() -> None:
        echo = Echo(trusts=False)
        async with talking(echo) as client:
            await client.say_frame(*[Frame(kind, b"")] * (UNTRUSTED_MESSAGES - 10))
            await client.opened()
            await client.say_frame(*[Frame(kind, b"")] * 10)
            assert await client.closed() == CloseCode.POLICY_VIOLATION
        await until(lambda: echo.lost == 1)

    asyncio.run(run())


def test_a_peer_that_pings_and_does_not_read_is_disconnected(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        echo = Echo()
        async with talking(echo, most_waiting_bytes=500_000) as client:
            await client.opened()
            pings = [Frame(Opcode.PING, bytes(125))] * 1000
            with contextlib.suppress(ConnectionError):
                while echo.lost == 0:
                    await asyncio.wait_for(client.say_frame(*pings), PATIENCE)
            await until(lambda: echo.lost == 1)

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert [record.message for record in caplog.records] == ["Disconnecting a peer that does not read"]
