"""Whatever is said to the running broker, before or after it knows who speaks: nobody else notices, and it goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from random import Random

import pytest
from azure.servicebus import ServiceBusMessage

from serve.programs import until

from .captured import NEUTRAL, PYTHON, Conversation, conversations, entities, spoiled
from .served import PATIENCE, Served, body, is_empty, received, texts
from .together import Acts

AT_ONCE = 16
BLOCK = 100
ANSWER = 0.02
"""So long an answer is waited for, before the next piece is said all the same."""
GROWTH = 100 << 20
"""How much larger the gateway may be at the end: far more than what it keeps for clients that it has got used to."""


async def say(served: Served, pieces: Sequence[bytes], random: Random) -> bool:
    """Say all of this on a connection, and go in one way or the other. Whether the broker hung up before the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    heard = asyncio.Event()

    async def listen() -> None:
        with suppress(ConnectionError):
            while await reader.read(65536):
                heard.set()

    listening = asyncio.create_task(listen())
    listening.add_done_callback(lambda _: heard.set())
    try:
        for piece in pieces:
            heard.clear()
            writer.write(piece)
            with suppress(TimeoutError):
                async with asyncio.timeout(ANSWER):
                    await heard.wait()
            if listening.done():
                return True
        return False
    finally:
        if random.random() < 0.5:
            writer.transport.abort()
        writer.close()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        with suppress(OSError):
            await writer.wait_closed()


def said_all(served: Served, block: Sequence[tuple[list[bytes], Random]]) -> int:
    """So many connections, some of them at the same time; how many were cut by the broker."""

    async def play() -> int:
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(pieces: list[bytes], random: Random) -> bool:
            async with turns:
                return await say(served, pieces, random)

        return sum(await asyncio.gather(*(one(pieces, random) for pieces, random in block)))

    return asyncio.run(play())


@contextmanager
def witness(served: Served, queue: str) -> Iterator[list[bytes]]:
    """An official client that sends and receives all the while; what it saw. It tries nothing again."""
    seen: list[bytes] = []
    ended = threading.Event()

    def run() -> None:
        with (
            served.client(retry_total=0) as client,
            client.get_queue_sender(queue) as sender,
            client.get_queue_receiver(queue) as receiver,
        ):
            while not ended.is_set():
                for text in texts(range(len(seen), len(seen) + 5)):
                    sender.send_messages(ServiceBusMessage(text))
                for message in received(receiver, 5):
                    receiver.complete_message(message)
                    seen.append(body(message))
            assert is_empty(receiver)

    with ThreadPoolExecutor(1) as beside:
        running = beside.submit(run)
        try:
            yield seen
        finally:
            ended.set()
        running.result(2 * PATIENCE)


def say_again(served: Served, recorded: Sequence[Conversation]) -> None:
    """What was recorded is understood when it is said again: what is spoiled of it gets as far as it did."""
    before = {queue: served.http.metric("messages_accepted_total", entity=queue) for queue in (PYTHON, NEUTRAL)}
    said_all(served, [(each.pieces, Random(0)) for each in recorded])
    for queue, count in before.items():
        served.accepted(queue, 2 * count)


@pytest.mark.parametrize(
    "inputs", [pytest.param(900, id="900"), pytest.param(10_000, id="10000", marks=pytest.mark.torture)]
)
def test_whatever_is_said_nobody_else_notices_and_the_gateway_goes_on(served: Served, acts: Acts, inputs: int) -> None:
    acts.wait_for_all()
    with entities(served):
        recorded = conversations(served)
        say_again(served, recorded)
        gateway, before, logged = served.gateway, served.memory(), len(served.running.err.read_text())
        connections, cut = served.http.metric("amqp_connections"), 0
        with witness(served, served.queue()) as seen:
            for start in range(0, inputs, BLOCK):
                block = []
                for number in range(start, start + BLOCK):
                    random = Random(number)
                    # Each conversation in its turn, and of three times two after the broker knows the client.
                    conversation = recorded[number // 3 % len(recorded)]
                    block.append((spoiled(random, conversation, is_known=number % 3 != 0), random))
                cut += said_all(served, block)
                assert served.gateway == gateway, f"the gateway did not survive the inputs from {start} on"
        # Nobody is kept that has gone.
        until(lambda: served.http.metric("amqp_connections") <= connections, "all are gone", limit=PATIENCE)
        assert seen == texts(range(len(seen)))
        assert seen, "the witness saw nothing"
        assert served.gateway == gateway
        assert served.http.health() == 200
        # What nobody has foreseen is logged with where it happened.
        lines = served.running.err.read_text()[logged:].splitlines()
        assert [line for line in lines if "Traceback" in line] == []
        growth = served.memory() - before
        print(
            f"{inputs} inputs, {cut} of them cut, {len(seen)} messages beside them, {growth / 2**20:.1f} MB more memory"
        )
        assert growth < GROWTH
