"""Tokens of an identity provider at $cbs: frame by frame, and by the official client."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusError

from oncebus.amqp.performatives import Detach, Transfer
from oncebus.broker.clock import wall_time
from oncebus.model.access import Issuer
from oncebus.model.entities import Queue
from oncebus.protocols.signing_keys import SigningKeys
from tests.identity_provider import AUDIENCE, RULES, Provider, served_provider

from .bus import Transport, running_bus
from .raw import RawClient, Stage, of, play, request, to
from .test_request_links import answer


async def stranger(stage: Stage) -> RawClient:
    client = stage.client(is_signed_in=False)
    await client.attached(to("$cbs", "put", 100))
    await client.attached(of("$cbs", "get", 101), given=100)
    return client


async def put(client: RawClient, token: str, path: str = "orders", **own: object) -> tuple[int, str]:
    body = request("put-token", token, {"type": "jwt", "name": f"sb://localhost/{path}", **own}, message_id="m")
    client.transfer(body, handle=100)
    _, payload = await client.next(Transfer)
    properties, _, _ = answer(payload)
    return properties["status-code"], properties["status-description"]


def test_a_token_permits_what_its_claims_grant(tmp_path: Path) -> None:
    provider = Provider()

    async def scenario(stage: Stage) -> None:
        await stage.queue("other")
        client = await stranger(stage)
        assert await put(client, provider.token(stage.time.now, "orders.writer")) == (202, "Accepted")
        assert client.connection.is_trusted
        await client.attached(to("orders", "s", 1))
        assert await client.refused(of("orders", "r", 2)) == (
            "amqp:unauthorized-access",
            "Unauthorized access. 'Listen' claim(s) are required to perform this operation. "
            "Resource: 'sb://localhost/orders'.",
        )
        # The grant is for the entity that the client named.
        assert (await client.refused(to("other", "s", 3)))[0] == "amqp:unauthorized-access"
        assert (await put(client, provider.token(stage.time.now, "orders.writer"), "other"))[0] == 202
        assert (await client.refused(to("other", "s", 3)))[0] == "amqp:unauthorized-access"

    play(tmp_path, scenario, issuer=provider.issuer())


def test_only_a_token_with_a_right_learns_that_an_entity_does_not_exist(tmp_path: Path) -> None:
    provider = Provider()

    async def scenario(stage: Stage) -> None:
        client = await stranger(stage)
        assert (await put(client, provider.token(stage.time.now, "orders.writer"), "nowhere"))[0] == 202
        admin = provider.token(stage.time.now, realm_access={"roles": ["admin"]})
        assert (await put(client, admin, "nowhere"))[0] == 404

    play(tmp_path, scenario, issuer=provider.issuer())


def test_links_end_when_the_token_ends(tmp_path: Path) -> None:
    provider = Provider()

    async def scenario(stage: Stage) -> None:
        client = await stranger(stage)
        assert (await put(client, provider.token(stage.time.now, "orders.writer", "orders.reader")))[0] == 202
        await client.attached(to("orders", "s", 1))
        await client.attached(of("orders", "r", 2))
        stage.time.advance(3599)
        client.peer.check()
        assert {each.link.name for each in client.peer.links} >= {"s", "r"}
        stage.time.advance(1)
        client.peer.check()
        for _ in range(2):
            detach, _ = await client.next(Detach)
            assert detach.error is not None
            assert detach.error.description is not None
            assert detach.error.description.startswith("ExpiredToken: ")
        # A new token begins anew.
        assert (await put(client, provider.token(stage.time.now, "orders.writer")))[0] == 202
        await client.attached(to("orders", "s2", 3))

    play(tmp_path, scenario, issuer=provider.issuer())


def test_links_end_when_the_issuer_withdraws_the_key(tmp_path: Path) -> None:
    provider = Provider()

    async def scenario(stage: Stage) -> None:
        client = await stranger(stage)
        assert (await put(client, provider.token(stage.time.now, "orders.writer")))[0] == 202
        await client.attached(to("orders", "s", 1))
        provider.kids = ("ec-1",)
        stage.time.advance(60)
        client.peer.check()
        detach, _ = await client.next(Detach)
        assert detach.error is not None
        assert detach.error.condition == "amqp:unauthorized-access"

    play(tmp_path, scenario, issuer=provider.issuer())


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        ({"aud": "other"}, "InvalidAudience"),
        ({"iss": "https://other.example.org"}, "InvalidIssuer"),
        ({"exp": 1}, "ExpiredToken"),
        ({"nbf": 1 << 40}, "InvalidToken"),
        ({"kid": "rsa-2"}, "InvalidSignature"),
    ],
)
def test_other_tokens_are_refused(tmp_path: Path, claims: dict[str, Any], code: str) -> None:
    provider = Provider()

    async def scenario(stage: Stage) -> None:
        client = await stranger(stage)
        status, text = await put(client, provider.token(stage.time.now, "orders.writer", **claims))
        assert (status, text.partition(":")[0]) == (401, code)
        assert not client.connection.is_trusted

    play(tmp_path, scenario, issuer=provider.issuer())


def test_a_new_key_is_fetched_while_others_go_on(tmp_path: Path) -> None:
    with served_provider() as provider:
        asked, answering = asyncio.Event(), asyncio.Event()

        class Slow(SigningKeys):
            async def look_for(self, kid: str) -> None:
                asked.set()
                await answering.wait()
                await super().look_for(kid)

        slow = Slow(provider.url)

        async def scenario(stage: Stage) -> None:
            first, second = await stranger(stage), await stranger(stage)
            waiting = asyncio.create_task(put(first, provider.token(stage.time.now, "orders.writer")))
            await asked.wait()
            # Neither another client nor this one is held up.
            assert (await put(second, "SharedAccessSignature sr=x"))[0] == 401
            assert not waiting.done()
            answering.set()
            assert await waiting == (202, "Accepted")
            await first.attached(to("orders", "s", 1))
            await slow.stop()

        play(tmp_path, scenario, issuer=Issuer(provider.url, AUDIENCE, RULES, slow))


def test_a_client_that_leaves_while_a_key_is_fetched(tmp_path: Path) -> None:
    provider = Provider()

    async def scenario(stage: Stage) -> None:
        client = await stranger(stage)
        token = provider.token(stage.time.now, kid="rsa-2")
        for _ in range(5):
            client.transfer(request("put-token", token, {"name": "sb://localhost/orders"}, message_id="m"), handle=100)
        client.lose()
        await stage.server.front.tasks.drain()
        assert provider.asked == ["rsa-2"] * 5

    play(tmp_path, scenario, issuer=provider.issuer())


class Credential:
    """What `azure-identity` offers, for tokens of the provider."""

    def __init__(self, provider: Provider, *roles: str) -> None:
        self.provider, self.roles = provider, roles

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:  # noqa: ARG002
        return AccessToken(self.provider.token(wall_time(), *self.roles), wall_time() // 1_000_000 + 3600)

    def close(self) -> None:
        pass

    def __enter__(self) -> Credential:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_the_official_client_with_a_token_credential(tmp_path: Path) -> None:
    """Over a WebSocket with TLS: with a credential, the client insists on TLS."""
    provider = Provider()
    with running_bus(tmp_path, transport=Transport.SECURE_WEBSOCKET, issuer=provider.issuer()) as bus:
        orders = "orders"
        bus.run(bus.broker.change(lambda catalogue, now: catalogue.create(Queue(name=orders), now)))

        def client(*roles: str) -> ServiceBusClient:
            return ServiceBusClient(
                "localhost",
                Credential(provider, *roles),
                custom_endpoint_address=f"sb://localhost:{bus.port}",
                connection_verify=str(bus.certificate),
                transport_type=TransportType.AmqpOverWebsocket,
                retry_total=0,
            )

        with client("orders.writer") as writing, writing.get_queue_sender(orders, keep_alive=0) as sender:
            sender.send_messages(ServiceBusMessage("by a person", message_id="1"))
        with client("orders.reader") as reading, reading.get_queue_receiver(orders) as receiver:
            (received,) = receiver.receive_messages(1, max_wait_time=30)
            assert str(received) == "by a person"
            receiver.complete_message(received)
        with client("orders.reader") as reading, pytest.raises((ServiceBusAuthenticationError, ServiceBusError)):
            reading.get_queue_sender(orders, keep_alive=0).send_messages(ServiceBusMessage("by a reader"))
