"""Access of azure-servicebus: keys, rights, expiring tokens, and entities that are deleted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import proton
import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiver
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
    SessionLockLostError,
)
from proton import ConnectionException, symbol
from proton.utils import BlockingConnection, LinkDetached

from oncebus.model.access import AuthorizationRule, Right, make_token
from oncebus.model.entities import EntityStatus, Queue
from oncebus.protocols.servicebus import AmqpLimits
from oncebus.values.durations import HOUR, SECOND
from tests.broker.in_process import FakeTime

from .bus import LISTENER, PATIENCE, ROOT, SENDER, Bus, running_bus

WRONG = replace(ROOT, primary_key="wrong")
OWN = AuthorizationRule("own", frozenset({Right.SEND}), "own-one", "own-two")


def test_a_wrong_key_and_a_missing_right_have_different_errors(bus: Bus) -> None:
    queue = bus.queue()
    wrong, not_send, not_listen = bus.refused(
        lambda: bus.sender(queue, WRONG), lambda: bus.sender(queue, LISTENER), lambda: bus.receiver(queue, SENDER)
    )
    assert isinstance(wrong, ServiceBusAuthenticationError)
    assert isinstance(not_send, ServiceBusAuthorizationError)
    assert "'Send' claim(s) are required to perform this operation" in str(not_send)
    assert isinstance(not_listen, ServiceBusAuthorizationError)
    assert "'Listen' claim(s) are required to perform this operation" in str(not_listen)


def test_a_client_with_the_right_may_use_links_and_management(bus: Bus) -> None:
    queue = bus.queue()
    sender, receiver = bus.together(lambda: bus.sender(queue, SENDER), lambda: bus.receiver(queue, LISTENER))
    sender.send_messages(ServiceBusMessage(b"x"))
    (number,) = sender.schedule_messages(ServiceBusMessage(b"y"), datetime.now(UTC) + timedelta(hours=1))
    assert [message.sequence_number for message in receiver.peek_messages(5)] == [1, number]
    sender.cancel_scheduled_messages(number)
    (message,) = receiver.receive_messages(5, max_wait_time=PATIENCE)
    receiver.complete_message(message)


def test_a_missing_entity_and_an_entity_that_refuses_the_link_have_clear_errors(bus: Bus) -> None:
    topic = bus.topic()
    deaf, closed = bus.queue(status=EntityStatus.SEND_DISABLED), bus.queue(status=EntityStatus.DISABLED)
    forwarding = bus.queue(forward_to=topic)
    errors = bus.refused(
        lambda: bus.sender("nowhere"),
        lambda: bus.receiver(f"{topic}/none"),
        lambda: bus.sender(deaf),
        lambda: bus.receiver(closed),
        lambda: bus.receiver(forwarding),
        lambda: bus.receiver(topic),
    )
    # The client has only one error for a token that is not accepted. Its inner error has the text.
    kinds = [ServiceBusAuthenticationError] * 2 + [MessagingEntityDisabledError] * 2 + [ServiceBusError] * 2
    assert [type(error) for error in errors] == kinds
    texts = [str(error) for error in errors]
    missing = [error.inner_exception for error in errors[:2] if isinstance(error, ServiceBusError)]
    assert [getattr(error, "status_description", b"").decode() for error in missing] == [
        "The messaging entity 'sb://localhost/nowhere' could not be found.",
        f"The messaging entity 'sb://localhost/{topic}/Subscriptions/none' could not be found.",
    ]
    assert "auto-forwarding" in texts[4]
    assert f"a subscription of the topic '{topic}'" in texts[5]


def test_links_end_when_their_entity_is_disabled_or_deleted(bus: Bus) -> None:
    (disabled, _, first), (deleted, _, second) = bus.pair(), bus.pair()
    bus.run(
        bus.broker.change(
            lambda catalogue, now: catalogue.update(
                replace(catalogue.queue(disabled), status=EntityStatus.DISABLED), now
            )
        )
    )
    bus.run(bus.broker.change(lambda catalogue, now: catalogue.delete(Queue(name=deleted))))
    errors = bus.refused(
        lambda: first.receive_messages(max_wait_time=PATIENCE), lambda: second.receive_messages(max_wait_time=PATIENCE)
    )
    assert [type(error) for error in errors] == [MessagingEntityDisabledError, MessagingEntityNotFoundError]


@contextmanager
def signed_in(bus: Bus, user: str, password: str) -> Iterator[BlockingConnection]:
    """Connect a plain AMQP client with SASL PLAIN."""
    connection = BlockingConnection(
        f"amqp://localhost:{bus.port}",
        timeout=PATIENCE,
        user=user,
        password=password,
        allowed_mechs="PLAIN",
        allow_insecure_mechs=True,
    )
    try:
        yield connection
    finally:
        connection.close()


def test_a_name_and_a_key_sign_a_plain_client_in(bus: Bus) -> None:
    queue = bus.queue()
    with signed_in(bus, ROOT.name, ROOT.secondary_key) as connection:
        sender = connection.create_sender(queue)
        sender.send(proton.Message(body="plain", id="p"))
        receiver = connection.create_receiver(queue, credit=1)
        message = receiver.receive(PATIENCE)
        assert (message.id, message.body, message.delivery_count) == ("p", "plain", 0)
        assert message.annotations is not None
        assert message.annotations[symbol("x-opt-sequence-number")] == 1
        receiver.accept()
    bus.until(lambda: bus.run(bus.broker.counts(queue)).active == 0, "it was completed")
    with pytest.raises(ConnectionException), signed_in(bus, ROOT.name, "wrong"):
        pass


def test_the_key_of_an_entity_is_valid_for_that_entity_only(bus: Bus) -> None:
    mine, other = bus.queue(authorization_rules=(OWN,)), bus.queue()
    with signed_in(bus, "own", "own-one") as connection:
        connection.create_sender(mine).send(proton.Message(body="x"))
        with pytest.raises(LinkDetached, match="unauthorized-access"):
            connection.create_receiver(mine)
        with pytest.raises(LinkDetached, match="unauthorized-access"):
            connection.create_sender(other)


def test_without_a_token_a_client_can_only_put_one(bus: Bus) -> None:
    queue = bus.queue()
    connection = BlockingConnection(f"amqp://localhost:{bus.port}", timeout=PATIENCE, allowed_mechs="ANONYMOUS")
    try:
        for address in (queue, f"{queue}/$management", "nowhere"):
            with pytest.raises(LinkDetached, match="unauthorized-access"):
                connection.create_sender(address)
        connection.create_sender("$cbs")
    finally:
        connection.close()


def test_links_end_with_their_token_unless_it_is_renewed_and_with_their_session(tmp_path: Path) -> None:
    time = FakeTime()
    with running_bus(tmp_path, time) as bus:
        queue, sessions = bus.queue(), bus.queue(requires_session=True)
        left, renewed, holder = bus.together(
            lambda: bus.receiver(queue), lambda: bus.receiver(queue), lambda: bus.receiver(sessions, session_id="s")
        )
        bus.advance(71)
        bus.until(lambda: bus.server.counts.session_receivers == 0, "the session is lost")
        bus.advance(HOUR / SECOND - 120)
        renew(bus, renewed)
        bus.advance(120)
        lost, expired = bus.refused(
            lambda: holder.receive_messages(max_wait_time=PATIENCE),
            lambda: left.receive_messages(max_wait_time=PATIENCE),
        )
        assert isinstance(lost, SessionLockLostError)
        assert isinstance(expired, ServiceBusAuthorizationError)
        assert "ExpiredToken" in str(expired)
        bus.put(queue, ServiceBusMessage(b"x"))
        assert len(renewed.receive_messages(max_wait_time=PATIENCE)) == 1


def renew(bus: Bus, receiver: ServiceBusReceiver) -> None:
    """Make the client put a new token that is valid by the broker's clock."""
    handler: Any = receiver._handler
    assert bus.time is not None
    token = make_token(f"sb://localhost:{bus.port}/", ROOT.name, ROOT.primary_key, bus.time.now + HOUR)
    tokens = handler._cbs_authenticator
    tokens._token_status_code = None
    tokens._put_token(token, "servicebus.windows.net:sastoken", "sb://localhost/")

    def is_answered() -> bool:
        handler._connection.listen(wait=0.05)
        return tokens._token_status_code is not None

    bus.until(is_answered, "the broker has the new token")


def test_a_connected_client_is_notified_when_the_server_stops(tmp_path: Path) -> None:
    with running_bus(tmp_path, limits=AmqpLimits(closing_seconds=0.1)) as bus:
        receiver = bus.receiver(bus.queue())
        bus.run(bus.server.stop())
        with pytest.raises(ServiceBusConnectionError):
            receiver.receive_messages(max_wait_time=PATIENCE)
        assert bus.server.counts.connections == 0
