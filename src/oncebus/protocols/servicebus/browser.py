"""A client's browser: sends copies of an entity's messages, and leaves the messages in place.

JMS calls it QueueBrowser.
"""

from __future__ import annotations

import asyncio

from oncebus.amqp.outgoing import OutgoingLink
from oncebus.amqp.performatives import SETTLED
from oncebus.engine.store import State
from oncebus.model.access import Operation
from oncebus.model.entities import NotFound, Queue, Subscription
from oncebus.protocols.servicebus.attached import Attached, Client
from oncebus.protocols.servicebus.messages import outgoing
from oncebus.protocols.servicebus.nodes import Node

_COPY = "copy"
_AT_ONCE = 20


def asks_to_browse(link: OutgoingLink) -> bool:
    """Return whether the client wants copies instead of the messages themselves."""
    return link.attach.source is not None and link.attach.source.distribution_mode == _COPY


class Browser(Attached[OutgoingLink]):
    """Sends each active message once, in order, while there is credit. The copies are sent settled, without a lock.

    At the end it waits for more credit or a drain, and then looks for later messages.
    """

    def __init__(self, client: Client, link: OutgoingLink, node: Node) -> None:
        super().__init__(client, link, node)
        entity = self._permitted()
        self._entity, self._is_subscription = entity.id, isinstance(entity, Subscription)
        self._default_ttl = entity.default_message_time_to_live
        self._next = 0
        self._browsing: asyncio.Task[None] | None = None

    def open(self) -> None:
        """See `Attached`."""
        self.link.accept(snd_settle_mode=SETTLED)
        self.is_accepted = True

    def check(self) -> None:
        """See `Attached`."""
        if self._permitted().id != self._entity:
            raise NotFound(self.node.address.path)

    def credit_changed(self) -> None:
        """See `Attached`."""
        if self._browsing is None and (self.link.drain or self.link.sendable):
            self._browsing = self.front.tasks.start(self._browse())

    def _permitted(self) -> Queue | Subscription:
        self.held_by = self.client.credentials.require(Operation.PEEK, self.node.path)
        return self.front.broker.browsable(self.node.address)

    async def _browse(self) -> None:
        limits = self.front.limits
        try:
            while wanted := self.link.sendable:
                most = min(wanted, _AT_ONCE)
                await self.client.see_settlements(self._entity)
                found = await self.front.broker.peek(self.node.address, self._next, most, None, limits.peeked_bytes)
                if not found:
                    break
                for each in found:
                    message = each.message
                    if message.state is State.ACTIVE:
                        if not self.link.sendable:
                            break
                        source = self.front.path_of(message.source, message.entity)
                        payload = outgoing(
                            each,
                            source,
                            is_peeked=True,
                            is_copy=self._is_subscription,
                            default_ttl=self._default_ttl,
                        )
                        self.link.send(payload, message.sequence.to_bytes(16), settled=True)
                    self._next = message.sequence + 1
                self.client.flush()
            self._browsing = None
            # Without room for output, `credit_changed` continues later.
            if self.link.drain and (self.link.sendable or self.link.credit <= 0):
                self.link.answer_drain()
                self.client.flush()
        except Exception as error:
            self._browsing = None
            self.client.end(self, error)
