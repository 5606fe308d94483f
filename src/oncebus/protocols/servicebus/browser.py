"""A client's browser: sends copies of an entity's messages, and leaves the messages in place.

JMS calls it QueueBrowser.
"""

from __future__ import annotations

import asyncio

from oncebus.amqp.outgoing import OutgoingLink
from oncebus.amqp.performatives import SETTLED
from oncebus.engine.store import State
from oncebus.model.access import Operation
from oncebus.model.entities import Queue, Subscription
from oncebus.protocols.servicebus.attached import EntityLink, LinkConnection
from oncebus.protocols.servicebus.nodes import Node

_COPY = "copy"
_AT_ONCE = 20


def asks_to_browse(link: OutgoingLink) -> bool:
    """Return whether the client wants copies instead of the messages themselves."""
    return link.attach.source is not None and link.attach.source.distribution_mode == _COPY


class Browser(EntityLink[OutgoingLink, Queue | Subscription]):
    """Sends each active message once, in order, while there is credit. The copies are sent settled, without a lock.

    At the end it waits for more credit or a drain, and then looks for later messages.
    """

    operation = Operation.PEEK

    def __init__(self, client: LinkConnection, link: OutgoingLink, node: Node) -> None:
        super().__init__(client, link, node)
        self._next = 0
        self._browsing: asyncio.Task[None] | None = None

    def open(self) -> None:
        """See `Attached`."""
        self.link.accept(snd_settle_mode=SETTLED)
        self.is_accepted = True

    def on_credit(self) -> None:
        """See `Attached`."""
        if self._browsing is None and (self.link.drain or self.link.sendable):
            self._browsing = self.front.tasks.start(self._browse())

    def find_entity(self) -> Queue | Subscription:
        """See `EntityLink`."""
        return self.front.broker.browsable(self.node.address)

    async def _browse(self) -> None:
        limits = self.front.limits
        try:
            while wanted := self.link.sendable:
                most = min(wanted, _AT_ONCE)
                await self.client.see_settlements(self.entity.id)
                found = await self.front.broker.peek(self.node.address, self._next, most, None, limits.peeked_bytes)
                if not found:
                    break
                for each in found:
                    message = each.message
                    if message.state is State.ACTIVE:
                        if not self.link.sendable:
                            break
                        payload = self.front.encode(each, self.entity, is_peeked=True)
                        self.link.send(payload, message.sequence.to_bytes(16), settled=True)
                    self._next = message.sequence + 1
                self.client.flush()
            self._browsing = None
            # Without room for output, `on_credit` continues later.
            if self.link.drain and (self.link.sendable or self.link.credit <= 0):
                self.link.answer_drain()
                self.client.flush()
        except Exception as error:
            self._browsing = None
            self.client.end(self, error)
