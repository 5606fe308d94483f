"""Recorded conversations of real clients with the broker, and ways to corrupt them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, NamedTuple

import proton
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.amqp.conversations import WHOLE, mutated, random_frame

from . import javascript
from .raw import signing_in
from .relay import relay
from .served import PATIENCE, Served, received, texts

MADE_UP, PYTHON, SESSIONS, JAVASCRIPT, NEUTRAL = (
    # The queue of the synthetic conversation. No name is a single bit away from that of another scenario's queue.
    "queue",
    "fuzzed-by-python",
    "fuzzed-with-sessions",
    "fuzzed-by-javascript",
    "fuzzed-by-proton",
)
DESCRIBED: dict[str, dict[str, object]] = {
    MADE_UP: {},
    PYTHON: {},
    SESSIONS: {"RequiresSession": True},
    JAVASCRIPT: {"RequiresDuplicateDetection": True},
    NEUTRAL: {},
}
_TOKEN = b"SharedAccessSignature"


class Conversation(NamedTuple):
    """The bytes that a client sent on one connection, in pieces. From the piece `known` on, it is authenticated."""

    pieces: list[bytes]
    known: int


@contextmanager
def entities(served: Served) -> Iterator[None]:
    """Create queues for the block, with names unlike those of other scenarios."""
    for name, values in DESCRIBED.items():
        assert served.http.put(name, values)[0] == 201
    try:
        yield
    finally:
        for name in DESCRIBED:
            served.http.delete(name)


def conversations(served: Served) -> list[Conversation]:
    """Record and return the conversations of the clients, plus a synthetic one."""
    recorders: list[Callable[[Served], list[list[bytes]]]] = [_of_python, _of_javascript, _of_proton]
    with ThreadPoolExecutor(len(recorders)) as at_once:
        recorded = list(at_once.map(lambda record: record(served), recorders))
    secrets = (_TOKEN, served.root.primary_key.encode())
    found = [Conversation([signing_in(served), *WHOLE[1:]], 1)]
    for said in recorded:
        for pieces in said:
            shown = [at for at, piece in enumerate(pieces) if any(secret in piece for secret in secrets)]
            assert shown, "a client has said nothing of a key"
            found.append(Conversation(pieces, shown[0] + 1))
    return found


def _of_python(served: Served) -> list[list[bytes]]:
    with relay(served.port) as between:
        client = ServiceBusClient.from_connection_string(served.string(port=between.port))
        with client, client.get_queue_sender(PYTHON) as sender, client.get_queue_receiver(PYTHON) as receiver:
            numbers = sender.schedule_messages(ServiceBusMessage(b"later"), datetime.now(UTC) + timedelta(hours=1))
            sender.send_messages([ServiceBusMessage(text, message_id=text.decode()) for text in texts(range(2))])
            sender.send_messages(ServiceBusMessage(b"2", application_properties={"n": 1}))
            first, second, third = received(receiver, 3)
            receiver.peek_messages(5)
            served.arrived(PYTHON, 1, "scheduled")
            sender.cancel_scheduled_messages(numbers)
            receiver.renew_message_lock(first)
            receiver.complete_message(first)
            receiver.defer_message(second)
            receiver.dead_letter_message(third, reason="why")
            (deferred,) = receiver.receive_deferred_messages(second.sequence_number or 0)
            receiver.abandon_message(deferred)
            with client.get_queue_receiver(SESSIONS, session_id="s") as holder:
                holder.session.set_state(b"state")
                holder.session.renew_lock()
    return between.said


def _of_javascript(served: Served) -> list[list[bytes]]:
    with (
        relay(served.port) as between,
        javascript.started("gateway_killed.mjs", served, between.port, JAVASCRIPT) as node,
    ):
        node.expect("before")
        node.say("after")
        node.expect("done")
    return between.said


def _of_proton(served: Served) -> list[list[bytes]]:
    with relay(served.port) as between, served.proton(port=between.port) as connection:
        sender = connection.create_sender(NEUTRAL)
        for number in range(3):
            sender.send(proton.Message(str(number), id=number))
        receiver: Any = connection.create_receiver(NEUTRAL, credit=3)
        for settle in (receiver.accept, receiver.reject, receiver.release):
            receiver.receive(PATIENCE)
            settle()
        connection.close()
    return between.said


def spoiled(random: Random, conversation: Conversation, *, is_known: bool) -> list[bytes]:
    """Return a conversation that is corrupted before the client is authenticated or, with `is_known`, after that."""
    pieces, known = list(conversation.pieces), conversation.known
    first, end = (known, len(pieces)) if is_known else (0, known)
    at = random.randrange(first, end)
    for where in (at, *(random.randrange(first, end) for _ in range(random.choice([0, 0, 1, 3])))):
        pieces[where] = mutated(random, pieces[where])
    match random.randrange(10):
        case 0:
            # The client sends nothing more.
            return pieces[: at + 1]
        case 1:
            rest = pieces[at:]
            random.shuffle(rest)
            return pieces[:at] + rest
        case 2 | 3:
            pieces[at:at] = [random_frame(random) for _ in range(random.randrange(1, 20))]
        case 4:
            # All at once.
            return [*pieces[:first], b"".join(pieces[first:])]
    return pieces
