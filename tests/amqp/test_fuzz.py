"""Any input of a peer causes no exception, no hang, no more memory than allowed, and only well-formed answers."""

from __future__ import annotations

from random import Random

import pytest

from oncebus.amqp.connection import Connection
from oncebus.amqp.frames import AMQP_HEADER, SASL_HEADER
from oncebus.amqp.performatives import Close
from tests.amqp.conversations import STEPS, WHOLE, Server, in_chunks, mutated, random_frame


def check(seed: int) -> None:
    random = Random(seed)
    connection = Connection(container_id="server", most_unfinished_bytes=10_000)
    if random.random() < 0.5:
        connection.trust()
    server = Server(random, connection)
    for step in conversation(random):
        for chunk in in_chunks(random, step):
            server.receive(chunk)
            assert len(connection._pending) <= 65536
        if random.random() < 0.05:
            connection.pause()
        elif connection.out.is_paused:
            server.see(connection.resume())
    server.see(connection.end_lost())
    server.drain()
    assert connection.end_lost() == []
    answers = server.frames()
    for position, (_, performative, _) in enumerate(answers):
        assert not isinstance(performative, Close) or position == len(answers) - 1


def conversation(random: Random) -> list[bytes]:
    kind = random.random()
    if kind < 0.05:
        return [random.choice([b"", SASL_HEADER, AMQP_HEADER]) + random.randbytes(random.randrange(200))]
    steps = list(WHOLE)
    if kind < 0.5:
        for _ in range(random.choice([1, 1, 2, 4])):
            at = random.randrange(len(steps))
            steps[at] = mutated(random, steps[at])
        return steps
    if kind < 0.6:
        # Frames in random order.
        mixed = [frame for step in STEPS[2:] for frame in step]
        random.shuffle(mixed)
        return [*steps[:2], *mixed]
    made = [
        b"".join(random_frame(random) for _ in range(random.randrange(1, 20))) for _ in range(random.randrange(1, 8))
    ]
    if kind < 0.8:
        return [*steps[:3], *made]
    return [*steps[:3], *[mutated(random, step) for step in made]]


@pytest.mark.parametrize("block", range(10))
def test_whatever_a_peer_sends_is_answered_in_order(block: int) -> None:
    for seed in range(block * 200, block * 200 + 200):
        check(seed)


@pytest.mark.torture
@pytest.mark.parametrize("block", range(100))
def test_whatever_a_peer_sends_is_answered_in_order_for_long(block: int) -> None:
    for seed in range(10**6 + block * 2000, 10**6 + block * 2000 + 2000):
        check(seed)
