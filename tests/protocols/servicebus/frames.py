"""What the tests of other clients' frames share: requests to $management, and messages as they arrive."""

from __future__ import annotations

from typing import Any

from oncebus import amqp
from oncebus.amqp.message import Parts
from oncebus.amqp.performatives import Target, Transfer
from oncebus.amqp.types import Int, ULong
from oncebus.protocols.servicebus.messages import incoming_message

from .raw import RawClient, Stage, message, of, request, to


async def put(stage: Stage, *bodies: bytes, queue: str = "orders", session: str | None = None) -> None:
    """Send messages, and wait until they can be received."""
    await stage.broker.send(queue, [incoming_message(message(body, group_id=session)) for body in bodies])
    await stage.broker.counts(queue)


async def taken(client: RawClient) -> tuple[Transfer, Parts]:
    """Return the next delivery."""
    transfer, payload = await client.next(Transfer)
    return transfer, amqp.split(payload)


class Manager:
    """A pair of links to an entity's $management, in the session of a client."""

    def __init__(self, client: RawClient, handle: int) -> None:
        self.client, self._handle = client, handle
        self._asked = 0

    @classmethod
    async def attached(cls, client: RawClient, address: str = "orders/$management", handle: int = 10) -> Manager:
        await client.attached(to(address, f"{handle}-out", handle))
        await client.attached(of(address, f"{handle}-in", handle + 1, target=Target("reply")), given=50)
        return cls(client, handle)

    async def ask(self, operation: str, body: Any, **own: object) -> tuple[int, Any]:
        """Return the status and the body of the answer."""
        self._asked += 1
        identity = ULong(self._asked)
        sent = request(f"com.microsoft:{operation}", body, own, message_id=identity, reply_to="reply")
        self.client.transfer(sent, handle=self._handle)
        _, parts = await taken(self.client)
        properties = amqp.application_properties(parts.head)
        correlation = amqp.properties(parts.head).correlation_id
        assert (correlation, type(correlation)) == (identity, ULong)
        assert type(properties["statusCode"]) is Int
        content = amqp.decode_body(parts.body)
        assert isinstance(content, amqp.AmqpValue)
        return properties["statusCode"], content.value
