"""The base class for our end of a client's link, and the connection as the links see it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Generic, Protocol, TypeVar

from oncebus.amqp.events import Disposed
from oncebus.amqp.incoming import Delivery
from oncebus.amqp.link import Link
from oncebus.broker.transactions import Transactions
from oncebus.model.access import Operation
from oncebus.model.access.scopes import Path
from oncebus.model.entities import Entity, NotFound
from oncebus.protocols.servicebus.credentials import ConnectionCredentials
from oncebus.protocols.servicebus.errors import AmqpRefusal
from oncebus.protocols.servicebus.front import ServiceBusFront
from oncebus.protocols.servicebus.nodes import Node

L = TypeVar("L", bound=Link)
E = TypeVar("E", bound=Entity)


class SettlingReceiver(Protocol):
    """A receiver with decisions of the client that are not applied yet."""

    @property
    def entity_id(self) -> int:
        """Return the entity that it receives from."""

    async def wait_until_settled(self) -> None:
        """Wait until all decisions that have come so far are applied."""


class LinkConnection(Protocol):
    """The connection, as its links see it."""

    front: ServiceBusFront
    credentials: ConnectionCredentials
    transactions: Transactions

    @property
    def links(self) -> Collection[Attached[Any]]:
        """Return all links of the connection."""

    def refusal(self, error: Exception) -> AmqpRefusal:
        """Return the refusal that the client gets for an error. It names the host that the client opened."""

    def flush(self) -> None:
        """Write the output of the links soon."""

    @property
    def settling(self) -> set[SettlingReceiver]:
        """Return the receivers that are settling messages now. Receivers add and remove themselves."""

    async def see_settlements(self, entity: int) -> None:
        """Wait until everything that this client has settled at an entity so far is applied.

        A client may settle without asking for an answer, and look at the entity right after that.
        """

    def hold(self, size: int) -> None:
        """Add `size`, which may be negative, to this client's bytes in flight.

        Above the limit, reading from the client pauses.
        """

    def end(self, attached: Attached[Any], error: Exception) -> None:
        """Refuse the link, or detach it if it was accepted, because of this error."""

    def look_at(self, attached: Attached[Any], time: int) -> None:
        """Schedule a call of the link's `check` at this time."""


class Attached(Generic[L]):
    """Our end of a link. The connection calls these methods in the order of the client's frames."""

    is_accepted = False
    """Whether the attach has been answered."""
    held_by: Path | None = None
    """The path of the token that permits the link; None if it needs no token."""
    due: int | None = None
    """When the connection will check the link; None if no check is scheduled."""

    def __init__(self, client: LinkConnection, link: L, node: Node) -> None:
        self.client = client
        self.front = client.front
        self.link = link
        self.node = node

    def open(self) -> None:
        """Answer the attach, now or later. An exception refuses the link."""
        raise NotImplementedError

    def on_delivery(self, delivery: Delivery) -> None:
        """Handle a delivery from the client."""

    def on_credit(self) -> None:
        """Handle a change of the client's credit or drain, or of the room for output."""

    def on_disposition(self, event: Disposed) -> None:
        """Handle outcomes that the client reports for its deliveries."""

    def check(self) -> None:
        """Raise if the link must end, because its entity or its token has changed."""

    def on_end(self) -> None:
        """Clean up after the link has ended."""


class EntityLink(Attached[L], Generic[L, E]):
    """Our end of a link to an entity."""

    operation: Operation
    """What the client needs the right for."""

    def __init__(self, client: LinkConnection, link: L, node: Node) -> None:
        super().__init__(client, link, node)
        self.entity = self._find_permitted()

    def find_entity(self) -> E:
        """Return the entity. Raises if it does not allow what the link is for."""
        raise NotImplementedError

    def check(self) -> None:
        """See `Attached`."""
        if self._find_permitted().id != self.entity.id:
            raise NotFound(self.node.address.path)

    def _find_permitted(self) -> E:
        self.held_by = self.client.credentials.require(self.operation, self.node.path)
        return self.find_entity()
