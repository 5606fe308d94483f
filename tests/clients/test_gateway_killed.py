"""The gateway and the pipeline are killed while clients are connected, and the supervisor restarts them."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import proton
import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusConnectionError, SessionLockLostError
from proton import ulong
from proton.handlers import MessagingHandler
from proton.reactor import Container

from tests.programs.serve.programs import until

from . import javascript
from .served import PATIENCE, Served, body, completed, left, received, texts
from .together import together

# The clients for Python do not close the sockets of lost connections.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:loop is closed:ResourceWarning"),
]


def at_half_time(served: Served) -> None:
    gateway, pipeline = served.gateway, served.running.child("pipeline")
    os.kill(gateway, signal.SIGKILL)
    os.kill(pipeline, signal.SIGKILL)
    until(lambda: _is_another(served, gateway), "a new gateway", limit=PATIENCE)


def _is_another(served: Served, than: int) -> bool:
    try:
        return served.gateway != than
    except AssertionError:
        return False


@together
def test_a_sender_and_a_receiver_continue_with_the_new_gateway(served: Served) -> Iterator[None]:
    with served.pair("detecting-long") as (queue, sender, receiver):
        sender.send_messages([ServiceBusMessage(text, message_id=text.decode()) for text in texts(range(3))])
        first, second, _ = received(receiver, 3)
        receiver.complete_message(first)
        yield
        for text in texts(range(6)):
            sender.send_messages(ServiceBusMessage(text, message_id=text.decode()))
        # Completed messages stay completed, and all ids are remembered.
        assert served.dropped(queue, 3) == ["0", "1", "2"]
        found = completed(receiver, 3)
        assert found == texts(range(3, 6))
        # A lock survives the restart of the gateway.
        receiver.renew_message_lock(second)
        receiver.complete_message(second)
        assert left(receiver) == [b"2"]


@together
async def test_the_asyncio_client_continues_with_the_new_gateway(served: Served) -> AsyncIterator[None]:
    queue = served.queue("detecting")
    async with (
        served.async_client() as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as receiver,
    ):
        await sender.send_messages([ServiceBusMessage(text, message_id=text.decode()) for text in texts(range(3))])
        (number,) = await sender.schedule_messages(
            ServiceBusMessage(b"later", message_id="later"), datetime.now(UTC) + timedelta(hours=1)
        )
        served.arrived(queue, 1, "scheduled")
        yield
        await sender.send_messages([ServiceBusMessage(text, message_id=text.decode()) for text in texts(range(6))])
        await sender.cancel_scheduled_messages(number)
        found: list[bytes] = []
        while len(found) < 6:
            for message in await receiver.receive_messages(6, max_wait_time=PATIENCE):
                found.append(body(message))
                await receiver.complete_message(message)
        assert found == texts(range(6))


@together
def test_a_waiting_receiver_gets_messages_after_the_restart(served: Served) -> Iterator[None]:
    with served.pair() as (_, sender, receiver):
        receiver.peek_messages(1)
        yield
        sender.send_messages(ServiceBusMessage(b"after"))
        assert completed(receiver, 1) == [b"after"]


@together
def test_a_session_is_lost_with_its_gateway_and_can_be_accepted_again_with_its_state(served: Served) -> Iterator[None]:
    # The session lock survives the restart too.
    queue = served.queue("short-sessions")
    with served.client() as client, client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(text, session_id="a") for text in texts(range(2))])
        served.arrived(queue, 2)
        with client.get_queue_receiver(queue, session_id="a") as holder:
            (first,) = received(holder, 1)
            holder.complete_message(first)
            holder.session.set_state(b"one done")
            yield
            with pytest.raises((SessionLockLostError, ServiceBusConnectionError)):
                holder.receive_messages(1, max_wait_time=PATIENCE)
            locked_until = holder.session.locked_until_utc
            assert locked_until is not None
        time.sleep(max(0.0, (locked_until - datetime.now(UTC)).total_seconds()))
        with client.get_queue_receiver(queue, session_id="a") as another:
            assert another.session.get_state() == b"one done"
            assert completed(another, 1) == [b"1"]


@together
def test_deferred_and_dead_lettered_messages_survive_the_restart(served: Served) -> Iterator[None]:
    with served.pair() as (queue, sender, receiver), served.client() as client:
        sender.send_messages([ServiceBusMessage(text) for text in (b"deferred", b"dead", b"done")])
        first, second, third = received(receiver, 3)
        # Each of these waits for the broker's answer.
        receiver.defer_message(first)
        receiver.dead_letter_message(second, reason="why", error_description="in words")
        receiver.complete_message(third)
        yield
        (peeked,) = receiver.peek_messages(10, sequence_number=1)
        assert (body(peeked), peeked.state) == (b"deferred", ServiceBusMessageState.DEFERRED)
        (deferred,) = receiver.receive_deferred_messages(first.sequence_number or 0)
        assert (body(deferred), deferred.delivery_count) == (b"deferred", 1)
        receiver.complete_message(deferred)
        with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
            (letter,) = received(dead, 1)
            assert (body(letter), letter.dead_letter_reason) == (b"dead", "why")
            assert letter.dead_letter_error_description == "in words"
            dead.complete_message(letter)
            assert left(dead) == []
        assert left(receiver) == []


@together
def test_ids_of_every_type_are_remembered_across_the_restart(served: Served) -> Iterator[None]:
    identity = uuid.uuid4()
    kinds = ("detecting", "detecting-partitioned", "detecting-sessions", "detecting-topic")
    entities = [served.pool.take(kind)[0] for kind in kinds]

    def send(*ids: Any) -> None:
        with served.client() as client:
            for entity in entities:
                # A topic is the same to a sender.
                with client.get_queue_sender(entity) as sender:
                    for each in ids:
                        sender.send_messages(ServiceBusMessage(b"x", message_id=each, session_id="s"))

    def send_neutrally(*ids: object) -> None:
        with served.proton() as connection:
            for entity in entities:
                sender: Any = connection.create_sender(entity)
                for each in ids:
                    sender.send(proton.Message("x", id=each, group_id="s"))
                sender.close()

    send("text", identity)
    send_neutrally(ulong(17))
    yield
    send_neutrally("text", identity, ulong(17))
    send(str(identity), "17")
    for entity in entities:
        assert served.dropped(entity, 5) == ["text", str(identity), "17", str(identity), "17"], entity


class Neutral(MessagingHandler):
    """Proton with its defaults: it accepts all messages and reconnects automatically."""

    def __init__(self, served: Served, queue: str) -> None:
        super().__init__()
        self.received: list[str] = []
        self.to_send: list[str] = []
        self.connections = 0
        self._served, self._queue = served, queue
        self._container = Container(self)

    @contextmanager
    def running(self) -> Iterator[None]:
        # How often `process` returns if nothing happens.
        self._container.timeout = 0.1
        self._container.start()
        try:
            yield
        finally:
            self._connection.close()
            while self._container.process():
                pass
            self._container.stop()
            self._container.process()

    def go_on(self, received: list[str]) -> None:
        """Run until these messages have come and the broker has their settlements."""

        def is_done() -> bool:
            self._container.process()
            is_left = self._served.http.metric("messages", entity=self._queue)
            return len(self.received) >= len(received) and not self.to_send and not is_left

        until(is_done, f"Proton received {received}", limit=PATIENCE)
        assert self.received == received

    def on_start(self, event: Any) -> None:
        root = self._served.root
        self._connection = event.container.connect(
            f"amqp://localhost:{self._served.port}",
            user=root.name,
            password=root.primary_key,
            allowed_mechs="PLAIN",
            allow_insecure_mechs=True,
        )
        event.container.create_sender(self._connection, self._queue)
        event.container.create_receiver(self._connection, self._queue)

    def on_connection_opened(self, event: Any) -> None:  # noqa: ARG002
        self.connections += 1

    def on_sendable(self, event: Any) -> None:
        while self.to_send and event.sender.credit:
            event.sender.send(proton.Message("x", id=self.to_send.pop(0)))

    def on_message(self, event: Any) -> None:
        self.received.append(event.message.id)


@together
def test_a_neutral_client_reconnects_by_itself(served: Served) -> Iterator[None]:
    queue = served.queue("detecting")
    neutral = Neutral(served, queue)
    neutral.to_send = ["a", "b"]
    with neutral.running():
        neutral.go_on(["a", "b"])
        yield
        neutral.to_send = ["b", "c"]
        neutral.go_on(["a", "b", "c"])
    assert neutral.connections == 2
    assert served.dropped(queue, 1) == ["b"]


@together
def test_the_javascript_client_continues_with_the_new_gateway(served: Served) -> Iterator[None]:
    with javascript.started("gateway_killed.mjs", served, served.port, served.queue("detecting")) as node:
        node.expect("before")
        yield
        node.say("after")
        node.expect("done")
