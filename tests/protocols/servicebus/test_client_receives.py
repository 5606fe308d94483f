"""azure-servicebus receives and settles."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import MessageAlreadySettled, MessageLockLostError, MessageNotFoundError

from oncebus.broker.addresses import Address
from oncebus.engine.store import Action, Settlement
from oncebus.values.durations import SECOND
from tests.clients.served import received

from .bus import PATIENCE, Bus

SHORT = 0.2
"""How long to wait for a message that should not come, in seconds."""


def taken(receiver: ServiceBusReceiver, wait: float = PATIENCE) -> ServiceBusReceivedMessage:
    """Receive and return exactly one message."""
    (message,) = receiver.receive_messages(1, max_wait_time=wait)
    return message


def both(bus: Bus, queue: str) -> list[ServiceBusReceiver]:
    """Return receivers of a queue and of its dead-letter queue."""
    dead = ServiceBusSubQueue.DEAD_LETTER
    return bus.together(lambda: bus.receiver(queue), lambda: bus.receiver(queue, sub_queue=dead))


def body(message: ServiceBusReceivedMessage) -> bytes:
    return b"".join(message.body)


async def take_away(bus: Bus, queue: str, *messages: ServiceBusReceivedMessage) -> None:
    """Complete messages behind the client's back."""
    tokens = [message.lock_token for message in messages]
    settlements = [Settlement(Action.COMPLETE, token.bytes) for token in tokens if isinstance(token, UUID)]
    await bus.broker.settle(Address(queue), settlements)


def nothing(receiver: ServiceBusReceiver) -> bool:
    return receiver.receive_messages(1, max_wait_time=SHORT) == []


def test_a_completed_message_is_removed_and_an_abandoned_one_is_delivered_again(bus: Bus) -> None:
    queue, _, receiver = bus.pair()
    bus.put(queue, ServiceBusMessage(b"a"), ServiceBusMessage(b"b"))
    first, second = received(receiver, 2)
    assert (body(first), body(second)) == (b"a", b"b")
    receiver.complete_message(first)
    with pytest.raises(MessageAlreadySettled):
        receiver.complete_message(first)
    receiver.abandon_message(second)
    again = taken(receiver)
    assert (body(again), again.delivery_count, again.sequence_number) == (b"b", 1, second.sequence_number)
    assert again.lock_token != second.lock_token
    receiver.complete_message(again)
    assert nothing(receiver)
    assert bus.run(bus.broker.counts(queue)).active == 0


def test_a_message_abandoned_too_often_is_dead_lettered(bus: Bus) -> None:
    queue = bus.queue(max_delivery_count=2)
    bus.put(queue, ServiceBusMessage(b"poison", message_id="p"))
    receiver, dead = both(bus, queue)
    for count in range(2):
        message = taken(receiver)
        assert message.delivery_count == count
        receiver.abandon_message(message)
    letter = taken(dead)
    assert (body(letter), letter.message_id) == (b"poison", "p")
    assert letter.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert "2 delivery attempts" in (letter.dead_letter_error_description or "")
    dead.complete_message(letter)


def test_a_message_is_dead_lettered_with_reasons_and_received_from_there(bus: Bus) -> None:
    queue = bus.queue()
    bus.put(queue, ServiceBusMessage(b"a", application_properties={"n": 1}), ServiceBusMessage(b"b"))
    receiver, dead = both(bus, queue)
    first, second = received(receiver, 2)
    receiver.dead_letter_message(first, reason="why", error_description="in words")
    receiver.dead_letter_message(second)
    letters = [taken(dead), taken(dead)]
    assert [body(each) for each in letters] == [b"a", b"b"]
    assert [(each.dead_letter_reason, each.dead_letter_error_description) for each in letters] == [
        ("why", "in words"),
        (None, None),
    ]
    assert (letters[0].application_properties or {})[b"n"] == 1
    dead.complete_message(letters[0])
    dead.abandon_message(letters[1])
    assert taken(dead).delivery_count == letters[1].delivery_count == 0


def test_a_deferred_message_is_received_only_by_its_number(bus: Bus) -> None:
    queue = bus.queue()
    bus.put(queue, ServiceBusMessage(b"a"), ServiceBusMessage(b"b"), ServiceBusMessage(b"c"))
    receiver, deleting = bus.together(
        lambda: bus.receiver(queue),
        lambda: bus.receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE),
    )
    messages = received(receiver, 3)
    numbers = [message.sequence_number or 0 for message in messages]
    for message in messages:
        receiver.defer_message(message)
    assert nothing(receiver)
    assert [peeked.state.name for peeked in receiver.peek_messages(5, sequence_number=1)] == ["DEFERRED"] * 3

    first, second = receiver.receive_deferred_messages(numbers[:2])
    assert (body(first), body(second)) == (b"a", b"b")
    assert first.delivery_count == 1
    assert first.locked_until_utc is not None
    receiver.complete_message(first)
    receiver.abandon_message(second)
    with pytest.raises(MessageNotFoundError):
        receiver.receive_deferred_messages(numbers[:1])
    with pytest.raises(MessageNotFoundError):
        # Both or none: the message that exists is not locked.
        receiver.receive_deferred_messages([numbers[1], 99])
    (again,) = receiver.receive_deferred_messages(numbers[1])
    assert again.delivery_count == 2
    receiver.dead_letter_message(again, reason="by token", error_description="over $management")

    (last,) = deleting.receive_deferred_messages(numbers[2])
    assert body(last) == b"c"
    ((letter, _),) = bus.take(f"{queue}/$DeadLetterQueue", 1)
    assert (letter.reason, letter.description) == ("by token", "over $management")
    counts = bus.run(bus.broker.counts(queue))
    assert (counts.deferred, counts.active) == (0, 0)


def test_a_received_and_deleted_message_is_removed_at_once(bus: Bus) -> None:
    queue = bus.queue()
    bus.put(queue, *(ServiceBusMessage(str(number).encode()) for number in range(30)))
    receiver = bus.receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE, prefetch_count=7)
    found: list[ServiceBusReceivedMessage] = []
    while len(found) < 30:
        found += receiver.receive_messages(30, max_wait_time=PATIENCE)
    assert [body(message) for message in found] == [str(number).encode() for number in range(30)]
    with pytest.raises(ValueError, match=r"receive-and-delete|RECEIVE_AND_DELETE|receive_and_delete"):
        receiver.complete_message(found[0])
    assert bus.run(bus.broker.counts(queue)).active == 0


def test_prefetched_messages_are_released_when_the_receiver_closes(bus: Bus) -> None:
    queue = bus.queue()
    bus.put(queue, *(ServiceBusMessage(str(number).encode()) for number in range(5)))
    with bus.client() as client, client.get_queue_receiver(queue, prefetch_count=20) as receiver:
        receiver.complete_message(taken(receiver))
    after = bus.receiver(queue)
    rest: list[ServiceBusReceivedMessage] = []
    while len(rest) < 4:
        rest += after.receive_messages(5, max_wait_time=PATIENCE)
    assert [(body(message), message.delivery_count) for message in rest] == [
        (str(number).encode(), 0) for number in range(1, 5)
    ]


def test_a_lock_outlives_its_link_and_is_renewed_by_token(bus: Bus) -> None:
    queue = bus.queue(lock_duration=30 * SECOND)
    bus.put(queue, ServiceBusMessage(b"a"))
    with bus.client() as client, client.get_queue_receiver(queue) as receiver:
        message = taken(receiver)
        before = message.locked_until_utc
        assert before is not None
        until = receiver.renew_message_lock(message)
        assert until >= before
        assert until - datetime.now(UTC) <= timedelta(seconds=30)
    other = bus.receiver(queue)
    assert nothing(other)
    (peeked,) = other.peek_messages()
    assert peeked.sequence_number == message.sequence_number


def test_a_lost_lock_is_reported_on_settling_and_on_renewing(bus: Bus) -> None:
    queue, _, receiver = bus.pair()
    bus.put(queue, ServiceBusMessage(b"a"), ServiceBusMessage(b"b"))
    first, second = received(receiver, 2)
    bus.run(take_away(bus, queue, first, second))
    with pytest.raises(MessageLockLostError):
        receiver.complete_message(first)
    with pytest.raises(MessageLockLostError):
        receiver.renew_message_lock(second)
    bus.put(queue, ServiceBusMessage(b"c"))
    assert body(taken(receiver)) == b"c"


def test_a_receiver_is_an_iterator_that_ends_when_nothing_comes(bus: Bus) -> None:
    queue = bus.queue()
    bus.put(queue, *(ServiceBusMessage(str(number).encode()) for number in range(10)))
    receiver = bus.receiver(queue, max_wait_time=5)
    found = []
    for message in receiver:
        found.append(body(message))
        receiver.complete_message(message)
    assert found == [str(number).encode() for number in range(10)]


def test_receivers_of_one_queue_share_its_messages(bus: Bus) -> None:
    queue = bus.queue()
    receivers = bus.together(*[lambda: bus.receiver(queue, prefetch_count=5)] * 3)
    bus.put(queue, *(ServiceBusMessage(str(number).encode()) for number in range(9)))
    found: list[list[bytes]] = [[] for _ in receivers]
    while sum(map(len, found)) < 9:
        for number, receiver in enumerate(receivers):
            found[number] += [body(message) for message in receiver.receive_messages(9, max_wait_time=0.2)]
    assert sorted(each for some in found for each in some) == [str(number).encode() for number in range(9)]


def test_each_subscription_gets_its_copy_with_the_number_of_the_topic(bus: Bus) -> None:
    topic = bus.topic("one", "two", requires_duplicate_detection=True)
    bus.put(topic, ServiceBusMessage(b"a", message_id="a"))
    bus.put(topic, ServiceBusMessage(b"a again", message_id="a"))
    bus.put(topic, ServiceBusMessage(b"b", message_id="b"))
    receivers = bus.together(lambda: bus.receiver(f"{topic}/one"), lambda: bus.receiver(f"{topic}/two"))
    for receiver in receivers:
        messages: list[ServiceBusReceivedMessage] = []
        while len(messages) < 2:
            messages += receiver.receive_messages(5, max_wait_time=PATIENCE)
        assert [(body(m), m.sequence_number, m.enqueued_sequence_number) for m in messages] == [
            (b"a", 1, 1),
            (b"b", 2, 3),
        ]
