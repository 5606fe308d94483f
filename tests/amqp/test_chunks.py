"""The result does not depend on how the bytes are split into chunks."""

from __future__ import annotations

from random import Random

import pytest

from oncebus.amqp.connection import Connection
from oncebus.amqp.events import Closed
from tests.amqp.client import Client, deliveries, transfer, written
from tests.amqp.conversations import WHOLE, Server, in_chunks, mutated, random_frame, shown


def played(seed: int, steps: list[list[bytes]]) -> tuple[list[object], bytes]:
    """Return all events and answers of a conversation. The server answers after each complete step."""
    server = Server(Random(seed), Connection(container_id="server"))
    for chunks in steps:
        server.receive(*chunks)
    server.see(server.connection.end_lost())
    return [shown(event) for event in server.seen], bytes(server.written)


def test_the_conversation_has_the_expected_events() -> None:
    events = [event for seed in range(10) for event in played(seed, [[step] for step in WHOLE])[0]]
    names = {event[0] for event in events if isinstance(event, tuple)}
    assert names == {"begun", "ended", "attached", "detached", "delivered", "credit", "disposed"}
    assert Closed(None) in events


@pytest.mark.parametrize("seed", range(30))
def test_a_conversation_in_any_chunks_has_the_same_events_and_answers(seed: int) -> None:
    random = Random(seed)
    whole = played(seed, [[step] for step in WHOLE])
    for _ in range(5):
        assert played(seed, [in_chunks(random, step) for step in WHOLE]) == whole
    assert played(seed, [[bytes([byte]) for byte in step] for step in WHOLE]) == whole


@pytest.mark.parametrize("seed", range(100))
def test_random_frames_in_any_chunks_have_the_same_events_and_answers(seed: int) -> None:
    random = Random(seed)
    steps = list(WHOLE)
    for _ in range(3):
        # Only later steps: an error in the first bytes shows as many of them as have come.
        at = random.randrange(2, len(steps))
        steps[at] = mutated(random, steps[at])
        steps.insert(at, b"".join(random_frame(random) for _ in range(random.randrange(9))))
    whole = played(seed, [[step] for step in steps])
    assert played(seed, [in_chunks(random, step) for step in steps]) == whole


def test_a_large_frame_may_come_byte_by_byte() -> None:
    client = Client()
    client.begin()
    client.incoming()
    payload = bytes(60_000)
    events = [event for byte in written(transfer(), payload) for event in client.raw(bytes([byte]))]
    assert [it.payload for it in deliveries(events)] == [payload]
