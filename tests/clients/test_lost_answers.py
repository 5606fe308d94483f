"""The broker's answer to a send is lost: the clients retry by themselves, and the message is delivered once."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncClient

from . import javascript
from .relay import relay
from .served import Served, completed, received
from .together import together

# The clients for Python do not close the sockets of lost connections.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:loop is closed:ResourceWarning"),
]


def delivered(served: Served, queue: str) -> list[str]:
    """Return the ids of all messages before `last`."""
    found: list[str] = []
    with served.client() as client, client.get_queue_receiver(queue) as receiver:
        while "last" not in found:
            for message in received(receiver, 1):
                found.append(message.message_id or "")
                receiver.complete_message(message)
    return found


@together
def test_a_retry_of_the_client_delivers_once(served: Served) -> None:
    queue = served.queue("detecting")
    with relay(served.port) as between:
        client = ServiceBusClient.from_connection_string(served.string(port=between.port))
        with client, client.get_queue_sender(queue) as sender:
            between.lose_next_answer()
            sender.send_messages(ServiceBusMessage(b"x", message_id="one"))
            between.lose_next_answer()
            sender.send_messages([ServiceBusMessage(b"x", message_id=name) for name in ("two", "three")])
            sender.send_messages(ServiceBusMessage(b"x", message_id="last"))
        assert between.lost == 2
    assert delivered(served, queue) == ["one", "two", "three", "last"]
    assert served.dropped(queue, 3) == ["one", "two", "three"]


@together
async def test_a_retry_of_the_asyncio_client_delivers_once(served: Served) -> None:
    queue = served.queue("detecting")
    with relay(served.port) as between:
        client = AsyncClient.from_connection_string(served.string(port=between.port))
        async with client, client.get_queue_sender(queue) as sender:
            await sender.send_messages(ServiceBusMessage(b"x", message_id="zero"))
            between.lose_next_answer()
            await sender.send_messages(ServiceBusMessage(b"x", message_id="one"))
            await sender.send_messages(ServiceBusMessage(b"x", message_id="last"))
        assert between.lost == 1
    assert delivered(served, queue) == ["zero", "one", "last"]
    assert served.dropped(queue, 1) == ["one"]


@together
def test_a_retry_of_the_javascript_client_delivers_once(served: Served) -> None:
    queue = served.queue("detecting")
    with relay(served.port) as between, javascript.started("lost_answer.mjs", served, between.port, queue) as node:
        node.expect("open")
        between.lose_next_answer()
        node.say("send one")
        node.expect("sent one")
        node.say("send last")
        node.expect("sent last")
        assert between.lost == 1
    assert delivered(served, queue) == ["one", "last"]
    assert served.dropped(queue, 1) == ["one"]


@together
def test_a_retried_send_to_a_queue_without_detection_is_delivered_twice(served: Served) -> None:
    """Check that the relay does lose answers, so that it is detection that drops the second message."""
    queue = served.queue("plain")
    with relay(served.port) as between:
        client = ServiceBusClient.from_connection_string(served.string(port=between.port))
        with client, client.get_queue_sender(queue) as sender:
            between.lose_next_answer()
            sender.send_messages(ServiceBusMessage(b"x", message_id="one"))
    with served.client() as client, client.get_queue_receiver(queue) as receiver:
        assert completed(receiver, 2) == [b"x", b"x"]
