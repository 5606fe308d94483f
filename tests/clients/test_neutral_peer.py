"""Qpid Proton, a plain AMQP 1.0 client without Service Bus features, against the running broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import proton
import pytest
from azure.servicebus import ServiceBusMessage
from proton import Delivery, ulong
from proton.reactor import AtMostOnce
from proton.utils import BlockingConnection, LinkDetached

from .served import PATIENCE, Served, completed, is_empty, left, texts
from .together import together

ACT = "messages"
LARGEST = 256 * 1024
MANY = 50


def content(message: Any) -> bytes:
    """Return a copy of the body, because the next message may overwrite its memory."""
    return bytes(message.body)


def taken(receiver: Any, count: int) -> list[bytes]:
    """Receive and accept `count` messages, and return their bodies."""
    found = []
    for _ in range(count):
        found.append(content(receiver.receive(PATIENCE)))
        receiver.accept()
    return found


def sent(connection: BlockingConnection, sender: Any, *messages: proton.Message) -> list[tuple[int, str | None]]:
    """Send all messages without waiting. Return the outcome of each, with the condition of a rejection."""
    deliveries = [sender.link.send(message) for message in messages]
    connection.wait(lambda: all(each.settled for each in deliveries), timeout=PATIENCE)
    found = []
    for each in deliveries:
        refused = each.remote.condition
        found.append((each.remote_state, None if refused is None else refused.name))
        each.settle()
    return found


def of_bytes(text: bytes, **properties: Any) -> proton.Message:
    """Return a message whose body is a data section, not a binary value."""
    return proton.Message(text, inferred=True, **properties)


def refused(opening: Callable[[], object]) -> LinkDetached:
    """Open a link that must be refused, and return the error."""
    with pytest.raises(LinkDetached) as found:
        opening()
    return found.value


@together
def test_many_messages_in_flight_are_all_accepted_and_keep_their_order(served: Served) -> None:
    with served.pair() as (queue, sender, receiver), served.proton() as connection:
        messages = [of_bytes(text) for text in texts(range(MANY))]
        answers = sent(connection, connection.create_sender(queue), *messages)
        assert answers == [(Delivery.ACCEPTED, None)] * MANY
        assert completed(receiver, MANY) == texts(range(MANY))
        # A batch of the official client arrives as single messages.
        batch = sender.create_message_batch()
        for text in texts(range(MANY)):
            batch.add_message(ServiceBusMessage(text))
        sender.send_messages(batch)
        assert taken(connection.create_receiver(queue, credit=MANY), MANY) == texts(range(MANY))
        # Proton writes the last settlement only with the next operation.
        connection.close()
        served.arrived(queue, 0)


@together
def test_a_large_message_makes_a_round_trip(served: Served) -> None:
    large = bytes(range(256)) * 800
    with served.pair() as (queue, sender, receiver), served.proton() as connection:
        connection.create_sender(queue).send(of_bytes(large, id=ulong(1)))
        sender.send_messages(ServiceBusMessage(large[::-1]))
        assert taken(connection.create_receiver(queue), 2) == [large, large[::-1]]
        connection.create_sender(queue, name="again").send(of_bytes(large))
        connection.close()
        assert completed(receiver, 1) == [large]


@together
def test_a_rejected_message_is_dead_lettered(served: Served) -> None:
    with served.pair() as (queue, sender, _), served.proton() as connection:
        sender.send_messages([ServiceBusMessage(b"bad", message_id="bad"), ServiceBusMessage(b"good")])
        peer = connection.create_receiver(queue)
        peer.receive(PATIENCE)
        peer.reject()
        assert taken(peer, 1) == [b"good"]
        letters = connection.create_receiver(f"{queue}/$DeadLetterQueue")
        letter: Any = letters.receive(PATIENCE)
        assert (letter.id, content(letter)) == ("bad", b"bad")
        letters.release(delivered=False)
        assert taken(letters, 1) == [b"bad"]
        connection.close()
        served.arrived(queue, 0)
        served.arrived(queue, 0, "dead_letter")


@together
def test_a_message_received_settled_is_removed_at_once(served: Served) -> None:
    with served.pair() as (queue, sender, receiver), served.proton() as connection:
        sender.send_messages([ServiceBusMessage(text) for text in texts(range(10))])
        peer: Any = connection.create_receiver(queue, credit=10, options=AtMostOnce())
        assert [content(peer.receive(PATIENCE)) for _ in range(10)] == texts(range(10))
        assert not peer.fetcher.unsettled
        assert left(receiver) == []
        assert is_empty(receiver)


@together
def test_it_sends_to_a_topic_and_receives_from_its_subscriptions(served: Served) -> None:
    topic = served.topic()
    with served.proton() as connection:
        sender = connection.create_sender(topic)
        for price in (50, 150):
            sender.send(of_bytes(str(price).encode(), properties={"price": price}))
        everything = connection.create_receiver(f"{topic}/Subscriptions/all", name="all", credit=2)
        dear = connection.create_receiver(f"{topic}/subscriptions/dear", name="dear")
        assert taken(everything, 2) == [b"50", b"150"]
        message: Any = dear.receive(PATIENCE)
        assert (content(message), message.properties["urgent"]) == (b"150", True)
        dear.accept()


@together
def test_a_refused_link_has_a_reason_and_other_links_continue(served: Served) -> None:
    queue, disabled = served.queue(), served.queue("disabled")
    with served.proton() as connection:
        for create in (connection.create_sender, connection.create_receiver):
            error = refused(partial(create, "nowhere"))
            assert error.condition == "amqp:not-found"
            assert "/nowhere' could not be found" in str(error)
            error = refused(partial(create, disabled))
            assert error.condition == "com.microsoft:entity-disabled"
            assert disabled in str(error)
        connection.create_sender(queue).send(of_bytes(b"a"))
        assert taken(connection.create_receiver(queue), 1) == [b"a"]


@together
def test_a_wrong_key_does_not_open_a_connection(served: Served) -> None:
    for rule in (replace(served.root, primary_key="wrong"), replace(served.root, name="nobody")):
        with pytest.raises(proton.ConnectionException, match="amqp:unauthorized-access"), served.proton(rule):
            pass


@together
def test_the_error_names_a_missing_right(served: Served) -> None:
    queue = served.queue()
    with served.proton(served.only_listens) as connection:
        error = refused(lambda: connection.create_sender(queue))
        assert error.condition == "amqp:unauthorized-access"
        assert "'Send' claim" in str(error)
    with served.proton(served.only_sends) as connection:
        connection.create_sender(queue).send(of_bytes(b"a"))
        error = refused(lambda: connection.create_receiver(queue))
        assert error.condition == "amqp:unauthorized-access"
        assert "'Listen' claim" in str(error)
    with served.proton(served.only_listens) as connection:
        assert taken(connection.create_receiver(queue), 1) == [b"a"]


@together
def test_only_the_message_that_is_too_large_is_refused(served: Served) -> None:
    queue = served.queue()
    with served.proton() as connection:
        sender = connection.create_sender(queue)
        answers = sent(connection, sender, of_bytes(b"a"), of_bytes(bytes(LARGEST + 1)), of_bytes(b"b"))
        assert answers == [
            (Delivery.ACCEPTED, None),
            (Delivery.REJECTED, "amqp:link:message-size-exceeded"),
            (Delivery.ACCEPTED, None),
        ]
        assert taken(connection.create_receiver(queue), 2) == [b"a", b"b"]
