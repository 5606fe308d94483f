"""Corrupted input to the running broker, before or after authentication, affects neither it nor other clients."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from random import Random

import pytest
from azure.servicebus import ServiceBusMessage

from tests.programs.serve.programs import until

from .captured import NEUTRAL, PYTHON, Conversation, conversations, entities, spoiled
from .served import PATIENCE, Served, body, is_empty, received, texts
from .together import Acts

AT_ONCE = 16
BLOCK = 100
ANSWER = 0.02
"""How long corrupted conversations wait for an answer to each piece, in seconds."""
COUNTED = 20.0
"""How long messages may take until they are counted, in seconds."""
GROWTH = 100 << 20
"""How much the gateway's memory may grow, in bytes: far more than its usual caches take."""


async def say(served: Served, pieces: Sequence[bytes], random: Random, patience: float) -> bool:
    """Send all pieces on a connection, then disconnect in a random way. Return whether the broker did first.

    Waits up to `patience` seconds for an answer before sending the next piece anyway.
    """
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
                async with asyncio.timeout(patience):
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


def said_all(served: Served, block: Sequence[tuple[list[bytes], Random]], patience: float = ANSWER) -> int:
    """Play all conversations, some at the same time. Return how many connections the broker closed."""

    async def play() -> int:
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(pieces: list[bytes], random: Random) -> bool:
            async with turns:
                return await say(served, pieces, random, patience)

        return sum(await asyncio.gather(*(one(pieces, random) for pieces, random in block)))

    return asyncio.run(play())


@contextmanager
def witness(served: Served, queue: str) -> Iterator[list[bytes]]:
    """Send and receive with an official client during the block, without retries. Yields the received bodies."""
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
    """Check that the broker accepts replayed recordings, so that corrupted ones reach the same code.

    A recording does not wait for its credit, so a slow broker may refuse some of it. Then it is replayed more slowly.
    """

    def counted() -> list[float]:
        return [served.http.metric("messages_new_total", entity=queue) for queue in (PYTHON, NEUTRAL)]

    sent = counted()
    for patience in (ANSWER, 10 * ANSWER, 50 * ANSWER):
        goal = [before + count for before, count in zip(counted(), sent, strict=True)]
        said_all(served, [(each.pieces, Random(0)) for each in recorded], patience)
        end = time.monotonic() + COUNTED
        while time.monotonic() < end:
            # More, if the broker was late to count the replay before.
            if all(count >= least for count, least in zip(counted(), goal, strict=True)):
                return
            time.sleep(0.05)
    raise AssertionError(f"the broker counts {counted()} messages after the replay, not {goal}")


@pytest.mark.parametrize(
    "inputs", [pytest.param(200, id="200"), pytest.param(10_000, id="10000", marks=pytest.mark.torture)]
)
def test_corrupted_input_affects_no_other_client_and_does_not_stop_the_gateway(
    served: Served, acts: Acts, inputs: int
) -> None:
    acts.wait_for_all()
    with entities(served):
        recorded = conversations(served)
        say_again(served, recorded)
        gateway, before, logged = served.gateway, served.memory(), len(served.running.err.read_text())
        connections, closed = served.http.metric("amqp_connections"), 0
        with witness(served, served.queue()) as seen:
            for start in range(0, inputs, BLOCK):
                block = []
                for number in range(start, start + BLOCK):
                    random = Random(number)
                    # Cycle through the conversations; two of three are corrupted after authentication.
                    conversation = recorded[number // 3 % len(recorded)]
                    block.append((spoiled(random, conversation, is_known=number % 3 != 0), random))
                closed += said_all(served, block)
                assert served.gateway == gateway, f"the gateway did not survive the inputs from {start} on"
        # The broker keeps no closed connection.
        until(
            lambda: served.http.metric("amqp_connections") <= connections, "all connections are closed", limit=PATIENCE
        )
        assert seen == texts(range(len(seen)))
        assert seen, "the witness saw nothing"
        assert served.gateway == gateway
        assert served.http.health() == 200
        # An unexpected error would be logged with a traceback.
        lines = served.running.err.read_text()[logged:].splitlines()
        assert [line for line in lines if "Traceback" in line] == []
        growth = served.memory() - before
        print(
            f"{inputs} inputs, {closed} connections closed by the broker, {len(seen)} messages of the witness, "
            f"{growth / 2**20:.1f} MB more memory"
        )
        assert growth < GROWTH
