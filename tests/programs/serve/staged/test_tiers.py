"""Tests the features of each tier, and large messages in the Premium tier. Deletes all entities to change the tier."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import MessageSizeExceededError

from oncebus.model.access import KeyFile, connection_string
from oncebus.model.entities import Tier
from oncebus.protocols.http import listen
from oncebus.protocols.servicebus import ServiceBusServer, make_server
from tests.programs.serve.stage import PATIENCE, Stage

DETECTS: dict[str, object] = {"RequiresDuplicateDetection": True}
MEGABYTE = 1 << 20
LARGEST_KILOBYTES = 100 * 1024


@contextmanager
def at_tier(stage: Stage, tier: Tier) -> Iterator[None]:
    """Delete all entities and switch to another tier for a block."""
    stage.clear()
    stage.change(lambda catalogue, now: catalogue.change_tier(tier))
    try:
        yield
    finally:
        stage.clear()
        stage.change(lambda catalogue, now: catalogue.change_tier(Tier.STANDARD))


def bodies(stage: Stage, queue: str) -> list[str]:
    return [body for _, body in stage.client.receive_all(queue)]


def refusal(stage: Stage, values: Mapping[str, object] | None = None, kind: str = "Queue") -> str:
    """Return the error text of an attempt to create such an entity."""
    status, text = stage.client.put("refused", values, kind)
    assert status == 400, text
    return text


def test_rule_9_the_tier_decides_which_features_there_are(stage: Stage) -> None:
    client = stage.client
    assert "DelayedPersistence and RequiresDuplicateDetection" in refusal(stage, {**DETECTS, "EnableExpress": True})
    with at_tier(stage, Tier.BASIC):
        assert client.put("plain")[0] == 201
        for more in (DETECTS, {"RequiresSession": True}, {"ForwardTo": "plain"}):
            assert "Basic" in refusal(stage, more)
        assert "Basic" in refusal(stage, kind="Topic")
        answers = [client.send("plain", "a", body) for body in ("first", "second")]
        assert [*answers, client.send_with("plain", "third", SessionId="s")] == [201, 201, 400]
        assert client.drops("plain") == []
        assert bodies(stage, "plain") == ["first", "second"]
    with at_tier(stage, Tier.PREMIUM):
        assert "artition" in refusal(stage, {**DETECTS, "EnablePartitioning": True})
        assert client.put("detecting", DETECTS)[0] == 201
        assert [client.send("detecting", "a", body) for body in ("first", "second")] == [201, 201]
        assert len(client.drops("detecting")) == 1
        assert bodies(stage, "detecting") == ["first"]


def test_messages_of_a_megabyte_and_one_of_a_hundred_go_through(stage: Stage) -> None:
    chance = random.Random(1)
    sizes = [MEGABYTE] * 64 + [LARGEST_KILOBYTES * 1024 - 1024]
    with at_tier(stage, Tier.PREMIUM):
        assert stage.client.put("large", {**DETECTS, "MaxMessageSizeInKilobytes": LARGEST_KILOBYTES})[0] == 201
        sent: list[str] = []
        for size in sizes:
            body = chance.randbytes(size)
            for _ in range(2 if size == MEGABYTE and len(sent) % 16 == 0 else 1):
                properties = {"BrokerProperties": f'{{"MessageId": "{len(sent)}"}}'}
                assert stage.client.exchange("POST", "/large/messages", body, properties)[0] == 201
            sent.append(hashlib.blake2b(body).hexdigest())
        received = []
        for number in range(len(sizes)):
            found = stage.client.receive_whole("large", PATIENCE / 2)
            assert found is not None, f"message {number} did not come"
            assert found[0]["MessageId"] == str(number)
            received.append(hashlib.blake2b(found[1]).hexdigest())
        assert received == sent
        assert stage.client.receive_whole("large", 0) is None
        assert [drop["messageId"] for drop in stage.client.drops("large")] == ["0", "16", "32", "48"]


@contextmanager
def amqp_client(stage: Stage) -> Iterator[ServiceBusClient]:
    """Run an AMQP server for a block, and yield an official client that is connected to it."""
    keys, listener = KeyFile(stage.data / "keys.json"), listen("127.0.0.1", 0)

    async def started() -> ServiceBusServer:
        server = make_server(stage.broker, namespace_rules=keys.rules)
        await server.start(listener)
        return server

    server = stage.run(started())
    try:
        text = connection_string("localhost", listener.getsockname()[1], keys.rules()[0], emulator=True)
        # The default socket timeout of a fifth of a second is too short to write a large message.
        with ServiceBusClient.from_connection_string(text, retry_total=0, socket_timeout=10) as client:
            yield client
    finally:
        stage.run(server.stop())
        listener.close()


def test_messages_of_a_megabyte_and_one_of_a_hundred_go_through_over_amqp(stage: Stage) -> None:
    chance = random.Random(2)
    # Leaves a kilobyte for the properties.
    sizes = [MEGABYTE - 1024, LARGEST_KILOBYTES * 1024 - 1024, MEGABYTE]
    with at_tier(stage, Tier.PREMIUM), amqp_client(stage) as client:
        assert stage.client.put("large", {**DETECTS, "MaxMessageSizeInKilobytes": LARGEST_KILOBYTES})[0] == 201
        assert stage.client.put("usual")[0] == 201
        with client.get_queue_sender("usual") as usual:
            usual.send_messages(ServiceBusMessage(bytes(sizes[0])))
            with pytest.raises(MessageSizeExceededError, match="exceeds the limit"):
                usual.send_messages(ServiceBusMessage(bytes(sizes[-1])))
        sent: list[str] = []
        with client.get_queue_sender("large") as sender, client.get_queue_receiver("large") as receiver:
            for number, size in enumerate(sizes):
                content = chance.randbytes(size)
                sent.append(hashlib.blake2b(content).hexdigest())
                for _ in range(2 if size < MEGABYTE else 1):
                    sender.send_messages(ServiceBusMessage(content, message_id=str(number)))
            found: list[tuple[str | None, str]] = []
            while len(found) < len(sizes):
                (message,) = receiver.receive_messages(1, max_wait_time=PATIENCE)
                found.append((message.message_id, hashlib.blake2b(b"".join(message.body)).hexdigest()))
                receiver.complete_message(message)
        assert found == [(str(number), digest) for number, digest in enumerate(sent)]
        assert [drop["messageId"] for drop in stage.client.drops("large")] == ["0"]
        assert stage.client.receive_whole("large", 0) is None
