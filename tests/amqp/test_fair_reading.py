"""Peers that send more frames at once than one iteration of the event loop may process."""

from __future__ import annotations

import asyncio

import pytest

from oncebus.amqp.connection import Connection
from oncebus.amqp.frames import AMQP_HEADER, HEARTBEAT
from oncebus.amqp.limits import (
    DRAINED_BYTES,
    FRAME_WORK,
    READING_SECONDS,
    STATE_WORK,
    STEP_WORK,
    UNTRUSTED_READING_SECONDS,
    UNTRUSTED_WORK,
)
from oncebus.amqp.outcomes import ReceivedState
from oncebus.amqp.performatives import Begin, Close, Detach, Disposition, End, Flow, Open
from oncebus.protocols.servicebus.fair_reading import FairReading
from oncebus.protocols.servicebus.transport import AmqpProtocol
from tests.amqp.client import BEGIN, Client, credit, deliveries, kinds, receiver, transfer, written
from tests.amqp.echo import Echo, EchoPeer, serving
from tests.amqp.sockets import connected, until

BEGIN_END = written(BEGIN, channel=1) + written(End(), channel=1)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Counted:
    """A reader with so many steps to take, each of a millisecond."""

    def __init__(self, clock: Clock, steps: int, is_known: bool = True) -> None:
        self._clock = clock
        self.left = steps
        self.is_known = is_known

    def step(self) -> bool:
        self._clock.now += 0.001
        self.left -= 1
        return self.left > 0


def test_all_readers_together_have_the_time_of_an_iteration_and_step_one_after_the_other() -> None:
    async def run() -> None:
        clock = Clock()
        reading = FairReading(clock)
        readers = [Counted(clock, 10) for _ in range(20)]
        assert all(reading.run(reader) for reader in readers)
        # Only the first had time left before others waited.
        assert [reader.left for reader in readers] == [9] + [10] * 19
        await asyncio.sleep(0)
        steps = round(READING_SECONDS / 0.001)
        assert [reader.left for reader in readers] == [8] + [9] * (steps - 1) + [10] * (20 - steps)
        # Strangers have their own time, and are not in the way of others.
        strangers = [Counted(clock, 10, is_known=False) for _ in range(20)]
        for stranger in strangers:
            reading.run(stranger)
        before, there = sum(reader.left for reader in readers), sum(stranger.left for stranger in strangers)
        await asyncio.sleep(0)
        assert before - sum(reader.left for reader in readers) == steps
        assert there - sum(stranger.left for stranger in strangers) == round(UNTRUSTED_READING_SECONDS / 0.001)
        while any(reader.left for reader in [*readers, *strangers]):
            await asyncio.sleep(0)

    asyncio.run(run())


def test_a_reader_with_little_to_do_does_not_wait() -> None:
    async def run() -> None:
        clock = Clock()
        reading = FairReading(clock)
        for _ in range(3):
            assert not reading.run(Counted(clock, 1))

    asyncio.run(run())


@pytest.mark.parametrize(
    ("frame", "work"),
    [
        (BEGIN_END, 2 * (1 + FRAME_WORK + 1)),
        (HEARTBEAT, 1),
        (written(credit(0, None, echo=True)), 1),
        (written(Disposition(role=True, first=0, last=9, settled=False, state=ReceivedState(0, 0))), 1 + STATE_WORK),
        (written(receiver("r", 1)) + written(Detach(handle=1, closed=True)), 2 * (1 + FRAME_WORK + 1)),
    ],
    ids=["begin-end", "empty", "flow", "disposition", "attach-detach"],
)
def test_frames_beyond_the_work_of_a_step_are_left_for_the_next(frame: bytes, work: int) -> None:
    client = Client()
    client.begin()
    connection = client.connection
    count = 1000
    connection.receive(frame * count, STEP_WORK)
    steps = 1
    while connection.is_behind:
        connection.receive(b"", STEP_WORK)
        steps += 1
    assert count * work // STEP_WORK // 2 <= steps <= count * work // STEP_WORK + 1


def test_no_frame_is_lost_or_read_twice_when_a_step_ends() -> None:
    client = Client()
    client.begin()
    client.incoming(5000)
    everything = b"".join(written(transfer(number), b"%d" % number) for number in range(1000))
    events = client.connection.receive(everything[:10_001], STEP_WORK)
    # More arrives before the rest is read.
    events += client.connection.receive(everything[10_001:], STEP_WORK)
    while client.connection.is_behind:
        events += client.connection.receive(b"", STEP_WORK)
    assert [each.payload for each in deliveries(events)] == [b"%d" % number for number in range(1000)]


def test_a_long_range_of_deliveries_is_much_work() -> None:
    client = Client()
    client.begin()
    link = client.outgoing(3000)
    for number in range(2048):
        link.send(b"x", b"%d" % number, settled=False, context=None)
    client.take()
    again = written(Disposition(role=True, first=0, last=2**31 - 1, settled=False, state=ReceivedState(0, 0)))
    events = client.connection.receive(again * 100, STEP_WORK)
    assert kinds(events) == ["Disposed"]
    assert client.connection.is_behind


@pytest.mark.parametrize("ahead", [0, 1, 8, 9], ids="pieces with {} bytes of the next frame".format)
def test_a_peer_that_did_not_authenticate_may_send_few_frames(ahead: int) -> None:
    client = Client(trusted=False)
    client.raw(BEGIN_END + BEGIN_END[:ahead])
    for _ in range(1000):
        client.raw(BEGIN_END[ahead:] + BEGIN_END[:ahead])
    close = client.answers()[-1].performative
    assert isinstance(close, Close)
    assert close.error is not None
    assert close.error.condition == "amqp:resource-limit-exceeded"
    assert kinds(client.events).count("SessionBegun") < 2 * UNTRUSTED_WORK // FRAME_WORK


def test_a_flood_over_a_socket_is_answered_in_full_and_others_meanwhile() -> None:
    async def run() -> None:
        async with serving(Echo(), reading=FairReading()) as port, connected(port) as noisy, connected(port) as quiet:
            await noisy.opened()
            await quiet.opened()
            count = 5000
            await noisy.say(BEGIN_END * count)
            await quiet.say(written(credit(0, None, echo=True)))
            await quiet.expect(Flow)
            for _ in range(count):
                await noisy.expect(Begin, End)

    asyncio.run(run())


def test_a_peer_that_keeps_sending_after_the_end_is_not_read() -> None:
    class Counting(AmqpProtocol):
        read = 0

        def data_received(self, data: bytes) -> None:
            self.read += len(data)
            super().data_received(data)

    async def run() -> None:
        echo = Echo()
        protocol = Counting(Connection(container_id="c"), lambda c, w: EchoPeer(echo, c, w), close_seconds=0.2)
        server = await asyncio.get_running_loop().create_server(lambda: protocol, "127.0.0.1", 0)
        async with server, connected(server.sockets[0].getsockname()[1]) as client:
            await client.opened()
            await client.say(b"\xff" * 64)
            await client.expect(Close)
            client.writer.write(bytes(100 * DRAINED_BYTES))
            await until(lambda: echo.lost == 1)
            assert protocol.read < 10 * DRAINED_BYTES

    asyncio.run(run())


def test_bytes_behind_the_first_frames_of_a_peer_are_not_lost() -> None:
    """A peer may send everything at once, more than one step of it."""

    async def run() -> None:
        async with serving(Echo()) as port, connected(port) as client:
            await client.say(AMQP_HEADER, written(Open(container_id="c")), written(BEGIN), BEGIN_END * 100)
            assert await client.header() == AMQP_HEADER
            await client.expect(Open, Begin)
            for _ in range(100):
                await client.expect(Begin, End)

    asyncio.run(run())


def test_a_reader_that_fails_does_not_stop_the_others() -> None:
    class Failing(Counted):
        def step(self) -> bool:
            raise ConnectionResetError

    async def run() -> None:
        failures: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
        clock = Clock()
        reading = FairReading(clock)
        readers = [Counted(clock, 100), Failing(clock, 1), Counted(clock, 1)]
        assert [reading.run(reader) for reader in readers] == [True, True, True]
        while readers[0].left or readers[2].left:
            await asyncio.sleep(0)
        assert [type(failure) for failure in failures] == [ConnectionResetError]

    asyncio.run(run())
