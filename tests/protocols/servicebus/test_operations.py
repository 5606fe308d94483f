"""The operations of $management without a client. Errors name the argument and its value."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from oncebus import amqp
from oncebus.amqp.decoding import decode
from oncebus.amqp.encoding import encode
from oncebus.amqp.head import Properties
from oncebus.amqp.types import Array, Timestamp, ULong
from oncebus.broker.addresses import Address, parse_address
from oncebus.broker.clock import wall_time
from oncebus.engine.store import Action, SessionLockLost, Settlement
from oncebus.model.entities import BadRequest, OutOfRange
from oncebus.protocols.servicebus import AmqpLimits
from oncebus.protocols.servicebus.arguments import RequestArguments
from oncebus.protocols.servicebus.errors import AmqpRefused, refusal_of
from oncebus.protocols.servicebus.front import ServiceBusFront
from oncebus.protocols.servicebus.operations import OPERATIONS, Invocation

from .bus import PATIENCE, Bus

ALWAYS = Timestamp(253_402_300_800_000)
SQL = {"sql-filter": {"expression": "price > 1"}}


def ask(bus: Bus, operation: str, body: object, path: str, front: ServiceBusFront | None = None) -> Any:
    """Run an operation and return the body of the answer. The request's body has AMQP types, as on the wire."""
    given = decode(encode(body))[0]
    chosen = front or bus.server.front
    asked = Invocation(chosen, parse_address(path), RequestArguments(given), lambda session: None, chosen.broker)

    async def answer() -> Any:
        return await OPERATIONS[f"com.microsoft:{operation}"].handler(asked)

    return bus.run(answer())


@pytest.fixture(scope="module")
def queue(bus: Bus) -> str:
    return bus.queue()


@pytest.fixture(scope="module")
def topic(bus: Bus) -> str:
    return bus.topic("high")


def encoded(body: bytes = b"x", **properties: Any) -> bytes:
    return b"".join(amqp.encode_message(Properties(**properties), None, body))


@pytest.mark.parametrize(
    ("operation", "body", "condition", "text"),
    [
        ("peek-message", 5, "com.microsoft:argument-error", "The body of the request has value 5. Not a map."),
        ("peek-message", {}, "com.microsoft:argument-error", "'from-sequence-number' has value None. Not a number"),
        ("peek-message", {"from-sequence-number": 1, "message-count": 0}, "com.microsoft:argument-error", "from 1"),
        (
            "peek-message",
            {"from-sequence-number": ULong(2**63), "message-count": 1},
            "com.microsoft:argument-out-of-range",
            "'from-sequence-number' has value 9223372036854775808. The maximum is 9223372036854775807.",
        ),
        (
            "cancel-scheduled-message",
            {"sequence-numbers": Array(ULong, [1, 2**64 - 1])},
            "com.microsoft:argument-out-of-range",
            "'sequence-numbers' has value 18446744073709551615.",
        ),
        (
            "receive-by-sequence-number",
            {"sequence-numbers": Array(ULong, [2**63])},
            "com.microsoft:argument-out-of-range",
            "'sequence-numbers' has value 9223372036854775808.",
        ),
        (
            "get-message-sessions",
            {"last-updated-time": ALWAYS, "skip": 1_000_001},
            "com.microsoft:argument-out-of-range",
            "'skip' has value 1000001. The maximum is 1000000.",
        ),
        (
            "enumerate-rules at TOPIC/Subscriptions/high",
            {"skip": ULong(2**64 - 1)},
            "com.microsoft:argument-out-of-range",
            "'skip' has value",
        ),
        ("renew-lock", {"lock-tokens": ["x"]}, "com.microsoft:argument-error", "has value 'x'. Not a uuid"),
        ("renew-lock", {"lock-tokens": []}, "com.microsoft:argument-error", "Not a list of one or more"),
        ("renew-lock", {"lock-tokens": [uuid.UUID(int=1)]}, "com.microsoft:message-lock-lost", "lock supplied"),
        ("schedule-message", {"messages": [{}]}, "com.microsoft:argument-error", "'message' is missing"),
        ("schedule-message", {"messages": [{"message": b"\x01"}]}, "amqp:decode-error", "AMQP section"),
        ("cancel-scheduled-message", {"sequence-numbers": [9]}, "com.microsoft:message-not-found", "not be found"),
        ("cancel-scheduled-message", {"sequence-numbers": ["9"]}, "com.microsoft:argument-error", "'9'. Not a number"),
        ("receive-by-sequence-number", {"sequence-numbers": [9]}, "com.microsoft:message-not-found", "not be found"),
        (
            "receive-by-sequence-number",
            {"sequence-numbers": list(range(1, 1002))},
            "com.microsoft:argument-out-of-range",
            "The request asks for 1001 messages, but the limit is 1000.",
        ),
        (
            "receive-by-sequence-number",
            {"sequence-numbers": [9], "session-id": "s"},
            "com.microsoft:message-not-found",
            "not be found",
        ),
        (
            "update-disposition",
            {"disposition-status": "eaten", "lock-tokens": [uuid.UUID(int=1)]},
            "com.microsoft:argument-error",
            "'eaten'. Not one of completed, abandoned, defered, suspended",
        ),
        (
            "update-disposition",
            {"disposition-status": "completed", "lock-tokens": [uuid.UUID(int=1)]},
            "com.microsoft:message-lock-lost",
            "lock supplied",
        ),
        (
            "update-disposition",
            {"disposition-status": "abandoned", "lock-tokens": [uuid.UUID(int=1)], "properties-to-modify": 5},
            "com.microsoft:argument-error",
            "'properties-to-modify' has value 5. Not a map",
        ),
        ("renew-session-lock", {"session-id": "s"}, "com.microsoft:session-lock-lost", "session lock"),
        ("set-session-state", {"session-id": 5}, "com.microsoft:argument-error", "'session-id' has value 5"),
        ("get-message-sessions", {"last-updated-time": "x"}, "com.microsoft:argument-error", "Not a timestamp"),
        ("batch-delete-messages", {"message-count": 1}, "com.microsoft:argument-error", "'enqueued-time-utc'"),
        (
            "batch-delete-messages",
            {"message-count": 1, "enqueued-time-utc": ALWAYS, "session-id": "s"},
            "com.microsoft:session-lock-lost",
            "session lock",
        ),
        (
            "enumerate-rules",
            {},
            "com.microsoft:argument-error",
            "Rules belong to subscriptions: 'QUEUE' is not a subscription",
        ),
        ("enumerate-rules at TOPIC", {}, "com.microsoft:argument-error", "'TOPIC' is not a subscription"),
        (
            "peek-message at TOPIC",
            {"from-sequence-number": 1, "message-count": 1},
            "com.microsoft:argument-error",
            "a subscription of the topic 'TOPIC'",
        ),
        ("add-rule at TOPIC/Subscriptions/high", {}, "com.microsoft:argument-error", "'rule-name' has value None"),
        (
            "add-rule at TOPIC/Subscriptions/high",
            {"rule-name": "r", "rule-description": {"sql-filter": {"expression": "price >"}}},
            "com.microsoft:argument-error",
            "",
        ),
        (
            "add-rule at TOPIC/Subscriptions/high",
            {"rule-name": "$default", "rule-description": SQL},
            "com.microsoft:entity-already-exists",
            "already exists",
        ),
        (
            "remove-rule at TOPIC/Subscriptions/high",
            {"rule-name": "r"},
            "amqp:not-found",
            "The messaging entity 'sb://localhost/TOPIC/Subscriptions/high/Rules/r' could not be found.",
        ),
    ],
)
def test_an_invalid_request_is_refused_with_the_reason(
    bus: Bus, queue: str, topic: str, operation: str, body: object, condition: str, text: str
) -> None:
    name, _, path = operation.partition(" at ")
    with pytest.raises(Exception) as raised:  # noqa: PT011
        ask(bus, name, body, path.replace("TOPIC", topic) or queue)
    refusal = refusal_of(raised.value, "localhost")
    assert text.replace("TOPIC", topic).replace("QUEUE", queue) in refusal.text
    assert refusal.condition == condition


def test_every_operation_of_the_service_is_supported() -> None:
    assert {name.removeprefix("com.microsoft:") for name in OPERATIONS} == {
        "renew-lock",
        "peek-message",
        "schedule-message",
        "cancel-scheduled-message",
        "receive-by-sequence-number",
        "update-disposition",
        "renew-session-lock",
        "get-session-state",
        "set-session-state",
        "get-message-sessions",
        "add-rule",
        "remove-rule",
        "enumerate-rules",
        "batch-delete-messages",
    }


def test_scheduling_several_messages_returns_their_numbers_in_order(bus: Bus) -> None:
    queue = bus.queue()
    later = Timestamp(wall_time() // 1000 + 60_000)
    messages = [
        b"".join(amqp.deliverable(b"", encoded(), amqp.Header(), {"x-opt-scheduled-enqueue-time": later}))
        for _ in range(3)
    ]
    body = {"messages": [{"message": each, "message-id": "?"} for each in messages]}
    assert ask(bus, "schedule-message", body, queue) == {"sequence-numbers": [1, 2, 3]}
    assert bus.run(bus.broker.counts(queue)).scheduled == 3
    assert ask(bus, "cancel-scheduled-message", {"sequence-numbers": [1, 3]}, queue) == {}
    assert bus.run(bus.broker.counts(queue)).scheduled == 1


def test_a_scheduled_duplicate_can_ask_for_the_number_of_its_original(bus: Bus) -> None:
    queue = bus.queue(requires_duplicate_detection=True)
    later = Timestamp(wall_time() // 1000 + 60_000)

    def schedule(*asking: object) -> list[int]:
        heads = [
            amqp.head.encode_head(amqp.Properties(message_id="a"), {} if each is None else {"oncebus:original": each})
            for each in asking
        ]
        body = amqp.encode_body(b"")
        messages = [
            b"".join(amqp.deliverable(head, body, amqp.Header(), {"x-opt-scheduled-enqueue-time": later}))
            for head in heads
        ]
        found = ask(bus, "schedule-message", {"messages": [{"message": each} for each in messages]}, queue)
        return list(found["sequence-numbers"])

    assert schedule(None) == [1]
    assert schedule(None) == [2], "as in the service, which nobody can cancel"
    assert schedule(True) == [1]
    assert schedule(True, None, False, True) == [1, 5, 6, 1]
    with pytest.raises(BadRequest, match=r"'oncebus:original' has value 'yes'\. Not a boolean"):
        schedule("yes")
    assert ask(bus, "cancel-scheduled-message", {"sequence-numbers": schedule(True)}, queue) == {}


def test_no_more_is_peeked_at_once_than_fits_into_an_answer(bus: Bus) -> None:
    queue = bus.queue()
    for _ in range(25):
        bus.put(queue, ServiceBusMessage(bytes(250_000)))
    asked = {"from-sequence-number": 1, "message-count": 1000}
    found = ask(bus, "peek-message", asked, queue)["messages"]
    assert len(found) == 16
    bare = ask(bus, "peek-message", {**asked, "omit-message-body": True}, queue)["messages"]
    assert len(bare) == 25
    assert sum(len(each["message"]) for each in bare) < 25 * 500
    assert ask(bus, "peek-message", {**asked, "from-sequence-number": 26}, queue) is None


@pytest.mark.parametrize("kind", ["queue", "subscription", "dead letters"])
def test_without_sessions_a_session_id_does_not_matter(bus: Bus, kind: str) -> None:
    """Java sends the session id of a message with its lock token, whatever the entity."""
    if kind == "subscription":
        sent = bus.topic("s")
        path = f"{sent}/Subscriptions/s"
    else:
        sent = bus.queue(requires_session=kind == "dead letters")
        path = sent if kind == "queue" else f"{sent}/$DeadLetterQueue"
    bus.put(sent, ServiceBusMessage(b"x", session_id="s"))
    address = parse_address(path)
    if kind == "dead letters":
        lock = bus.run(bus.broker.accept_session(Address(sent), "s", wait=PATIENCE))
        (found,) = bus.run(bus.broker.receive(Address(sent), 1, session=lock, wait=PATIENCE))
        dead = Settlement(Action.DEAD_LETTER, found.message.token or b"")
        bus.run(bus.broker.settle(Address(sent), [dead], lock))
    (held,) = bus.run(bus.broker.receive(address, 1, wait=PATIENCE))
    assert held.message.token is not None
    named = {"session-id": "s", "lock-tokens": [uuid.UUID(bytes=held.message.token)]}
    assert ask(bus, "update-disposition", {**named, "disposition-status": "defered"}, path) == {}
    asked = {"session-id": "s", "sequence-numbers": [held.message.sequence]}
    (again,) = ask(bus, "receive-by-sequence-number", asked, path)["messages"]
    named["lock-tokens"] = [again["lock-token"]]
    assert ask(bus, "update-disposition", {**named, "disposition-status": "abandoned"}, path) == {}
    with pytest.raises(SessionLockLost):
        # It must not delete from the whole entity.
        ask(bus, "batch-delete-messages", {**named, "message-count": 5, "enqueued-time-utc": ALWAYS}, path)
    with pytest.raises(SessionLockLost):
        ask(bus, "get-session-state", named, path)
    assert len(bus.run(bus.broker.peek(address, 0, 5))) == 1


def test_with_sessions_the_session_must_be_held(bus: Bus) -> None:
    queue = bus.queue(requires_session=True)
    body = {"session-id": "s", "lock-tokens": [uuid.UUID(int=1)], "disposition-status": "completed"}
    with pytest.raises(SessionLockLost):
        ask(bus, "update-disposition", body, queue)


def test_a_deferred_message_is_not_locked_if_another_one_is_missing(bus: Bus) -> None:
    queue = bus.queue()
    bus.put(queue, ServiceBusMessage(b"x"))
    (held,) = bus.run(bus.broker.receive(Address(queue), 1, wait=PATIENCE))
    assert held.message.token is not None
    bus.run(bus.broker.settle(Address(queue), [Settlement(Action.DEFER, held.message.token)]))
    with pytest.raises(AmqpRefused, match="could not be found"):
        ask(bus, "receive-by-sequence-number", {"sequence-numbers": [1, 2]}, queue)
    asked = {"sequence-numbers": [1, 1], "receiver-settle-mode": 1}
    (message,) = ask(bus, "receive-by-sequence-number", asked, queue)["messages"]
    assert isinstance(message["lock-token"], uuid.UUID)
    # The failed attempt does not count as a delivery.
    assert amqp.split(message["message"]).header.delivery_count == 1


def test_no_more_deferred_messages_are_received_at_once_than_fit_into_memory(bus: Bus) -> None:
    queue = bus.queue()
    for _ in range(3):
        bus.put(queue, ServiceBusMessage(bytes(1000)))
    bus.run(bus.broker.counts(queue))
    held = [each.message.token or b"" for each in bus.run(bus.broker.receive(Address(queue), 3))]
    bus.run(bus.broker.settle(Address(queue), [Settlement(Action.DEFER, token) for token in held]))
    asked = {"sequence-numbers": [1, 2, 3], "receiver-settle-mode": 1}
    few = replace(bus.server.front, limits=AmqpLimits(deferred_bytes=2500))
    with pytest.raises(OutOfRange, match="together exceed the limit of 2500 bytes"):
        ask(bus, "receive-by-sequence-number", asked, queue, few)
    # None of them is locked, and a single message is received whatever its size.
    one = replace(bus.server.front, limits=AmqpLimits(deferred_bytes=1))
    (first,) = ask(bus, "receive-by-sequence-number", {**asked, "sequence-numbers": [1]}, queue, one)["messages"]
    assert amqp.split(first["message"]).header.delivery_count == 1
    assert (
        len(ask(bus, "receive-by-sequence-number", {**asked, "sequence-numbers": [2, 3]}, queue, few)["messages"]) == 2
    )


@pytest.mark.parametrize("time", [-(2**63), 2**63 - 1], ids=["first", "last"])
def test_the_first_and_the_last_possible_time_are_accepted(bus: Bus, time: int) -> None:
    queue = bus.queue()
    annotations = {"x-opt-scheduled-enqueue-time": Timestamp(time)}
    scheduled = b"".join(amqp.deliverable(b"", encoded(), amqp.Header(), annotations))
    assert ask(bus, "schedule-message", {"messages": [{"message": scheduled}]}, queue) == {"sequence-numbers": [1]}
    bus.run(bus.broker.counts(queue))
    asked = {"message-count": 5, "enqueued-time-utc": Timestamp(time)}
    # Scheduled messages are not deleted, and no message is older than the first time.
    with pytest.raises(AmqpRefused) as raised:
        ask(bus, "batch-delete-messages", asked, queue)
    # The client takes 204 for an answer, whatever the condition.
    assert raised.value.refusal[:2] == ("com.microsoft:message-not-found", 204)
    assert ask(bus, "get-message-sessions", {"last-updated-time": Timestamp(time)}, queue) is None
    counts = bus.run(bus.broker.counts(queue))
    assert (counts.active, counts.scheduled) == ((0, 1) if time > 0 else (1, 0))
