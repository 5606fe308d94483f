"""azure-servicebus uses $management: it schedules, peeks and lists sessions. Other clients' operations are here too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiver
from azure.servicebus._common import mgmt_handlers
from azure.servicebus.exceptions import (
    MessageNotFoundError,
    ServiceBusError,
)

from oncebus.model.entities import CorrelationFilter, Rule, SqlAction, SqlFilter, TrueFilter
from tests.broker.in_process import FakeTime
from tests.clients.served import received

from .bus import PATIENCE, Bus, running_bus

LATER = timedelta(hours=1)


def ask(receiver: ServiceBusReceiver, operation: str, body: dict[str, Any]) -> Any:
    """Send a request that this client has no method for, and return the answer."""
    name = f"com.microsoft:{operation}".encode()
    return receiver._mgmt_request_response_with_retry(name, body, mgmt_handlers.default, timeout=PATIENCE)


def typed(kind: str, value: int) -> dict[str, object]:
    """Return a value with its AMQP type, as the client writes it."""
    return {"TYPE": kind, "VALUE": value}


def test_scheduled_messages_are_peeked_and_cancelled(bus: Bus) -> None:
    _, sender, receiver = bus.pair()
    at = datetime.now(UTC) + LATER
    numbers = sender.schedule_messages([ServiceBusMessage(b"a"), ServiceBusMessage(b"b")], at)
    peeked = receiver.peek_messages(5)
    assert [message.sequence_number for message in peeked] == numbers
    assert {message.state.name for message in peeked} == {"SCHEDULED"}
    shown = peeked[0].scheduled_enqueue_time_utc
    assert shown is not None
    assert abs(shown - at) < timedelta(milliseconds=1)
    sender.cancel_scheduled_messages(numbers)
    assert receiver.peek_messages(5, sequence_number=1) == []
    with pytest.raises(MessageNotFoundError):
        sender.cancel_scheduled_messages(numbers)


def test_scheduled_messages_arrive_at_their_time(tmp_path: Path) -> None:
    with running_bus(tmp_path, FakeTime()) as bus:
        queue = bus.queue()
        sender, receiver = bus.together(lambda: bus.sender(queue), lambda: bus.receiver(queue))
        soon = datetime.now(UTC) + timedelta(minutes=1)
        (number,) = sender.schedule_messages(ServiceBusMessage(b"soon"), soon)
        sender.send_messages(ServiceBusMessage(b"annotated", scheduled_enqueue_time_utc=soon))
        assert {message.state.name for message in receiver.peek_messages(5)} == {"SCHEDULED"}
        bus.advance(120)
        found = received(receiver, 2)
        assert [b"".join(message.body) for message in found] == [b"soon", b"annotated"]
        first = found[0]
        assert first.sequence_number is not None
        assert first.sequence_number > number
        assert first.enqueued_time_utc is not None
        assert first.enqueued_time_utc >= soon - timedelta(milliseconds=1)


def test_messages_are_peeked_from_the_last_position(bus: Bus) -> None:
    queue, _, receiver = bus.pair()
    bus.put(queue, *(ServiceBusMessage(str(number).encode()) for number in range(120)))
    seen = [b"".join(message.body) for _ in range(2) for message in receiver.peek_messages(60)]
    assert seen == [str(number).encode() for number in range(120)]
    assert receiver.peek_messages(60) == []
    (one,) = receiver.peek_messages(1, sequence_number=17)
    assert (one.sequence_number, one.lock_token) == (17, None)
    omitted = ask(
        receiver,
        "peek-message",
        {"from-sequence-number": typed("LONG", 1), "message-count": typed("INT", 2), "omit-message-body": True},
    )
    assert [b"\x00\x53\x75" in each[b"message"] for each in omitted[b"messages"]] == [False, False]


def test_messages_are_deleted_in_bulk(bus: Bus) -> None:
    queue, _, receiver = bus.pair()
    bus.put(queue, *(ServiceBusMessage(b"x") for _ in range(5)))
    now = typed("TIMESTAMP", int((datetime.now(UTC) + LATER).timestamp() * 1000))
    body = {"enqueued-time-utc": now, "message-count": typed("INT", 3)}
    assert ask(receiver, "batch-delete-messages", body) == {b"message-count": 3}
    assert len(receiver.peek_messages(10, sequence_number=1)) == 2


def test_rules_are_added_listed_and_removed(bus: Bus) -> None:
    topic = bus.topic("sub")
    receiver = bus.receiver(f"{topic}/sub")

    def rules() -> dict[str, Rule]:
        return {rule.name: rule for rule in bus.broker.catalogue.subscription(topic, "sub").rules}

    sql = {"sql-filter": {"expression": "price > 1"}, "sql-rule-action": {"expression": "SET dear = 1"}}
    ask(receiver, "add-rule", {"rule-name": "dear", "rule-description": sql})
    correlation = {"correlation-filter": {"label": "l", "properties": {"colour": "red"}}}
    ask(receiver, "add-rule", {"rule-name": "red", "rule-description": correlation})
    ask(receiver, "remove-rule", {"rule-name": "$Default"})
    assert set(rules()) == {"dear", "red"}
    assert (rules()["dear"].filter, rules()["dear"].action) == (SqlFilter("price > 1"), SqlAction("SET dear = 1"))
    assert rules()["red"].filter == CorrelationFilter(label="l", properties=(("colour", "red"),))

    listed = ask(receiver, "enumerate-rules", {"top": typed("INT", 100), "skip": typed("INT", 0)})[b"rules"]
    assert [each[b"rule-description"][2] for each in listed] == [b"dear", b"red"]
    assert listed[0][b"rule-description"][0][0] == b"price > 1"

    bus.put(topic, ServiceBusMessage(b"cheap", application_properties={"price": 1}))
    bus.put(topic, ServiceBusMessage(b"dear", application_properties={"price": 2}))
    (message,) = receiver.receive_messages(5, max_wait_time=PATIENCE)
    assert (message.application_properties or {})[b"dear"] == 1
    assert TrueFilter() not in [rule.filter for rule in rules().values()]


def test_properties_are_changed_when_a_message_is_abandoned(bus: Bus) -> None:
    queue, _, receiver = bus.pair()
    bus.put(queue, ServiceBusMessage(b"a", application_properties={"n": 1, "kept": True}))
    (message,) = receiver.receive_messages(max_wait_time=PATIENCE)
    ask(
        receiver,
        "update-disposition",
        {
            "disposition-status": "abandoned",
            "lock-tokens": [message.lock_token],
            "properties-to-modify": {"n": 2, "why": "later"},
        },
    )
    (again,) = receiver.receive_messages(max_wait_time=PATIENCE)
    assert again.application_properties == {b"n": 2, b"kept": True, b"why": b"later"}
    assert b"".join(again.body) == b"a"


def test_an_unknown_operation_is_refused_and_the_next_request_answered(bus: Bus) -> None:
    _, _, receiver = bus.pair()
    with pytest.raises(ServiceBusError, match=r"The operation 'com.microsoft:fly' is unknown") as refused:
        ask(receiver, "fly", {})
    assert "amqp:not-implemented" in str(refused.value)
    assert receiver.peek_messages(1) == []
