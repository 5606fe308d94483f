"""The errors of the official clients for missing rights, invalid operations and missing entities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import methodcaller
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
)

from .served import PATIENCE, Served, async_received, body, received
from .together import together

ACT = "rules"
ONCE: dict[str, Any] = {"retry_total": 0}
"""No retries: clients retry most of these errors, and would fail again."""


def why_not(client: ServiceBusClient, opens: Callable[[ServiceBusClient], Any]) -> ServiceBusError:
    """Open a sender or a receiver that must fail, and return the error."""
    with client, pytest.raises(ServiceBusError) as refused, opens(client):
        pass
    return refused.value


def text_of(error: ServiceBusError) -> str:
    """Return the broker's text about a token, which the client hides in an inner error."""
    return str(getattr(error.inner_exception, "status_description", None))


@together
def test_the_error_names_a_missing_entity(served: Served) -> None:
    error = why_not(served.client(), lambda client: client.get_queue_sender("nowhere"))
    # The service answers the token with 404, and the client has only one error for a token.
    assert isinstance(error, ServiceBusAuthenticationError)
    assert "/nowhere' could not be found" in text_of(error)
    topic = served.topic()
    error = why_not(served.client(), lambda client: client.get_subscription_receiver(topic, "none"))
    assert isinstance(error, ServiceBusAuthenticationError)
    assert f"/{topic}/Subscriptions/none' could not be found" in text_of(error)


@together
async def test_the_asyncio_client_gets_the_same_errors(served: Served) -> None:
    async with served.async_client() as client:
        with pytest.raises(ServiceBusAuthenticationError):
            await client.get_queue_sender("nowhere").send_messages(ServiceBusMessage(b"x"))
    async with served.async_client(served.only_listens) as client:
        with pytest.raises(ServiceBusAuthorizationError, match="'Send' claim"):
            await client.get_queue_sender(served.queue()).send_messages(ServiceBusMessage(b"x"))
    async with AsyncClient.from_connection_string(served.token_string(-1), **ONCE) as client:
        with pytest.raises(ServiceBusAuthenticationError):
            await client.get_queue_sender(served.queue()).send_messages(ServiceBusMessage(b"x"))


async def why_not_async(client: AsyncClient, opens: Callable[[AsyncClient], Any]) -> ServiceBusError:
    """Open a sender or a receiver that must fail, and return the error."""
    async with client:
        with pytest.raises(ServiceBusError) as refused:
            async with opens(client):
                pass
    return refused.value


@together
async def test_the_asyncio_client_gets_an_error_for_a_wrong_key(served: Served) -> None:
    queue = served.queue()
    for rule in (replace(served.root, primary_key="wrong"), replace(served.root, name="nobody")):
        error = await why_not_async(served.async_client(rule, **ONCE), methodcaller("get_queue_sender", queue))
        assert isinstance(error, ServiceBusAuthenticationError)
        assert "InvalidSignature" in text_of(error)


@together
async def test_the_asyncio_client_gets_an_error_for_a_disabled_entity(served: Served) -> None:
    disabled, deaf, mute = (served.queue(kind) for kind in ("disabled", "send-disabled", "receive-disabled"))
    for queue in (disabled, deaf):
        error = await why_not_async(served.async_client(**ONCE), methodcaller("get_queue_sender", queue))
        assert isinstance(error, MessagingEntityDisabledError), error
    for queue in (disabled, mute):
        error = await why_not_async(served.async_client(**ONCE), methodcaller("get_queue_receiver", queue))
        assert isinstance(error, MessagingEntityDisabledError), error
    async with served.async_client() as client, client.get_queue_sender(mute) as sender:
        await sender.send_messages(ServiceBusMessage(b"x"))


@together
async def test_the_asyncio_client_gets_the_brokers_error_for_a_too_large_message(served: Served) -> None:
    queue = served.queue()
    async with (
        served.async_client(**ONCE) as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as receiver,
    ):
        # The client itself checks lists and batches, but not single messages.
        with pytest.raises(MessageSizeExceededError, match="exceeds the limit"):
            await sender.send_messages(ServiceBusMessage(bytes(256 * 1024 + 1)))
        await sender.send_messages(ServiceBusMessage(b"after"))
        (message,) = await async_received(receiver, 1)
        assert (body(message), message.sequence_number) == (b"after", 1)


@together
def test_a_wrong_key_and_an_unknown_rule_are_refused_alike(served: Served) -> None:
    queue = served.queue()
    for rule in (replace(served.root, primary_key="wrong"), replace(served.root, name="nobody")):
        error = why_not(served.client(rule, **ONCE), lambda client: client.get_queue_sender(queue))
        assert isinstance(error, ServiceBusAuthenticationError)
        assert "InvalidSignature" in text_of(error)


@together
def test_the_error_names_a_missing_right(served: Served) -> None:
    queue = served.queue()
    error = why_not(served.client(served.only_listens), lambda client: client.get_queue_sender(queue))
    assert isinstance(error, ServiceBusAuthorizationError)
    assert "'Send' claim(s) are required to perform this operation" in str(error)
    error = why_not(served.client(served.only_sends), lambda client: client.get_queue_receiver(queue))
    assert isinstance(error, ServiceBusAuthorizationError)
    assert "'Listen' claim(s) are required to perform this operation" in str(error)


@together
def test_a_client_with_one_right_may_do_just_that(served: Served) -> None:
    queue = served.queue()
    with served.client(served.only_sends) as client, client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage(b"x"))
    with served.client(served.only_listens) as client, client.get_queue_receiver(queue) as receiver:
        (message,) = received(receiver, 1)
        receiver.complete_message(message)


@together
def test_an_expired_token_is_refused(served: Served) -> None:
    queue = served.queue()
    client = ServiceBusClient.from_connection_string(served.token_string(-1), **ONCE)
    error = why_not(client, lambda client: client.get_queue_sender(queue))
    assert isinstance(error, ServiceBusAuthenticationError)
    assert "ExpiredToken" in text_of(error)


@together
def test_a_link_ends_with_its_token(served: Served) -> None:
    queue = served.queue()
    with (
        ServiceBusClient.from_connection_string(served.token_string(20), **ONCE) as client,
        client.get_queue_receiver(queue) as receiver,
        pytest.raises(ServiceBusError) as refused,
    ):
        receiver.receive_messages(1, max_wait_time=PATIENCE)
    # The client may notice the expiry before the broker does.
    assert isinstance(refused.value, ServiceBusAuthenticationError | ServiceBusAuthorizationError)


@together
def test_a_disabled_entity_takes_no_link_that_its_status_forbids(served: Served) -> None:
    disabled, deaf, mute = (served.queue(kind) for kind in ("disabled", "send-disabled", "receive-disabled"))
    for queue in (disabled, deaf):
        error = why_not(served.client(**ONCE), methodcaller("get_queue_sender", queue))
        assert isinstance(error, MessagingEntityDisabledError), error
    for queue in (disabled, mute):
        error = why_not(served.client(**ONCE), methodcaller("get_queue_receiver", queue))
        assert isinstance(error, MessagingEntityDisabledError), error
    with served.client() as client, client.get_queue_sender(mute) as sender:
        sender.send_messages(ServiceBusMessage(b"x"))
    with served.client() as client, client.get_queue_receiver(deaf) as receiver:
        assert receiver.peek_messages() == []


@together
def test_links_end_when_their_entity_is_disabled_or_deleted(served: Served) -> None:
    with served.administration() as admin, served.client(**ONCE) as client:
        names = [f"for-a-while-{number}" for number in range(2)]
        disabled, deleted = (admin.create_queue(name) for name in names)
        with client.get_queue_receiver(names[0]) as first, client.get_queue_receiver(names[1]) as second:
            disabled.status = "Disabled"
            admin.update_queue(disabled)
            admin.delete_queue(deleted.name)
            with pytest.raises(MessagingEntityDisabledError):
                first.receive_messages(max_wait_time=PATIENCE)
            with pytest.raises(MessagingEntityNotFoundError):
                second.receive_messages(max_wait_time=PATIENCE)
        admin.delete_queue(names[0])


@together
def test_a_too_large_list_of_messages_is_refused_completely(served: Served) -> None:
    with served.pair() as (_, sender, receiver):
        with pytest.raises(MessageSizeExceededError):
            sender.send_messages([ServiceBusMessage(bytes(100_000)) for _ in range(3)])
        sender.send_messages(ServiceBusMessage(b"after"))
        (message,) = received(receiver, 1)
        assert (body(message), message.sequence_number) == (b"after", 1)
