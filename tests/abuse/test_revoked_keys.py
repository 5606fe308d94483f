"""A key that is rotated, or whose rule is removed, while clients are connected with it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSender
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusError

from oncebus.amqp.performatives import Attach, Detach, Source
from oncebus.model.access import Right, WhichKey, connection_string
from tests.amqp.client import receiver, written

from .attackers import attacker
from .gateways import running_gateway
from .victims import victim

UNAUTHORIZED = "amqp:unauthorized-access"


def send_for_ever(sender: ServiceBusSender) -> None:
    """Send until it fails. Until the gateway notices that the key is revoked, sends may still be accepted."""
    while True:
        sender.send_messages(ServiceBusMessage("after"))


def test_links_and_connections_end_when_their_key_is_revoked(tmp_path: Path) -> None:
    with running_gateway(tmp_path) as gateway, victim(gateway) as somebody:
        listens, sends = gateway.rule("listens", Right.LISTEN), gateway.rule("sends", Right.SEND)

        async def attack() -> None:
            async with attacker(gateway, listens) as socket:
                await socket.say(written(receiver("one", 0, source=Source("noisy"))))
                await socket.expect(Attach)
                gateway.keys.remove("listens")
                (detach,) = await socket.expect(Detach)
                assert detach.error.condition == UNAUTHORIZED
                await socket.say(written(receiver("two", 1, source=Source("noisy"))))
                answer, detach = await socket.expect(Attach, Detach)
                assert answer.source is None
                assert detach.error.condition == UNAUTHORIZED

        asyncio.run(attack())
        text = connection_string("localhost", gateway.amqp_port, sends, emulator=True)
        with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
            sender = client.get_queue_sender("noisy")
            with sender:
                sender.send_messages(ServiceBusMessage("before"))
                for which in WhichKey:
                    gateway.keys.rotate("sends", which)
                # The client's error depends on the moment at which the link ends during a send.
                with pytest.raises(ServiceBusError):
                    send_for_ever(sender)
            with pytest.raises(ServiceBusAuthenticationError), client.get_queue_sender("noisy"):
                pass
        somebody.goes_on()
