"""azure-servicebus holds sessions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError, SessionCannotBeLockedError

from tests.clients.served import received

from .bus import PATIENCE, Bus


def of(session: str, *bodies: bytes) -> list[ServiceBusMessage]:
    return [ServiceBusMessage(body, session_id=session) for body in bodies]


def test_a_session_is_received_in_order_by_the_one_that_holds_it(bus: Bus) -> None:
    queue = bus.queue(requires_session=True)
    bus.put(queue, *of("a", b"1"), *of("b", b"other"), *of("a", b"2", b"3"))
    holder = bus.receiver(queue, session_id="a")
    session = holder.session
    assert session.session_id == "a"
    (taken,), other = bus.together(
        lambda: bus.refused(lambda: bus.receiver(queue, session_id="a")),
        lambda: bus.receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=PATIENCE),
    )
    assert isinstance(taken, SessionCannotBeLockedError)
    assert other.session.session_id == "b"
    left = session.locked_until_utc - datetime.now(UTC)  # type: ignore[operator]
    assert timedelta() < left <= timedelta(seconds=60)
    found: list[ServiceBusReceivedMessage] = []
    while len(found) < 3:
        found += holder.receive_messages(5, max_wait_time=PATIENCE)
    assert [(b"".join(message.body), message.session_id) for message in found] == [
        (b"1", "a"),
        (b"2", "a"),
        (b"3", "a"),
    ]
    for message in found[:2]:
        holder.complete_message(message)
    assert [b"".join(message.body) for message in other.peek_messages(5)] == [b"other"]


def test_a_closed_receiver_releases_its_session_and_its_messages(bus: Bus) -> None:
    queue = bus.queue(requires_session=True)
    bus.put(queue, *of("a", b"1", b"2"))
    with bus.client() as client, client.get_queue_receiver(queue, session_id="a") as holder:
        first, second = received(holder, 2)
        holder.complete_message(first)
    after = bus.receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=PATIENCE)
    (again,) = after.receive_messages(5, max_wait_time=PATIENCE)
    assert (again.sequence_number, again.delivery_count) == (second.sequence_number, 1)


def test_a_session_has_a_state_and_is_renewed(bus: Bus) -> None:
    queue = bus.queue(requires_session=True)
    holder = bus.receiver(queue, session_id="a")
    session = holder.session
    assert session.get_state() is None
    session.set_state("step 1")
    assert session.get_state() == b"step 1"
    session.set_state(None)
    assert session.get_state() is None
    session.set_state("step 2")
    session.set_state("")
    assert session.get_state() is None
    before = session.locked_until_utc
    assert session.renew_lock() >= before  # type: ignore[operator]


def test_sessions_are_listed_page_by_page(bus: Bus) -> None:
    queue = bus.queue(requires_session=True)
    names = [f"session-{number:03}" for number in range(150)]
    bus.put(queue, *(ServiceBusMessage(b"x", session_id=name) for name in names))
    empty = bus.queue(requires_session=True)
    with bus.client() as client:
        lists = bus.together(
            lambda: list(client.list_queue_sessions(queue)), lambda: list(client.list_queue_sessions(empty))
        )
    assert lists == [names, []]


def test_a_receiver_that_waits_for_a_session_gets_the_first_one(bus: Bus) -> None:
    queue = bus.queue(requires_session=True)
    before = bus.server.counts.session_receivers

    def send_later() -> None:
        bus.until(lambda: bus.server.counts.session_receivers > before, "a receiver that waits")
        bus.put(queue, *of("late", b"x"))

    receiver, _ = bus.together(
        lambda: bus.receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=PATIENCE), send_later
    )
    assert receiver.session.session_id == "late"
    (message,) = receiver.receive_messages(max_wait_time=PATIENCE)
    receiver.complete_message(message)


def test_sessions_need_an_entity_that_requires_them(bus: Bus) -> None:
    plain, sessions = bus.queue(), bus.queue(requires_session=True)
    wanted, missing, late = bus.refused(
        lambda: bus.receiver(plain, session_id="a"),
        lambda: bus.receiver(sessions),
        lambda: bus.receiver(sessions, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=0.5),
    )
    assert "does not require sessions" in str(wanted)
    assert "requires sessions" in str(missing)
    # No session became free within the client's time-out.
    assert isinstance(late, OperationTimeoutError)
    sender = bus.sender(sessions)
    with pytest.raises(ServiceBusError, match="SessionId was not set"):
        sender.send_messages(ServiceBusMessage(b"without a session"))
    sender.send_messages(ServiceBusMessage(b"with one", session_id="s"))


def test_session_ids_that_differ_in_letter_case_are_one_session(bus: Bus) -> None:
    queue = bus.queue(requires_session=True)
    bus.put(queue, *of("SessionId", b"one"), *of("sessionID", b"two"))
    holder = bus.receiver(queue, session_id="sessionId")
    assert holder.session.session_id == "sessionId"
    (taken,) = bus.refused(lambda: bus.receiver(queue, session_id="SESSIONID"))
    assert isinstance(taken, SessionCannotBeLockedError)
    found = [(b"".join(each.body), each.session_id) for each in holder.peek_messages(5)]
    assert found == [(b"one", "SessionId"), (b"two", "sessionID")]
    messages = holder.receive_messages(2, max_wait_time=PATIENCE)
    if len(messages) < 2:
        messages += holder.receive_messages(1, max_wait_time=PATIENCE)
    for message in messages:
        holder.dead_letter_message(message)
    holder.session.set_state("held")
    with bus.client() as client:
        assert list(client.list_queue_sessions(queue)) == ["SessionId"]
