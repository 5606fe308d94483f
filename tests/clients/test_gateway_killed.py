"""The gateway and the pipeline are killed while clients are connected; the supervisor starts them again."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusConnectionError, SessionLockLostError

from serve.programs import until

from . import javascript
from .served import PATIENCE, Served, body, completed, left, received, texts
from .together import together

# The clients for Python do not close the sockets of connections that were cut.
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
def test_a_sender_and_a_receiver_go_on_with_the_new_gateway(served: Served) -> Iterator[None]:
    with served.pair("detecting") as (queue, sender, receiver):
        sender.send_messages([ServiceBusMessage(text, message_id=text.decode()) for text in texts(range(3))])
        first, second, _ = received(receiver, 3)
        receiver.complete_message(first)
        yield
        for text in texts(range(6)):
            sender.send_messages(ServiceBusMessage(text, message_id=text.decode()))
        # What was completed stays so, and all ids are remembered.
        assert served.dropped(queue, 3) == ["0", "1", "2"]
        found = completed(receiver, 3)
        assert found == texts(range(3, 6))
        # A lock outlives the gateway that gave it.
        receiver.renew_message_lock(second)
        receiver.complete_message(second)
        assert left(receiver) == [b"2"]


@together
async def test_the_asyncio_client_goes_on_with_the_new_gateway(served: Served) -> AsyncIterator[None]:
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
def test_a_receiver_that_waits_gets_what_comes_after(served: Served) -> Iterator[None]:
    with served.pair() as (_, sender, receiver):
        receiver.peek_messages(1)
        yield
        sender.send_messages(ServiceBusMessage(b"after"))
        assert completed(receiver, 1) == [b"after"]


@together
def test_a_session_is_lost_with_its_gateway_and_can_be_taken_again_with_its_state(served: Served) -> Iterator[None]:
    # The lock itself outlives the gateway too.
    queue = served.queue("short-sessions")
    with served.client() as client, client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(text, session_id="a") for text in texts(range(2))])
        with client.get_queue_receiver(queue, session_id="a") as holder:
            (first,) = received(holder, 1)
            holder.complete_message(first)
            holder.session.set_state(b"one done")
            yield
            with pytest.raises((SessionLockLostError, ServiceBusConnectionError)):
                holder.receive_messages(1, max_wait_time=PATIENCE)
        with client.get_queue_receiver(queue, session_id="a") as another:
            assert another.session.get_state() == b"one done"
            assert completed(another, 1) == [b"1"]


@together
def test_ids_of_every_type_are_remembered_across_the_restart(served: Served) -> Iterator[None]:
    identity = uuid.uuid4()
    queues = [served.queue(kind) for kind in ("detecting", "detecting-partitioned", "detecting-sessions")]
    with served.client() as client:

        def send_all() -> None:
            for queue in queues:
                with client.get_queue_sender(queue) as sender:
                    sender.send_messages(ServiceBusMessage(b"x", message_id=str(identity), session_id="s"))

        send_all()
        yield
        send_all()
        for queue in queues:
            assert served.dropped(queue, 1) == [str(identity)]


@together
def test_the_javascript_client_goes_on_with_the_new_gateway(served: Served) -> Iterator[None]:
    with javascript.started("gateway_killed.mjs", served, served.port, served.queue("detecting")) as node:
        node.expect("before")
        yield
        node.say("after")
        node.expect("done")
